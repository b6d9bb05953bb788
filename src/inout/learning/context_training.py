"""`Training`: a context model in training, the steps of its `Worker`s, and its reports."""

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
from inout.learning.hogwild import Hogwild, Steps, shared_out

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

    def adagrad(self, how: Hogwild) -> ContextModel:
        """One step per example, by one thread or several."""
        count = len(self.seen.lengths)
        squares = Squares(np.zeros_like(self.model.emission))
        steps = how.steps(self.model.histories, self.generator)
        workers = [Worker(self, squares, one) for one in steps]
        for epoch in range(self.epochs):
            order, done = torch.randperm(count, generator=self.generator).tolist(), 0
            while done < count:
                until = min(done + self.every - self.examples % self.every, count)
                for likelihood, length in shared_out(workers, order[done:until]):
                    self.note(likelihood, length)
                done = until
                self.report(epoch)
        return self.model

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


@dataclass(eq=False)
class Squares:
    """The sums of squared gradients of the weights that are not of histories."""

    emission: NDArray[np.float64]
    escape: float = 0.0


class Worker:
    """Takes steps on the weights of a model in training, which others may be changing too."""

    def __init__(self, training: Training, squares: Squares, steps: Steps) -> None:
        self._training, self._squares, self._steps = training, squares, steps
        self._gradient = np.zeros_like(squares.emission)
        self._columns: dict[int, Columns] = {}
        model = training.model
        # All selected histories get weights, or those that steps change: always the latter where
        # threads add to the table. Functions can only be asked about all.
        steps_decide = steps.how.threads > 1 or bool(steps.how.truncate)
        self._grow = not steps_decide or bool(model.history_features)

    def __call__(self, b: int) -> tuple[float, float]:
        """A step for example b: the log-likelihood before it, and the length of its contexts."""
        seen, weights = self._training.seen, self._training.model.emission
        first, length = int(seen.starts[b]), int(seen.lengths[b])
        emissions = np.empty((length, weights.shape[1]))
        observed.scores(seen.offsets, seen.indices, seen.values, first, weights, emissions)
        lattice, slopes, positions, likelihood = self._slopes(b, emissions)
        positions = positions[:, : weights.shape[1]]
        observed.add_gradient(
            seen.offsets, seen.indices, seen.values, first, positions, self._gradient
        )
        how = self._steps.how
        observed.adagrad(
            seen.offsets, seen.indices, first, length, weights, self._gradient,
            self._squares.emission, how.step, how.delta,
        )  # fmt: skip
        self._steps.take()
        if self._training.learn_escape:
            self._escape(float(slopes[lattice.lens[lattice.edge_sources] == 0].sum()))
        return likelihood, float(lattice.mean_lengths[0])

    def _slopes(self, b: int, emissions: Vector) -> tuple[Lattice, Vector, Vector, float]:
        """A lattice, the gradient in its edges, that in the emissions, and the log-likelihood.

        The gradient in the weights of histories is added up for the next step.
        """
        model, target = self._training.model, self._training.targets.part(b, b + 1)
        key = -1 - b if model.settings.neighbours else len(emissions)
        columns = self._columns.get(key)
        if columns is None:
            columns = self._columns[key] = model.columns(self._training.seen.part(b, b + 1))
        lattice = model.lattice(columns, emissions, grow=self._grow)
        wanted = lattice.constrained(target)
        likelihood = float(lattice.log_shares(wanted.log_partition)[0])
        slopes = self._added(lattice, wanted.posteriors - lattice.posteriors)
        positions = lattice.emission_counts(slopes)
        if likelihood == -np.inf:
            alone = model.lattice(
                columns, emissions, 1, by="target", targets=target, grow=self._grow
            )
            own = self._added(alone, alone.constrained(target).posteriors)
            positions += alone.emission_counts(own)
        return lattice, slopes, positions, likelihood

    def _added(self, lattice: Lattice, slopes: Vector) -> Vector:
        return self._steps.add(lattice, slopes, grow=not self._grow)

    def _escape(self, slope: float) -> None:
        """A step on the escape weight."""
        if slope:
            how, model = self._steps.how, self._training.model
            self._squares.escape += slope * slope
            change = how.step * slope / (how.delta + np.sqrt(self._squares.escape))
            self._training.model = replace(model, escape=model.escape + change)


def refuse_divergence(*weights: Vector) -> None:
    """Raise if weights are no longer finite."""
    if not all(np.isfinite(some).all() for some in weights):
        wanted = "training must keep weights finite"
        raise TrainingError(f"{wanted}. Got others; take smaller steps, or scale features down")
