"""`fit_conditional`: conditional (CRF) training, in which log Z is a term of the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import as_log_weights, at_least, expect, expect_shape
from inout._core.errors import ArgumentError, TrainingError
from inout.learning.arguments import checked_array, checked_frequencies, checked_number
from inout.learning.checkpoint import Checkpoint, digest, discarded_if_refused
from inout.learning.expectation import ROUNDING
from inout.learning.model import LogPartitions
from inout.learning.progress import Callback, Clock, Course, check_progress, reporter

Method = Literal["lbfgs", "adam"]
# A rise that a step of L-BFGS must not miss: far more than rounding, relative to the objective.
_ASCENT = 1e-6
Numbers = Tensor | NDArray[np.float64] | Sequence[float]


@dataclass(frozen=True, slots=True)
class ConditionalResult(Course):
    """The result of conditional training."""

    log_weights: Float[Tensor, " p"]
    objectives: tuple[float, ...]  # at the beginning, then after each iteration
    log_likelihood: float  # conditional, without the penalty
    expected_counts: Float[Tensor, " p"]  # under the model
    gradient: Float[Tensor, " p"]  # observed - expected counts - l2 · weights
    converged: bool


def fit_conditional(
    log_partition: LogPartitions,
    observed: Numbers,
    *,
    initial: Numbers | None = None,
    frequencies: Numbers | None = None,
    l2: float = 0.0,
    method: Method = "lbfgs",
    learning_rate: float = 0.1,
    tolerance: float = 1e-8,
    max_iterations: int = 1000,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool | Callback = False,
) -> ConditionalResult:
    """The weights w [p] that maximise observed · w - Σ frequency · log Z(w) - l2/2 |w|².

    `log_partition` gives log Z [b] of each sentence as a differentiable function of w, `observed`
    the total count of each parameter in the analyses of the treebank. The first two terms are
    then the conditional log-likelihood of these analyses, and their gradient is observed minus
    expected counts. The objective is concave: there is one maximum. Weights start at `initial`
    (0 by default); weights of -inf stay.

    `method` is "lbfgs", with a line search: the objective never falls, which is checked; or
    "adam" with its `learning_rate`, where the best weights seen are returned. It ends when the
    objective changes by at most `tolerance` · max(1, |objective|), or after `max_iterations`.
    `checkpoint`, `resume` and `progress` are as for `em`.

    Time: one log Z with gradient per iteration, sometimes a few more.

    >>> import torch
    >>> from inout import LinearChain
    >>> def log_partition(w):  # labels of three positions; a weight for each pair of neighbours
    ...     return LinearChain(torch.zeros(1, 3, 2, dtype=w.dtype), w.reshape(2, 2)).log_partition()
    >>> found = fit_conditional(log_partition, [0.0, 1.0, 0.0, 1.0], l2=0.1)  # of 0 1 1
    >>> found.log_weights.reshape(2, 2).round(decimals=2)
    tensor([[-1.1000,  1.9300],
            [-1.5100,  0.6800]], dtype=torch.float64)

    Lafferty, McCallum & Pereira (2001); Finkel, Kleeman & Manning, "Efficient, feature-based,
    conditional random field parsing" (2008), for grammars.
    """
    if not callable(log_partition):
        raise ArgumentError("log_partition", f"must be a function. Got {log_partition!r:.80}")
    counts = _checked_observed(observed)
    weights = as_log_weights("initial", initial, len(counts)).detach().cpu().double().clone()
    expect(method in ("lbfgs", "adam"), "method", "must be lbfgs or adam", method)
    problem = _Problem(
        log_partition=log_partition,
        observed=counts,
        template=weights,
        free=weights > -torch.inf,
        frequencies=None if frequencies is None else _as_tensor("frequencies", frequencies),
        l2=checked_number("l2", l2, 0.0),
    )
    if bool((counts[~problem.free] != 0).any()):
        place = int((~problem.free & (counts != 0)).nonzero()[0, 0])
        wanted = "must be finite where something was observed"
        raise ArgumentError("initial", f"{wanted}. Got -inf at {place}")
    rate = checked_number("learning_rate", learning_rate, 0.0, above=True)
    tolerance = checked_number("tolerance", tolerance, 0.0)
    max_iterations = at_least("max_iterations", max_iterations, 0)
    check_progress(progress)

    def identity() -> dict[str, str]:
        return {
            "observed": digest(counts),
            "initial": digest(weights),
            "frequencies": digest(problem.frequencies),
            # The function itself cannot be compared, but what it says of the first point can.
            "log_partition": digest(problem.evaluate(weights[problem.free]).log_z),
            "l2": repr(problem.l2),
            "method": method,
            "learning_rate": repr(rate),
            "tolerance": repr(tolerance),
            "max_iterations": str(max_iterations),
        }

    kept, state = Checkpoint.opened(checkpoint, "fit_conditional", identity, resume=resume)
    search = _Search(problem, method, rate, tolerance, max_iterations, kept)
    with reporter(progress, "CRF") as tell, discarded_if_refused(kept, state):
        search.go_on(state, tell)
    return search.result()


@dataclass(frozen=True, slots=True)
class _Point:
    """The objective at one setting of the free weights."""

    weights: Tensor  # [free]
    log_z: Tensor  # [b]
    objective: float
    log_likelihood: float
    gradient: Tensor  # of the objective, [free]
    rounding: float


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is maximised."""

    log_partition: LogPartitions
    observed: Float[Tensor, " p"]
    template: Float[Tensor, " p"]
    free: Bool[Tensor, " p"]
    frequencies: Float[Tensor, " b"] | None
    l2: float

    def full(self, weights: Tensor) -> Tensor:
        """All weights [p], given the free ones."""
        return self.template.index_put((self.free,), weights)

    def evaluate(self, weights: Tensor) -> _Point:
        free = weights.detach().clone().requires_grad_()
        with torch.enable_grad():
            log_z = self.log_partition(self.full(free))
            expect(log_z.ndim == 1, "log_partition", "must give [b]", list(log_z.shape))
            bad = ~log_z.isfinite()
            if bool(bad.any()):
                place = int(bad.nonzero()[0, 0])
                wanted = "log Z of a sentence with an observed analysis must be finite"
                given = f"{float(log_z[place].detach())} for sentence {place}"
                raise TrainingError(f"{wanted}. Got {given}")
            terms = log_z
            if self.frequencies is not None:
                expect_shape("frequencies", self.frequencies, log_z.shape)
                terms = log_z * self.frequencies.to(log_z.device, log_z.dtype)
            total = terms.sum()
            (expected,) = torch.autograd.grad(total, free) if total.requires_grad else (0.0 * free,)
        expected, free = expected.cpu().double(), free.detach()
        observed = self.observed[self.free]
        score = torch.dot(observed, free)
        log_likelihood = float(score) - float(total.detach())
        magnitude = float(torch.dot(observed.abs(), free.abs()) + terms.detach().abs().sum())
        return _Point(
            weights=free,
            log_z=log_z.detach().cpu().double(),
            objective=log_likelihood - 0.5 * self.l2 * float(torch.dot(free, free)),
            log_likelihood=log_likelihood,
            gradient=observed - expected - self.l2 * free,
            rounding=ROUNDING * (1.0 + magnitude),
        )


