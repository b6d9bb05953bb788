"""Context models by L-BFGS: contexts are selected for all data, then all weights optimised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.contexts.model import ContextModel
from inout.contexts.observations import Observations
from inout.kernels.lattice.arrays import Targets
from inout.kernels.lattice.cpu import observations as observed
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice
from inout.learning.conditional import fit_conditional
from inout.learning.context_training import Training

Vector = NDArray[np.float64]

_ITERATIONS = 30  # with the same contexts
_TOGETHER = 512  # sequences in one lattice


@dataclass(frozen=True, eq=False)
class BatchContexts:
    """log Z of all sequences as a function of the weights, the contexts being fixed.

    The weights are one vector: those of histories, those of features of the input with each
    label, and the escape weight if it is learned.
    """

    histories: Histories
    emission_shape: tuple[int, int]
    escape: float | None  # None: the last weight
    parts: Sequence[tuple[Observations, Lattice]]

    @staticmethod
    def selected(model: ContextModel, seen: Observations, learn_escape: bool) -> BatchContexts:
        """The contexts that a model selects for sequences."""
        count = len(seen.lengths)
        parts = [
            seen.part(first, min(first + _TOGETHER, count)) for first in range(0, count, _TOGETHER)
        ]
        return BatchContexts(
            model.histories,
            (len(model.features), len(model.labels)),
            None if learn_escape else model.escape,
            [(part, model.select(part, grow=True)) for part in parts],
        )

    def split(self, weights: Vector) -> tuple[Vector, Vector, float]:
        """(of histories, of features [d s], of the escape)."""
        size = self.histories.num_weights
        rows, columns = self.emission_shape
        emission = weights[size : size + rows * columns].reshape(rows, columns)
        return weights[:size], emission, self.escape if self.escape is not None else weights[-1]

    def joined(self, model: ContextModel) -> Vector:
        last = [] if self.escape is not None else [model.escape]
        return np.concatenate([self.histories.weights, model.emission.ravel(), last])

    def lattices(self, weights: Vector) -> list[Lattice]:
        own, emission, escape = self.split(weights)
        found = []
        for seen, lattice in self.parts:
            scores = np.empty((int(seen.starts[-1]), emission.shape[1]))
            observed.scores(seen.offsets, seen.indices, seen.values, 0, emission, scores)
            found.append(lattice.reweighted(self.histories, own, scores, escape))
        return found

    def counts(self, lattices: Sequence[Lattice], edge_weights: Sequence[Vector]) -> Vector:
        """The weights of edges added up for each weight: the transpose of scoring."""
        own = np.zeros(self.histories.num_weights)
        emission = np.zeros(self.emission_shape)
        escaped = 0.0
        for (seen, _), lattice, edges in zip(self.parts, lattices, edge_weights, strict=True):
            own += self.histories.counts(lattice, edges)
            positions = lattice.emission_counts(edges)[:, : emission.shape[1]]
            observed.add_gradient(
                seen.offsets,
                seen.indices,
                seen.values,
                0,
                np.ascontiguousarray(positions),
                emission,
            )
            escaped += float(edges[lattice.lens[lattice.edge_sources] == 0].sum())
        last = [] if self.escape is not None else [escaped]
        return np.concatenate([own, emission.ravel(), last])

    def log_partition(self, weights: Tensor) -> Tensor:
        """log Z of each sequence: [b]; differentiable once."""
        return _LogPartition.apply(weights, self)  # type: ignore[no-any-return, no-untyped-call]

    def observed(self, targets: Targets) -> Vector:
        """How often the labels of the data use each weight."""
        lattices = [lattice for _, lattice in self.parts]
        found = [
            lattice.constrained(targets.part(first, last)).posteriors
            for lattice, first, last in _ranges(lattices)
        ]
        return self.counts(lattices, found)


def _ranges(lattices: Sequence[Lattice]) -> Iterator[tuple[Lattice, int, int]]:
    """Each lattice with the range of its examples."""
    last = 0
    for lattice in lattices:
        first, last = last, last + lattice.columns.num_examples
        yield lattice, first, last


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, contexts: BatchContexts) -> Tensor:
        lattices = contexts.lattices(weights.detach().numpy())
        ctx.kept = contexts, lattices
        return torch.from_numpy(np.concatenate([lattice.log_partition for lattice in lattices]))

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        contexts, lattices = ctx.kept
        scales, weighted = slopes[0].numpy(), []
        for lattice, first, last in _ranges(lattices):
            edges = np.diff(lattice.edge_offsets[lattice.columns.firsts])
            weighted.append(lattice.posteriors * np.repeat(scales[first:last], edges))
        return torch.from_numpy(contexts.counts(lattices, weighted)), None


def fit_lbfgs(training: Training, l2: float) -> ContextModel:
    """In each epoch contexts are selected, then the weights are optimised with these contexts."""
    if training.model.escape == -np.inf:
        why = "it needs contexts that cover everything"
        raise ArgumentError("learn_escape", f"must be True for lbfgs with a beam: {why}")
    for epoch in range(training.epochs):
        model = training.model
        contexts = BatchContexts.selected(model, training.seen, training.learn_escape)
        counts = contexts.observed(training.targets)
        found = fit_conditional(
            contexts.log_partition,
            counts,
            initial=contexts.joined(model),
            l2=l2,
            max_iterations=_ITERATIONS,
        )
        own, emission, escape = contexts.split(found.log_weights.numpy())
        model.histories.weights[:] = own
        training.model = replace(model, emission=emission.copy(), escape=float(escape))
        likelihood = found.log_likelihood / len(training.seen.lengths)
        for _, lattice in contexts.parts:
            for length in lattice.mean_lengths:
                training.note(likelihood, float(length))
        training.report(epoch)
    return training.model
