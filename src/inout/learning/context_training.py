"""`Training`: a context model in training, its AdaGrad steps and its reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from inout._core.errors import TrainingError
from inout.contexts.model import ContextModel
from inout.contexts.observations import Observations
from inout.kernels.lattice.arrays import Columns, Targets
from inout.kernels.lattice.cpu import observations as observed
from inout.kernels.lattice.op import Lattice

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Passed:
    """A progress report of training."""

    epoch: int
    epochs: int
    examples: int  # seen so far, in all
    log_likelihood: float  # of the examples since the last report, on average
    context_length: float  # of the same: how many labels contexts remember, on average by mass
    missing: int  # how many of them had no path that spells their labels


After = Callable[[Passed, ContextModel], None]


@dataclass(eq=False)
class Training:
    """A model in training, the data, and what was seen since the last report."""

    model: ContextModel
    seen: Observations
    targets: Targets
    learn_escape: bool
    epochs: int
    generator: torch.Generator
    every: int
    after: After | None
    examples: int = 0
    _likelihood: float = 0.0
    _length: float = 0.0
    _since: int = 0
    _missing: int = 0

    def adagrad(self, step: float, delta: float) -> ContextModel:
        """One step per example."""
        model, seen = self.model, self.seen
        weights, histories = model.emission, model.histories
        gradient, squares = np.zeros_like(weights), np.zeros_like(weights)
        escape_square = 0.0
        columns: dict[int, Columns] = {}
        for epoch in range(self.epochs):
            for b in torch.randperm(len(seen.lengths), generator=self.generator).tolist():
                first, length = int(seen.starts[b]), int(seen.lengths[b])
                own = columns.get(length)
                if own is None:
                    own = columns[length] = model.columns(seen.lengths[b : b + 1])
                emissions = np.empty((length, weights.shape[1]))
                observed.scores(seen.offsets, seen.indices, seen.values, first, weights, emissions)
                target = self.targets.part(b, b + 1)
                lattice, slopes, positions = self.slopes(own, emissions, target)
                positions = positions[:, : weights.shape[1]]
                observed.add_gradient(
                    seen.offsets, seen.indices, seen.values, first, positions, gradient
                )
                observed.adagrad(
                    seen.offsets, seen.indices, first, length, weights, gradient, squares, step,
                    delta,
                )  # fmt: skip
                histories.adagrad(step, delta)
                if self.learn_escape:
                    slope = float(slopes[lattice.lens[lattice.edge_sources] == 0].sum())
                    if slope:
                        escape_square += slope * slope
                        escape = model.escape + step * slope / (delta + np.sqrt(escape_square))
                        self.model = model = replace(model, escape=escape)
                self.report(epoch)
        return self.model

    def slopes(
        self, columns: Columns, emissions: Vector, target: Targets
    ) -> tuple[Lattice, Vector, Vector]:
        """A lattice, the gradient in its edges, and that in the emissions.

        The gradient in the weights of histories is added up where they are.
        """
        model, histories = self.model, self.model.histories
        lattice = model.lattice(columns, emissions, grow=True)
        wanted = lattice.constrained(target)
        likelihood = float(lattice.log_shares(wanted.log_partition)[0])
        self.note(likelihood, float(lattice.mean_lengths[0]))
        slopes = wanted.posteriors - lattice.posteriors
        histories.add_gradient(lattice, slopes)
        positions = lattice.emission_counts(slopes)
        if wanted.log_partition[0] == -np.inf:
            alone = model.lattice(columns, emissions, 1, by="target", targets=target, grow=True)
            own = alone.constrained(target).posteriors
            histories.add_gradient(alone, own)
            positions += alone.emission_counts(own)
        return lattice, slopes, positions

    def note(self, likelihood: float, length: float) -> None:
        """Add an example to the next report."""
        self.examples += 1
        self._since += 1
        if likelihood == -np.inf:
            self._missing += 1
        else:
            self._likelihood += likelihood
        self._length += length

    def report(self, epoch: int) -> None:
        """Send the report, if it is due."""
        is_end = self.examples % len(self.seen.lengths) == 0
        if self.examples % self.every and not is_end:
            return
        if is_end:
            refuse_divergence(self.model.emission, self.model.histories.weights)
        if self.after is not None and self._since:
            found = max(self._since - self._missing, 1)
            self.after(
                Passed(
                    epoch, self.epochs, self.examples, self._likelihood / found,
                    self._length / self._since, self._missing,
                ),
                self.model,
            )  # fmt: skip
        self._likelihood = self._length = 0.0
        self._since = self._missing = 0


def refuse_divergence(*weights: Vector) -> None:
    """Raise if weights are no longer finite."""
    if not all(np.isfinite(some).all() for some in weights):
        wanted = "training must keep weights finite"
        raise TrainingError(f"{wanted}. Got others; take smaller steps, or scale features down")
