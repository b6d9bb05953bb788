"""`Lattice`: all questions about contexts that were selected."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import at_least
from inout._core.errors import ArgumentError
from inout._core.lazy import lazy_property
from inout.kernels.lattice.arrays import (
    Columns,
    Integers,
    Numbers,
    Paths,
    Slots,
    Strings,
    Targets,
    Vector,
    Writing,
    checked_emissions,
)
from inout.kernels.lattice.cpu import inference as passes
from inout.kernels.lattice.cpu import scoring
from inout.kernels.lattice.cpu import targets as writing
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.ties import LOCK


@dataclass(frozen=True, eq=False)
class Constrained:
    """The paths of a lattice that write given targets."""

    log_partition: Vector  # [b], -inf where there is none
    posteriors: Vector  # [e]: of each edge, given the target


@dataclass(frozen=True, eq=False)
class Lattice:
    """The contexts that were selected, and the edges between them.

    The contexts of column c are node_offsets[c] to node_offsets[c+1], in lexicographic order, the
    last one being ⋆…⋆. A slot is a context of a source of a column, once for each column that it
    leads to; the edges of column c are its slots × its actions, in this order: edge_offsets[c] +
    (slot - slot_offsets[c]) · actions + (action - first action).
    """

    columns: Columns
    node_offsets: Numbers  # [c+1]
    parents: Integers  # [v]: the context that a context continues
    symbols: Integers  # [v]: by which action; num_actions: the beginning; num_actions + 1: ⋆
    lens: Integers  # [v]: how many symbols it remembers, the beginning being one
    is_anchored: NDArray[np.bool_]  # [v]: whether it remembers everything
    forward: Vector  # [v]
    slot_offsets: Numbers  # [c+1]
    slot_nodes: Integers  # [l]
    slot_rows: Numbers  # [l f]: where the weights of its features begin
    edge_offsets: Numbers  # [c+1]
    edge_targets: Integers  # [e]
    scores: Vector  # [e]

    @lazy_property
    def _paths(self) -> Paths:
        return Paths(
            self.columns.firsts, self.node_offsets, self.slot_offsets, self.slot_nodes,
            self.edge_offsets, self.edge_targets,
            (self.columns.end_actions - self.columns.first_actions).astype(np.int64),
        )  # fmt: skip

    @property
    def slots(self) -> Slots:
        """The slots, as the kernels take them."""
        return Slots(self.slot_offsets, self.slot_nodes, self.slot_rows)

    @property
    def ends(self) -> Numbers:
        """The last context of each example: [b]."""
        return self.node_offsets[self.columns.firsts[1:]] - 1

    @property
    def log_partition(self) -> Vector:
        """log Z of each example: [b]."""
        return self.forward[self.ends]

    @property
    def lengths(self) -> Integers:
        """How many actions each context remembers: [v]."""
        return self.lens - self.is_anchored

    @lazy_property
    def _behind(self) -> tuple[Vector, Vector, Vector]:
        values, mass = np.empty(len(self.parents)), np.empty(len(self.parents))
        posteriors = np.empty(len(self.scores))
        passes.backward(self._paths, self.scores, values, mass, posteriors)
        return values, mass, posteriors

    @property
    def backward(self) -> Vector:
        """log of the sum over all paths from each context to the end: [v]."""
        return self._behind[0]

    @property
    def posteriors(self) -> Vector:
        """The probability of each edge: [e]; 0 where log Z is -inf."""
        return self._behind[2]

    @property
    def mass(self) -> Vector:
        """The probability of each context: [v]; 0 where log Z is -inf."""
        return self._behind[1]

    @lazy_property
    def mean_lengths(self) -> Vector:
        """How many actions contexts remember, on average by their mass: [b].

        Of the contexts that something follows and precedes: neither the beginning nor the end.
        """
        inner = self.mass.copy()
        inner[self.node_offsets[self.columns.firsts[:-1]]] = inner[self.ends] = 0.0
        firsts = self.node_offsets[self.columns.firsts[:-1]]
        totals = np.add.reduceat(inner, firsts)
        sums = np.add.reduceat(inner * self.lengths, firsts)
        return np.asarray(sums / np.where(totals > 0, totals, 1.0))

    def log_shares(self, parts: Vector) -> Vector:
        """log of the share that some paths of each example, summing to `parts`, have: [b]."""
        possible = parts > -np.inf
        whole = np.where(possible, self.log_partition, 0.0)
        return np.asarray(np.where(possible, np.minimum(parts - whole, 0.0), -np.inf))

    def constrained(self, targets: Targets) -> Constrained:
        """The paths that write the target of each example."""
        log_z, posteriors = np.empty(self.columns.num_examples), np.empty(len(self.scores))
        writing.constrained(self._writing(targets), self.scores, log_z, posteriors)
        return Constrained(log_z, posteriors)

    def _writing(self, targets: Targets) -> Writing:
        """What the passes over (context, written symbols) take."""
        (lows, highs), width = written_ranges(self.columns, targets)
        return Writing(self._paths, self.columns, targets, lows, highs, width)

    def rescored(self, scores: Vector) -> Lattice:
        """The same contexts with other scores of the edges: [e]."""
        scores = np.ascontiguousarray(scores, np.float64)
        if scores.shape != self.scores.shape:
            raise ArgumentError(
                "scores", f"must be {list(self.scores.shape)}. Got {list(scores.shape)}"
            )
        values = np.empty(len(self.parents))
        passes.forward(self._paths, scores, values)
        return replace(self, scores=scores, forward=values)

    def reweighted(
        self,
        histories: Histories,
        weights: Vector,
        emissions: NDArray[np.float64] | None,
        escape: float = 0.0,
    ) -> Lattice:
        """The same contexts under other weights of the same histories, and other emissions."""
        columns, scores = self.columns, np.empty(len(self.scores))
        if weights.shape != (histories.num_weights,):
            raise ArgumentError(
                "weights", f"must be [{histories.num_weights}]. Got {list(weights.shape)}"
            )
        scoring.score_edges(
            columns, histories.streams.places, weights, checked_emissions(columns, emissions),
            float(escape), self.lens, self.slots, self.edge_offsets, scores,
        )  # fmt: skip
        return self.rescored(scores)

    def best(self) -> tuple[Numbers, Numbers, Vector]:
        """The edges of the best path of each example, where each begins [b+1], their scores [b].

        An example without any path has no edges, and the score -inf.
        """
        edges, offsets, scores = self.kbest(1)
        return edges, offsets, scores[:, 0]

    def kbest(self, k: int) -> tuple[Numbers, Numbers, NDArray[np.float64]]:
        """The edges of the k best paths of each example, where each begins [b·k+1], scores [b k].

        Where there are fewer paths the others have no edges, and the score -inf.
        """
        values = np.empty((len(self.parents), at_least("k", k, 1)))
        edges = np.empty(k * self.columns.size, np.int64)
        offsets = np.empty(k * self.columns.num_examples + 1, np.int64)
        passes.kbest(self._paths, self.scores, values, edges, offsets)
        return edges[: offsets[-1]], offsets, values[self.ends]

    def best_given(self, targets: Targets) -> tuple[Numbers, Numbers, Vector]:
        """The same among the paths that write the target of each example."""
        edges = np.empty(self.columns.size, np.int64)
        offsets = np.empty(self.columns.num_examples + 1, np.int64)
        scores = np.empty(self.columns.num_examples)
        writing.best_given(self._writing(targets), self.scores, edges, offsets, scores)
        return edges[: offsets[-1]], offsets, scores

    def actions(self, edges: Numbers) -> Numbers:
        """The action of each of some edges."""
        places = np.searchsorted(self.edge_offsets, edges, side="right") - 1
        sizes = self._paths.sizes[places]
        actions = self.columns.first_actions[places]
        return np.asarray(actions + (edges - self.edge_offsets[places]) % sizes, np.int64)

    def string(self, node: int) -> tuple[int, ...]:
        """The actions that a context remembers, from the oldest to the latest."""
        found: list[int] = []
        for _ in range(int(self.lengths[node])):
            found.append(int(self.symbols[node]))
            node = int(self.parents[node])
        return tuple(reversed(found))

    def emission_counts(self, edge_weights: Vector) -> NDArray[np.float64]:
        """The weights of edges added up by emission row and action: [rows, actions]."""
        rows = int(self.columns.emission_rows.max(initial=-1)) + 1
        counts = np.zeros((rows, int(self.columns.end_actions.max(initial=0))))
        passes.count_actions(
            self.edge_offsets, self.columns.first_actions, self._paths.sizes,
            self.columns.emission_rows, edge_weights, counts,
        )  # fmt: skip
        return counts

    @lazy_property
    def edge_sources(self) -> Integers:
        """The context that each edge begins at: [e]."""
        sizes = np.repeat(self._paths.sizes, np.diff(self.slot_offsets))
        return np.repeat(self.slot_nodes, sizes)


def written_ranges(columns: Columns, targets: Targets) -> tuple[Numbers, int]:
    """The least and the largest number of symbols written at each column: [2 c]; most choices."""
    actions = int(columns.end_actions.max(initial=0))
    if len(targets.offsets) != columns.num_examples + 1:
        raise ArgumentError(
            "targets", f"must have {columns.num_examples} strings. Got {len(targets.offsets) - 1}"
        )
    if len(targets.symbols) < actions:
        raise ArgumentError(
            "targets", f"must have symbols of {actions} actions. Got {len(targets.symbols)}"
        )
    ranges = np.zeros((2, columns.size), np.int64)
    width = writing.written(columns, targets, ranges[0], ranges[1])
    return ranges, int(width)


def grow_rows(histories: Histories, lattice: Lattice, edge_weights: Vector, least: float) -> None:
    """Give histories rows of zeros where an edge has a weight beyond ±least.

    For lattices that were selected without `grow`; their `slot_rows` are filled in, so that
    `Gradient.add` finds the new rows. What stays without a row has a gradient that is small, and
    is dropped: of the contexts that are selected nearly all have next to no mass, and rows for
    them all would need many times the memory. `truncated` does the same without bias.
    """
    columns = lattice.columns
    places = np.repeat(np.arange(columns.size), np.diff(lattice.node_offsets))
    strings = Strings(lattice.parents, lattice.symbols, lattice.lens, lattice.is_anchored, places)
    with LOCK:
        while True:
            scoring.grow_rows(
                columns, histories.features, strings, lattice.slots, lattice.edge_offsets,
                edge_weights, least,
            )  # fmt: skip
            if not histories.is_full:
                return
            histories.enlarge()
