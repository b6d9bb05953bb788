"""`FixedContexts`: log Z of sequences as a function of emissions, in contexts that stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import as_log_weights
from inout.kernels.autograd import differentiable_log_partition, tangents_by
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice

Vector: TypeAlias = NDArray[np.float64]


class FixedContexts:
    """The log of the sum over all labellings of each of many sequences.

    Called with log emissions [s v] as one vector [p] it gives log Z [b]. The gradient is the
    expected counts; second derivatives are those of plain torch code, and as slow as it is.
    """

    def __init__(
        self, lattices: Sequence[Lattice], histories: Histories, shape: Sequence[int], escape: float
    ) -> None:
        self.labels, self.symbols = shape
        self.escape = escape
        self.lattices = [
            lattice.rescored(_without_emissions(lattice, histories, escape)) for lattice in lattices
        ]

    def __call__(self, log_weights: Float[Tensor, " p"]) -> Float[Tensor, " b"]:
        given = as_log_weights("log_weights", log_weights, self.labels * self.symbols)
        given = given.cpu().double()
        passes = _Passes(self, given)
        return differentiable_log_partition(lambda *_: passes, passes.twin, given)


class _Passes:
    """The lattices at one setting of the emissions, for `differentiable_log_partition`."""

    def __init__(self, fixed: FixedContexts, log_weights: Tensor) -> None:
        self.fixed = fixed
        self.log_weights = log_weights.detach()
        emissions = self.log_weights.numpy().reshape(fixed.labels, fixed.symbols).T
        self.lattices = [_with_emissions(lattice, emissions) for lattice in fixed.lattices]

    @property
    def log_z(self) -> Tensor:
        found = [lattice.log_partition for lattice in self.lattices]
        return torch.from_numpy(np.concatenate([np.zeros(0), *found]))

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        factors = weights.detach().double().numpy()
        counts = np.zeros((self.fixed.symbols, self.fixed.labels))
        first = 0
        for lattice in self.lattices:
            firsts = lattice.columns.firsts
            own = factors[first : first + len(firsts) - 1]
            first += len(own)
            edges = np.diff(lattice.edge_offsets[firsts])
            shares = lattice.posteriors * np.repeat(own, edges)
            add_counts(lattice, shares, counts)
        return (torch.from_numpy(np.ascontiguousarray(counts.T).reshape(-1)),)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tangents_by(self.twin, weights, (self.log_weights,), directions)

    def twin(self, log_weights: Tensor) -> Tensor:
        """log Z by code that torch can differentiate to any order."""
        emissions = log_weights.reshape(self.fixed.labels, self.fixed.symbols).T
        found = [_reference(lattice, emissions) for lattice in self.fixed.lattices]
        return torch.cat([log_weights.new_empty(0), *found])


def add_counts(lattice: Lattice, edge_weights: Vector, counts: Float[np.ndarray, "v s"]) -> None:
    """Add the weights of edges to the counts of their emission rows and labels."""
    found = lattice.emission_counts(edge_weights)
    # It ends with the last row and the last action that occur; the latter may be the end.
    labels = min(found.shape[1], counts.shape[1])
    counts[: len(found), :labels] += found[:, :labels]


def _blocks(lattice: Lattice) -> list[tuple[int, slice, slice]]:
    """The columns that have edges: number, their slots, their edges."""
    slots, edges = lattice.slot_offsets.tolist(), lattice.edge_offsets.tolist()
    return [
        (c, slice(slots[c], slots[c + 1]), slice(edges[c], edges[c + 1]))
        for c in range(lattice.columns.size)
        if edges[c] < edges[c + 1]
    ]


def _without_emissions(lattice: Lattice, histories: Histories, escape: float) -> Vector:
    """What the language model and the escape alone give to each edge."""
    width = histories.streams.num_actions
    rows = histories.weights.reshape(-1, width)
    # The longest history that has a row is the only one that has a place here.
    numbers = lattice.slot_rows.max(1) // width
    scores = np.empty_like(lattice.scores)
    for c, slots, edges in _blocks(lattice):
        actions = slice(lattice.columns.first_actions[c], lattice.columns.end_actions[c])
        own = rows[numbers[slots], actions]
        is_open = lattice.lens[lattice.slot_nodes[slots]] == 0
        own[is_open] += escape
        scores[edges] = own.reshape(-1)
    return scores


def _with_emissions(lattice: Lattice, emissions: Vector) -> Lattice:
    """The lattice with the emissions [v s] added to its scores."""
    scores = lattice.scores.copy()
    for c, _, edges in _blocks(lattice):
        row = lattice.columns.emission_rows[c]
        if row >= 0:
            scores[edges].reshape(-1, emissions.shape[1])[:] += emissions[row]
    return lattice.rescored(scores)


def _reference(lattice: Lattice, emissions: Float[Tensor, "v s"]) -> Float[Tensor, " b"]:
    """log Z in plain torch code, column by column."""
    values: list[Tensor] = []  # of each context so far
    starts = set(lattice.columns.firsts[:-1].tolist())
    blocks = {c: (slots, edges) for c, slots, edges in _blocks(lattice)}
    scores = torch.from_numpy(lattice.scores)
    for c in range(lattice.columns.size):
        if c in starts:
            values.append(emissions.new_zeros(()))
            continue
        slots, edges = blocks[c]
        before = torch.stack([values[v] for v in lattice.slot_nodes[slots].tolist()])
        terms = scores[edges].reshape(len(before), -1) + before[:, None]
        if lattice.columns.emission_rows[c] >= 0:
            terms = terms + emissions[int(lattice.columns.emission_rows[c])]
        into = torch.from_numpy(lattice.edge_targets[edges])
        terms = terms.reshape(-1)
        for v in range(int(lattice.node_offsets[c]), int(lattice.node_offsets[c + 1])):
            own = terms[(into == v) & (terms.detach() > -torch.inf)]
            values.append(own.logsumexp(0) if len(own) else terms.new_full((), -torch.inf))
    return torch.stack([values[v] for v in lattice.ends.tolist()])
