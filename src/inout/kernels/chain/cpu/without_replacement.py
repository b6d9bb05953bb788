"""Labellings of a chain as a tree of choices: labels from the last position to the first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled
from inout.kernels.math.cpu import without_replacement as tree


class ChainChoices(NamedTuple):
    """The element b of a batch; what is to be chosen next is the label of a position."""

    alphas: NDArray[np.float64]  # [n s] in logs
    transitions: NDArray[np.float64]  # [bt nt s s]
    b: int


@tree.choices.on(ChainChoices)
def _(chain, nodes, node, logits, codes):
    t, after = nodes.links[node, tree.NEXT], nodes.links[node, tree.CHOICE]
    last = after == tree.NOTHING
    table = chain.transitions
    element = chain.b if table.shape[0] > 1 else 0
    step = t if table.shape[1] > 1 else 0
    for j in range(chain.alphas.shape[1]):
        codes[j] = j
        logits[j] = chain.alphas[t, j] + (0.0 if last else table[element, step, j, after])
    return chain.alphas.shape[1]


@tree.enter.on(ChainChoices)
def _(chain, nodes, node):
    links, parent = nodes.links, nodes.links[node, tree.PARENT]
    before = chain.alphas.shape[0] if parent == tree.NOTHING else links[parent, tree.NEXT]
    links[node, tree.NEXT] = before - 1 if before > 0 else tree.NOTHING


@compiled
def search(problem, nodes, search, seed, number):
    """Labellings of an element; see `search_leaves`."""
    return tree.search_leaves(problem, nodes, search, seed, number)
