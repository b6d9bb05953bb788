"""The lattice of a chain's contexts: as a forest, and from what the selection kernel found."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import ArgumentError
from inout._core.tracing import numbers
from inout.forest.assembly import assemble
from inout.forest.labels import BlockLabels
from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.lattice.op import Lattice


class ChainEdges:
    """The edges of a kernel's lattice of chains, as places in [b n c s]."""

    def __init__(self, lattice: Lattice) -> None:
        columns = lattice.columns
        sizes = np.diff(columns.firsts)
        example = np.repeat(np.arange(len(sizes)), sizes)
        position = np.arange(columns.size) - columns.firsts[:-1][example] - 1  # -1: no label
        ends = columns.first_actions > 0
        has_end = bool(ends.any())
        last = position == sizes[example] - 2
        fits = (
            (np.diff(columns.source_offsets) == (position >= 0)).all()
            and (columns.sources == np.flatnonzero(position >= 0) - 1).all()
            and not (ends & ~last).any()
            and (not has_end or ends[last & (position >= 0)].all())
        )
        labels = np.unique((columns.end_actions - columns.first_actions)[(position >= 0) & ~ends])
        if not fits or len(labels) > 1:
            raise ArgumentError("lattice", "must be one of chains: of Columns.chains")
        self.lengths = (sizes - 1 - has_end).astype(np.int64)
        widths = np.diff(lattice.node_offsets)
        self.shape = (
            len(sizes),
            int(self.lengths.max(initial=0)),
            int(widths.max(initial=1)),
            int(labels[0]) if len(labels) else 1,
        )
        column = np.repeat(np.arange(columns.size), np.diff(lattice.edge_offsets))
        self.numbers: NDArray[np.int64] = np.flatnonzero(~ends[column])
        here = column[self.numbers]
        place = self.numbers - lattice.edge_offsets[here]
        s = self.shape[3]
        self.places = [example[here], position[here], place // s, place % s]
        nodes = lattice.edge_targets[self.numbers].astype(np.int64)
        self.targets: NDArray[np.int64] = nodes - lattice.node_offsets[here]
        # After the last label: the edge to the end, -1 where another label follows.
        self.endings: NDArray[np.int64] | None = None
        if has_end:
            after = np.minimum(here + 1, columns.size - 1)
            ending = lattice.edge_offsets[after] + self.targets
            self.endings = np.where(ends[after], ending, -1)


class ChainLattice:
    """The forest of a chain's contexts, with an edge for each (position, context, label).

    Its items are the potentials that are used, and alpha(element, i, k): the labels up to
    position i, where they lead to context k. The edges of a derivation come from the last
    position to the first.
    """

    def __init__(self, size: tuple[int, int, int, int], successors: Tensor, lengths: Tensor):
        b, n, c, s = self.size = size
        if b * (n * c * (s + 1) + 1) >= 2**31:
            wanted = ": a chain must have less than 2^31 potentials"
            raise ArgumentError("successors", f"{wanted}. Got {list(size)}")
        self.lengths: NDArray[np.int64] = numbers(lengths).reshape(b)
        table: NDArray[np.int64] = numbers(successors).reshape(-1)
        names = BlockLabels({"log_potentials": size, "alpha": (b, n, c), "goal": (b,)})
        goals = names.numbers("goal")
        fields = assemble(*self._edges(table, goals), {}, np.arange(b * n * c * s), goals, names)
        self.arrays: ForestArrays = fields["arrays"]
        self.names: Sequence[Hashable] = fields["labels"]
        self.axiom_rows: NDArray[np.int64] = numbers(fields["axiom_rows"])
        self.successors = self._checked(table)
        self._edge_labels = np.zeros(self.arrays.num_edges, np.int64)
        some = np.diff(self.arrays.tail_offsets) > 0  # all but those of elements without labels
        leaves = self.arrays.tails[self.arrays.tail_offsets[1:][some] - 1]
        self._edge_labels[some] = self.axiom_rows[leaves] % s

    def _edges(
        self, successors: NDArray[np.int64], goals: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
        """(heads, tail_offsets, tails) of all edges."""
        b, n, c, s = self.size
        real = np.arange(n) < self.lengths[:, None]
        # Only context 0 is a beginning. The rest that is never reached drops out by itself.
        exists = real[:, :, None] & ((np.arange(n) > 0)[:, None] | (np.arange(c) == 0))
        row = np.flatnonzero(np.repeat(exists.reshape(-1), s))
        context = row // s
        position, element = context // c % n, context // (c * n)
        alphas = b * n * c * s
        # Contexts that are never reached may have any successors: they are checked later on.
        after = alphas + context // c * c + successors[row].clip(0, c - 1)
        heads = np.where(position == self.lengths[element] - 1, goals[element], after)
        # An element without positions has one derivation, of nothing.
        empty = goals[self.lengths == 0]
        inner = position > 0
        arity = np.concatenate([1 + inner, np.zeros(len(empty), np.int64)])
        offsets = np.concatenate([[0], np.cumsum(arity)]).astype(np.int64)
        tails = np.empty(offsets[-1], np.int32)
        tails[offsets[1 : 1 + len(row)] - 1] = row
        tails[offsets[: len(row)][inner]] = alphas + context[inner] - c
        return np.concatenate([heads, empty]).astype(np.int32), offsets, tails

    def _checked(self, successors: NDArray[np.int64]) -> NDArray[np.int64]:
        """The successors that matter, by axiom (0 for those of a last label)."""
        _, n, c, s = self.size
        own = successors[self.axiom_rows]
        place = self.axiom_rows // (c * s)
        last = place % max(n, 1) == self.lengths[place // max(n, 1)] - 1
        own = np.where(last, 0, own)
        if len(own) and not (own.min() >= 0 and own.max() < c):
            wanted = f"must be in 0..{c - 1}"
            raise ArgumentError("successors", f"{wanted}. Got {own.min()}..{own.max()}")
        return own

    @property
    def num_derived(self) -> int:
        return self.arrays.num_items - self.arrays.num_axioms

    def equals(self, other: ChainLattice) -> bool:
        """Whether the same contexts follow the same labels everywhere."""
        return np.array_equal(self.axiom_rows, other.axiom_rows) and np.array_equal(
            self.successors, other.successors
        )

    def labels_of(self, edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """Labels [m n] of derivations given as their edges [m n]."""
        return self._edge_labels[edges[:, ::-1]]