class _Search:
    """The iterations of an optimiser of torch, whose whole state can be written down.

    (scipy's L-BFGS keeps its memory of curvature to itself, so that a run could not be resumed.)
    """

    def __init__(
        self,
        problem: _Problem,
        method: Method,
        rate: float,
        tolerance: float,
        max_iterations: int,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.problem, self.method, self.tolerance = problem, method, tolerance
        self.max_iterations, self.checkpoint = max_iterations, checkpoint
        self.weights = problem.template[problem.free].clone().requires_grad_()
        self.optimiser: torch.optim.Optimizer
        if method == "lbfgs":
            self.optimiser = torch.optim.LBFGS(
                [self.weights],
                max_iter=1,
                max_eval=40,
                tolerance_grad=0.0,
                tolerance_change=0.0,
                history_size=10,
                line_search_fn="strong_wolfe",
            )
        else:
            self.optimiser = torch.optim.Adam([self.weights], lr=rate)
        self.objectives: list[float] = []
        self.seen: list[_Point] = []  # of this iteration: no point is evaluated twice
        self.best: _Point | None = None
        self.converged = False
        self.clock = Clock(tolerance, max_iterations, 1)

    def go_on(self, state: dict[str, Any] | None, tell: Callback) -> None:
        """Iterate to the end, from the start or from a checkpoint."""
        if state is not None:
            self._restore(state)
        here = self._at(self.weights)
        if state is None:
            self._take(here, tell)
        while not self.converged and len(self.objectives) <= self.max_iterations:
            before, self.seen = here, [here]
            self.optimiser.step(self._closure)
            here = self._at(self.weights)
            if self.method == "lbfgs":
                self._refuse_a_wrong_gradient(before, here)
            change = abs(here.objective - self.objectives[-1])
            # L-BFGS without any change has come to the end of what rounding allows.
            self.converged = change <= self.tolerance * max(1.0, abs(here.objective))
            self._take(here, tell)

    def _closure(self) -> float:
        point = self._at(self.weights)
        self.weights.grad = -point.gradient
        return -point.objective

    def _at(self, weights: Tensor) -> _Point:
        for point in self.seen:
            if torch.equal(point.weights, weights):
                return point
        self.seen.append(self.problem.evaluate(weights))
        return self.seen[-1]

    def _refuse_a_wrong_gradient(self, before: _Point, here: _Point) -> None:
        """Raise if the objective fell, or did not rise along a direction of clear ascent."""
        direction = self.optimiser.state[self.weights].get("d")
        if direction is None:  # the gradient was zero from the beginning
            return
        slope = float(torch.dot(before.gradient, direction))
        stuck = here.objective <= before.objective
        fell = here.objective < before.objective - here.rounding
        if fell or (stuck and slope > _ASCENT * max(1.0, abs(before.objective))):
            raise TrainingError(
                f"iteration {len(self.objectives)}: the objective went from {before.objective!r} "
                f"to {here.objective!r} in a direction where its gradient promises a rise by about "
                f"{slope:.3g}. The gradient of log_partition is not that of its value"
            )

    def _take(self, here: _Point, tell: Callback) -> None:
        self.objectives.append(here.objective)
        if self.best is None or here.objective > self.best.objective:
            self.best = here
        if self.checkpoint is not None:
            state = {
                "weights": self.weights,
                "best": self.best.weights,
                "objectives": torch.tensor(self.objectives, dtype=torch.float64),
                "converged": self.converged,
                "optimiser": self.optimiser.state_dict()["state"],
            }
            self.checkpoint.save(state)
        self.clock.tick()
        tell(self.clock.progress(self.objectives, here.log_likelihood, converged=self.converged))

    def _restore(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            self.weights.copy_(state["weights"])
        whole = self.optimiser.state_dict() | {"state": state["optimiser"]}
        self.optimiser.load_state_dict(whole)
        self.objectives = state["objectives"].tolist()
        self.converged = state["converged"]
        self.best = self.problem.evaluate(state["best"])

    def result(self) -> ConditionalResult:
        best, problem = self.best, self.problem
        assert best is not None
        nothing = torch.zeros_like(problem.template)
        gradient = nothing.index_put((problem.free,), best.gradient)
        expected = problem.observed[problem.free] - problem.l2 * best.weights - best.gradient
        return ConditionalResult(
            log_weights=problem.full(best.weights),
            objectives=tuple(self.objectives),
            log_likelihood=best.log_likelihood,
            expected_counts=nothing.index_put((problem.free,), expected),
            gradient=gradient,
            converged=self.converged,
        )


def _as_tensor(name: str, values: Numbers) -> Tensor:
    try:
        size = len(values)
    except TypeError:
        raise ArgumentError(name, f"must be numbers [b]. Got {values!r:.80}") from None
    array: Tensor = torch.from_numpy(checked_frequencies(values, size))
    return array


def _checked_observed(observed: Numbers) -> Float[Tensor, " p"]:
    array = checked_array("observed", observed, "must be numbers [p]")
    if array.ndim != 1 or not array.size:
        raise ArgumentError("observed", f"must be [p], at least one. Got {list(array.shape)}")
    if not np.isfinite(array).all():
        place = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ArgumentError("observed", f"must be finite. Got {array[place]} at {place}")
    return torch.from_numpy(array)
