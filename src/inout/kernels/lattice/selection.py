"""`select`: contexts chosen column by column, and the lattice that they form."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError
from inout.kernels.lattice.arrays import (
    Aims,
    Columns,
    Edges,
    Nodes,
    Numbers,
    Policy,
    Slots,
    Targets,
    checked_emissions,
)
from inout.kernels.lattice.cpu import selection
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice, written_ranges
from inout.kernels.limits import LATTICE_UNBOUNDED

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
    if by not in _BY:
        raise ArgumentError("by", f"must be one of {', '.join(_BY)}. Got {by!r:.80}")
    if (targets is None) != (by == "model"):
        raise ArgumentError("targets", "are needed by 'target' and 'hybrid', and by them only")
    emissions = checked_emissions(columns, emissions)
    policy = Policy(
        _checked_sizes(columns, sizes), _checked_memory(memory, histories), float(escape),
        anchored, _BY[by],
    )  # fmt: skip
    room = selection.bounds(columns, policy, histories.streams.num_actions)
    nodes, slots, edges = _empty(columns.size, room, histories.begins.size)
    aims = _aims(columns, targets, room.nodes)
    growth = histories.growth(grow)
    with histories.guard:
        while True:
            selection.select(
                columns, histories.features, growth, emissions, policy, aims, nodes, slots, edges,
                room,
            )  # fmt: skip
            # Without growth it may be another thread that finds no room.
            if growth.any() and histories.is_full:
                histories.enlarge()
            elif not histories.settle(nodes, slots, columns.inputs, grow=grow):
                return _lattice(columns, nodes, slots, edges)


def _empty(num_columns: int, room: selection.Bounds, features: int) -> tuple[Nodes, Slots, Edges]:
    """Room for contexts, slots and edges."""
    offsets = [np.zeros(num_columns + 1, np.int64) for _ in range(3)]
    parents, symbols, lens, places, lcs = (np.empty(room.nodes, np.int32) for _ in range(5))
    nodes = Nodes(
        offsets[0], parents, symbols, lens, np.empty(room.nodes, np.bool_), places, lcs,
        forward=np.empty(room.nodes), history=np.empty((room.nodes, features), np.int32),
    )  # fmt: skip
    rows = np.empty((room.slots, features), np.int64)
    slots = Slots(offsets[1], np.empty(room.slots, np.int32), rows)
    return nodes, slots, Edges(offsets[2], np.empty(room.edges, np.int32), np.empty(room.edges))


def _lattice(columns: Columns, nodes: Nodes, slots: Slots, edges: Edges) -> Lattice:
    """What the kernel has filled, without the room that is left."""
    num_nodes, num_slots, num_edges = nodes.offsets[-1], slots.offsets[-1], edges.offsets[-1]
    return Lattice(
        columns=columns,
        node_offsets=nodes.offsets,
        parents=nodes.parents[:num_nodes],
        symbols=nodes.symbols[:num_nodes],
        lens=nodes.lens[:num_nodes],
        is_anchored=nodes.is_anchored[:num_nodes],
        forward=nodes.forward[:num_nodes],
        slot_offsets=slots.offsets,
        slot_nodes=slots.nodes[:num_slots],
        slot_rows=slots.rows[:num_slots],
        edge_offsets=edges.offsets,
        edge_targets=edges.targets[:num_edges],
        scores=edges.scores[:num_edges],
    )


def _aims(columns: Columns, targets: Targets | None, num_nodes: int) -> Aims:
    """The targets, and room for the mass of what spells them."""
    if targets is None:
        none = np.zeros(0, np.int32)
        no_targets = Targets(none, none, np.zeros(1, np.int64))
        return Aims(no_targets, np.zeros((2, 0), np.int64), np.empty((0, 1)))
    ranges, width = written_ranges(columns, targets)
    return Aims(targets, ranges, np.empty((num_nodes, width)))


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
        return LATTICE_UNBOUNDED
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
