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
from inout.kernels.forest.arrays import Structure
from inout.kernels.math.cpu import without_replacement as tree


class ForestChoices(NamedTuple):
    """A forest, the logs of its inside values, and the item to derive."""

    structure: Structure
    logs: NDArray[np.float64]  # [v]
    root: int


@tree.choices.on(ForestChoices)
def _(forest, nodes, node, logits, codes):
    item, structure = nodes.links[node, tree.NEXT], forest.structure
    first, end = structure.edge_offsets[item], structure.edge_offsets[item + 1]
    for edge in range(first, end):
        total = 0.0
        for t in range(structure.tail_offsets[edge], structure.tail_offsets[edge + 1]):
            total += forest.logs[structure.tails[t]]
        logits[edge - first], codes[edge - first] = total, edge
    return end - first


@inner
def first_derived(structure, place, end):
    """The first place from `place` on whose tail has edges, `end` if there is none."""
    while place < end and structure.tails[place] < structure.num_axioms:
        place += 1
    return place


@tree.enter.on(ForestChoices)
def _(forest, nodes, node):
    links, structure = nodes.links, forest.structure
    parent, edge = links[node, tree.PARENT], links[node, tree.CHOICE]
    if parent == tree.NOTHING:
        derived = forest.root >= structure.num_axioms
        links[node, tree.NEXT] = forest.root if derived else tree.NOTHING
        links[node, tree.PLACE] = links[node, tree.END] = 0
        links[node, tree.BELOW] = tree.NOTHING
        return
    # What is left of the parent's own piece, and the new edge's tails on top of it.
    rest = first_derived(structure, links[parent, tree.PLACE] + 1, links[parent, tree.END])
    below = parent if rest < links[parent, tree.END] else links[parent, tree.BELOW]
    place, end = np.int64(structure.tail_offsets[edge]), np.int64(structure.tail_offsets[edge + 1])
    place = first_derived(structure, place, end)
    if place == end:
        if below == tree.NOTHING:
            links[node, tree.NEXT] = tree.NOTHING
            return
        place = first_derived(structure, links[below, tree.PLACE] + 1, links[below, tree.END])
        end, below = links[below, tree.END], links[below, tree.BELOW]
    links[node, tree.NEXT] = structure.tails[place]
    links[node, tree.PLACE], links[node, tree.END], links[node, tree.BELOW] = place, end, below


@compiled
def search(problem, nodes, search, seed, number):
    """Derivations below the root; see `search_leaves`."""
    return tree.search_leaves(problem, nodes, search, seed, number)
