"""Derivations of a forest as a tree of choices: an edge for each item, leftmost item first.

A node is a derivation that has been begun. The items that are still to be derived are a stack of
pieces of tails, which nodes share: each node has the topmost piece, from PLACE to END, and BELOW is
the node whose own piece goes on after that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu import without_replacement as tree


class ForestChoices(NamedTuple):
    """A forest as in `ForestArrays`, the logs of its inside values, and the item to derive."""

    num_axioms: int
    edge_offsets: NDArray[np.int64]
    tail_offsets: NDArray[np.int64]
    tails: NDArray[np.int32]
    logs: NDArray[np.float64]  # [v]
    root: int


@tree.choices.on(ForestChoices)
def _(forest, nodes, node, logits, codes):
    item = nodes.links[node, tree.NEXT]
    first, end = forest.edge_offsets[item], forest.edge_offsets[item + 1]
    for edge in range(first, end):
        total = 0.0
        for t in range(forest.tail_offsets[edge], forest.tail_offsets[edge + 1]):
            total += forest.logs[forest.tails[t]]
        logits[edge - first], codes[edge - first] = total, edge
    return end - first


@inner
def first_derived(forest, place, end):
    """The first place from `place` on whose tail has edges, `end` if there is none."""
    while place < end and forest.tails[place] < forest.num_axioms:
        place += 1
    return place


@tree.enter.on(ForestChoices)
def _(forest, nodes, node):
    links = nodes.links
    parent, edge = links[node, tree.PARENT], links[node, tree.CHOICE]
    if parent == tree.NOTHING:
        links[node, tree.NEXT] = forest.root if forest.root >= forest.num_axioms else tree.NOTHING
        links[node, tree.PLACE] = links[node, tree.END] = 0
        links[node, tree.BELOW] = tree.NOTHING
        return
    # What is left of the parent's own piece, and the new edge's tails on top of it.
    rest = first_derived(forest, links[parent, tree.PLACE] + 1, links[parent, tree.END])
    below = parent if rest < links[parent, tree.END] else links[parent, tree.BELOW]
    place, end = np.int64(forest.tail_offsets[edge]), np.int64(forest.tail_offsets[edge + 1])
    place = first_derived(forest, place, end)
    if place == end:
        if below == tree.NOTHING:
            links[node, tree.NEXT] = tree.NOTHING
            return
        place = first_derived(forest, links[below, tree.PLACE] + 1, links[below, tree.END])
        end, below = links[below, tree.END], links[below, tree.BELOW]
    links[node, tree.NEXT] = forest.tails[place]
    links[node, tree.PLACE], links[node, tree.END], links[node, tree.BELOW] = place, end, below


@compiled
def search(problem, nodes, search, seed, number):
    """Derivations below the root; see `search_leaves`."""
    return tree.search_leaves(problem, nodes, search, seed, number)
