"""Topological order of a hypergraph given as unordered edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.cpu import ordering
from inout.kernels.forest.cpu.ordering import Graph


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
    num_items, num_edges = len(is_axiom), len(heads)
    graph = _grouped(heads, tail_offsets, tails, num_items)
    level = np.full(num_items, ordering.WAITING, dtype=np.int32)
    live = np.zeros(num_edges, dtype=np.bool_)
    postorder, stack = np.empty((2, num_items), dtype=np.int32)
    cursor = graph.tail_offsets[graph.edge_offsets[:-1]]
    finished, all_live, start, end = ordering.depth_first(
        is_axiom, graph, goals, cursor, level, live, postorder, stack
    )
    if end:
        return stack[start:end].copy()
    if not all_live:
        used = np.zeros(num_items, dtype=np.bool_)
        used[goals] = True
        ordering.drop_unused(level, live, postorder[:finished], graph, used)
    # A goal that cannot be derived stays, with no edges.
    level[goals] = np.where(level[goals] < 0, 1, level[goals])
    level_offsets = _offsets(np.bincount(level[level >= 0], minlength=1))
    new = np.full(num_items, -1, dtype=np.int32)
    old = np.empty(level_offsets[-1], dtype=np.int32)
    ordering.renumber(level, level_offsets[:-1].copy(), new, old)
    ordered = _empty_graph(len(old), num_edges, len(tails))
    edges, tail_count = ordering.emit(graph, live, new, old, ordered)
    arrays = ForestArrays(
        int(level_offsets[1]),
        ordered.edge_offsets,
        _cut(ordered.tail_offsets, edges + 1),
        _cut(ordered.tails, tail_count),
        level_offsets,
        new[goals].astype(np.int64),
    )
    return arrays, old


def _grouped(
    heads: NDArray[np.int32],
    tail_offsets: NDArray[np.int64],
    tails: NDArray[np.int32],
    num_items: int,
) -> Graph:
    graph = _empty_graph(num_items, len(heads), len(tails))
    graph.edge_offsets[:] = _offsets(np.bincount(heads, minlength=num_items))
    arities = np.bincount(heads, np.diff(tail_offsets), minlength=num_items).astype(np.int64)
    cursors = graph.edge_offsets[:-1].copy(), _offsets(arities)[:-1]
    ordering.group_by_head(heads, tail_offsets, tails, *cursors, graph)
    return graph


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _empty_graph(num_items: int, num_edges: int, num_tails: int) -> Graph:
    offsets = np.zeros(num_items + 1, np.int64), np.zeros(num_edges + 1, np.int64)
    return Graph(*offsets, np.empty(num_tails, np.int32))


def _cut(array: NDArray[Any], size: int) -> NDArray[Any]:
    return array if size == len(array) else array[:size].copy()
