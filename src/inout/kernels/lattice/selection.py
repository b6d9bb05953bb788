"""`select`: contexts chosen column by column, and the lattice that they form."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError
from inout.kernels.lattice.arrays import Columns, Numbers, Targets, checked_emissions
from inout.kernels.lattice.cpu import selection
from inout.kernels.lattice.cpu.strings import UNBOUNDED
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice
from inout.kernels.lattice.targets import written_ranges

By = Literal["model", "target", "hybrid"]

_BY = {"model": selection.BY_MODEL, "target": selection.BY_TARGET, "hybrid": selection.BY_BOTH}


def select(
    columns: Columns,
    histories: Histories,
    emissions: NDArray[np.float64] | None,
    sizes: NDArray[Any] | int,
    *,
    memory: int | None = None,
    escape: float = 0.0,
    anchored: bool = False,
    by: By = "model",
    targets: Targets | None = None,
    grow: bool = False,
) -> Lattice:
    """The contexts that RCMS selects, with the scores of all edges and the forward sums.

    From each column's contexts, each followed by every action, the sizes[c] of the largest mass
    so far become the contexts of the next column, beside ⋆…⋆; all others go into the longest of
    these that is a suffix of them. The last column of an example always has ⋆…⋆ only.

    `memory`: how many symbols a context can remember; `escape`: added to the scores of what
    follows ⋆…⋆; `anchored`: only contexts that remember everything are chosen, as in beam search;
    `by`: whether contexts are chosen by their mass, that of what spells the `targets`, or both;
    `grow`: whether histories that have no weights yet get some, of 0. Where histories share rows
    (see `Ties`) and new ones turn up, all is done again with the rows that they have.

    Time: O(contexts · actions · log contexts) for each column, all of it compiled.
    """
    graph = (
        columns.firsts, columns.source_offsets, columns.sources, columns.first_actions,
        columns.end_actions, columns.inputs, columns.emission_rows, _checked_sizes(columns, sizes),
    )  # fmt: skip
    bound = _checked_memory(memory, histories)
    if by not in _BY:
        raise ArgumentError("by", f"must be one of {', '.join(_BY)}. Got {by!r:.80}")
    if (targets is None) != (by == "model"):
        raise ArgumentError("targets", "are needed by 'target' and 'hybrid', and by them only")
    emissions = checked_emissions(columns, emissions)
    rule = bound, float(escape), anchored, _BY[by]
    num_nodes, num_slots, num_edges, most_slots, most_elements = selection.bounds(
        graph, bound, histories.streams.num_actions, _BY[by]
    )
    features = histories.begins.size
    nodes, slots, edges = _empty(columns.size, num_nodes, num_slots, num_edges, features)
    aims = _aims(columns, targets, num_nodes)
    most_sources = int(np.diff(columns.source_offsets).max(initial=1))
    with histories.guard:
        while True:
            selection.select(
                graph, histories.arrays, histories.growth(grow), emissions, rule, aims, nodes,
                slots, edges, (most_slots, most_elements, most_sources),
            )  # fmt: skip
            if histories.is_full:
                histories.enlarge()
            elif not histories.settle(nodes[-1][: nodes[0][-1]], nodes[1:5], grow=grow):
                return _lattice(columns, nodes, slots, edges)


def _empty(
    num_columns: int, num_nodes: int, num_slots: int, num_edges: int, features: int
) -> tuple[tuple[Any, ...], ...]:
    """Room for contexts, slots and edges, as the kernel takes it."""
    node_offsets, slot_offsets, edge_offsets = (
        np.zeros(num_columns + 1, np.int64) for _ in range(3)
    )
    parents, symbols, lens, columns, lcs = (np.empty(num_nodes, np.int32) for _ in range(5))
    is_anchored, forward = np.empty(num_nodes, np.bool_), np.empty(num_nodes)
    history = np.empty((num_nodes, features), np.int32)
    return (
        (node_offsets, parents, symbols, lens, is_anchored, columns, lcs, forward, history),
        (slot_offsets, np.empty(num_slots, np.int32), np.empty((num_slots, features), np.int64)),
        (edge_offsets, np.empty(num_edges, np.int32), np.empty(num_edges)),
    )


def _lattice(
    columns: Columns, nodes: tuple[Any, ...], slots: tuple[Any, ...], edges: tuple[Any, ...]
) -> Lattice:
    """What the kernel has filled, without the room that is left."""
    node_offsets, parents, symbols, lens, is_anchored, _, _, forward, _ = nodes
    slot_offsets, slot_nodes, slot_rows = slots
    edge_offsets, edge_targets, scores = edges
    num_nodes, num_slots, num_edges = node_offsets[-1], slot_offsets[-1], edge_offsets[-1]
    return Lattice(
        columns=columns,
        node_offsets=node_offsets,
        parents=parents[:num_nodes],
        symbols=symbols[:num_nodes],
        lens=lens[:num_nodes],
        is_anchored=is_anchored[:num_nodes],
        forward=forward[:num_nodes],
        slot_offsets=slot_offsets,
        slot_nodes=slot_nodes[:num_slots],
        slot_rows=slot_rows[:num_slots],
        edge_offsets=edge_offsets,
        edge_targets=edge_targets[:num_edges],
        scores=scores[:num_edges],
    )


def _aims(columns: Columns, targets: Targets | None, num_nodes: int) -> tuple[Any, ...]:
    """The targets as the kernel takes them, and room for the mass of what spells them."""
    if targets is None:
        none = np.zeros(0, np.int32)
        return none, none, np.zeros(1, np.int64), np.zeros((2, 0), np.int64), np.empty((0, 1))
    ranges, width = written_ranges(columns, targets)
    room = np.empty((num_nodes, width))
    return targets.symbols, targets.strings, targets.offsets, ranges, room


def _checked_sizes(columns: Columns, sizes: NDArray[Any] | int) -> Numbers:
    """The size of each column, 0 for the last of each example: [c]."""
    array = np.asarray(sizes)
    if array.dtype.kind not in "iu" or array.shape not in ((), (columns.size,)):
        raise ArgumentError(
            "sizes",
            f"must be an integer, or integers [{columns.size}]. "
            f"Got {array.dtype} {list(array.shape)}",
        )
    given = np.broadcast_to(array.astype(np.int64), (columns.size,)).copy()
    given[columns.firsts[1:] - 1] = 0
    if (given < 0).any():
        raise ArgumentError("sizes", f"must be at least 0. Got {int(given.min())}")
    return given


def _checked_memory(memory: int | None, histories: Histories) -> int:
    if memory is None:
        return UNBOUNDED
    streams = histories.streams
    # Where a stream shows all actions, what is forgotten must not be among the last it shows.
    lengths = np.where(streams.lengths, np.arange(streams.depth + 1), 0).max(1, initial=0)
    silent = (streams.symbols < 0).any(1)
    least = max(int(lengths[~silent].max(initial=0)), 1)
    if memory < least:
        raise ArgumentError(
            "memory",
            f"must be at least {least}, as long as the longest history that has "
            f"weights. Got {memory}",
        )
    return memory
