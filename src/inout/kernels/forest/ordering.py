"""Topological order of a hypergraph given as unordered edges."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.cpu import ordering


def order_forest(
    heads: NDArray[np.int32],
    tail_offsets: NDArray[np.int64],
    tails: NDArray[np.int32],
    is_axiom: NDArray[np.bool_],
    goals: NDArray[np.int64],
) -> tuple[ForestArrays, NDArray[np.int32]] | NDArray[np.int32]:
    """The ordered forest and the old number of each of its items, or else the items of a cycle.

    Axioms must not be heads. Kept are the items some goal uses; edges keep their given order
    within an item, items their given order within a level. O(items + edges).
    """
    edge_offsets, tail_offsets, tails = ordering.group_by_head(
        heads, tail_offsets, tails, len(is_axiom)
    )
    cursor = tail_offsets[edge_offsets[:-1]]
    level = np.full(len(is_axiom), ordering.WAITING, dtype=np.int32)
    live = np.zeros(len(heads), dtype=np.bool_)
    postorder, all_live, cycle = ordering.depth_first(
        is_axiom, edge_offsets, tail_offsets, tails, goals, cursor, level, live
    )
    if len(cycle):
        return np.asarray(cycle)
    if not all_live:
        ordering.drop_unused(level, live, postorder, edge_offsets, tail_offsets, tails, goals)
    # A goal that cannot be derived stays, with no edges.
    level[goals] = np.where(level[goals] < 0, 1, level[goals])
    old, edge_offsets, tail_offsets, tails, level_offsets = ordering.emit(
        level, live, edge_offsets, tail_offsets, tails
    )
    new = np.full(len(is_axiom), -1, dtype=np.int64)
    new[old] = np.arange(len(old))
    num_axioms = int(level_offsets[1])
    arrays = ForestArrays(num_axioms, edge_offsets, tail_offsets, tails, level_offsets, new[goals])
    return arrays, old
