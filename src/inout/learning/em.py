"""`em`: maximum likelihood for every generative model, by taking the gradient and normalising."""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import at_least
from inout._core.errors import ArgumentError, TrainingError
from inout._core.randomness import checked_generator, own_generator
from inout.learning.arguments import (
    checked_corpus,
    checked_frequencies,
    checked_number,
    checked_starts,
)
from inout.learning.checkpoint import Checkpoint, digest, discarded_if_refused, model_digest
from inout.learning.expectation import Expectation, expect
from inout.learning.model import GenerativeModel, LogPartitions, Parameters, sentence_lengths
from inout.learning.priors import Additive, Dirichlet, Prior, log_prior, maximise
from inout.learning.progress import Callback, Clock, Course, Progress, check_progress, reporter
from inout.learning.stepwise import Minibatches, Stepwise

Model = TypeVar("Model", bound=GenerativeModel)


@dataclass(frozen=True, slots=True)
class EMRun(Course):
    """The course of EM from one starting point."""

    log_likelihoods: tuple[float, ...]  # of the starting point, then after each iteration
    objectives: tuple[float, ...]  # the same with the log of the prior in it
    converged: bool
    left_out: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EMResult(Course, Generic[Model]):
    """The result of EM; the numbers are those of the best starting point."""

    model: Model
    log_likelihoods: tuple[float, ...]  # of the starting point, then after each iteration
    objectives: tuple[float, ...]  # the same with the log of the prior in it
    converged: bool
    left_out: tuple[int, ...]  # numbers of the sentences without analysis
    perplexity: float | None  # per word; None where the number of words is unknown
    expected_counts: Float[Tensor, " p"]  # under the model
    best: int  # number of the best starting point: 0 is the model, then `starts`, then random ones
    runs: tuple[EMRun, ...]  # one for each starting point

    @property
    def log_likelihood(self) -> float:
        """Σ frequency · log Z of the sentences that have an analysis, under the model."""
        return self.log_likelihoods[-1]


def em(
    model: Model,
    corpus: Any,
    *,
    frequencies: Tensor | NDArray[np.float64] | Sequence[float] | None = None,
    restarts: int = 0,
    starts: Sequence[Any] = (),
    prior: Prior | None = None,
    stepwise: Stepwise | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    generator: torch.Generator | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool | Callback = False,
) -> EMResult[Model]:
    """Train a model to a local maximum of Σ frequency · log Z over the corpus.

    Each iteration computes the expected counts, which are the gradient of the log-likelihood in
    the log-weights, adds those of the `prior`, and normalises them in each distribution. The
    log-likelihood (with a prior: the log-posterior) never falls; a decrease beyond rounding raises
    `TrainingError` with the iteration number. It ends when the relative change is at most
    `tolerance`, or after `max_iterations`.

    It starts from the model's own weights, then from each of `starts` (log-weights [p] or models),
    then from `restarts` random points, drawn uniformly with the `generator` (by default torch's
    own seeds them); the best is kept.
    Distributions of a starting point that do not sum to 1 are normalised first. A weight of zero
    stays zero. A distribution that is never used keeps its weights, unless a prior changes them.
    Sentences without analysis are left out, and listed in the result.

    With `stepwise=Stepwise(batch_size, alpha)` there is a step after every minibatch, and an
    iteration is a pass over all of them and the likelihood after it, which may fall.

    With `checkpoint` the state is written to that file after every iteration; `resume=True`
    continues from there and gives the result of an uninterrupted run, bit for bit. `progress` is a
    function of `Progress`, or True for a bar on the terminal. It has the parameters of every
    iteration, from the starting point on.

    Time: one log Z with gradient per iteration.

    >>> import torch
    >>> from inout.learning import HiddenMarkovModel
    >>> g = torch.Generator().manual_seed(0)
    >>> corpus = [[0, 1, 0, 1, 0], [1, 0, 1], [0, 1, 0]]
    >>> result = em(HiddenMarkovModel.random(2, 2, generator=g), corpus, max_iterations=100)
    >>> result.converged, result.left_out
    (True, ())
    >>> result.model.transition.exp().round(decimals=2)  # one state of each symbol, in turns
    tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64)

    Dempster, Laird & Rubin, "Maximum likelihood from incomplete data" (1977); Eisner,
    "Inside-outside and forward-backward algorithms are just backprop" (2016).
    """
    parameters = Parameters.of(model)
    sentences = checked_corpus(corpus)
    size = len(parameters.log_weights)
    if prior is not None and not isinstance(prior, Additive | Dirichlet):
        raise ArgumentError("prior", f"must be Additive, Dirichlet or None. Got {prior!r:.80}")
    if not isinstance(stepwise, Stepwise | None):
        raise ArgumentError("stepwise", f"must be Stepwise or None. Got {stepwise!r:.80}")
    pseudo_counts = np.zeros(size) if prior is None else prior.pseudo_counts(size)
    restarts = at_least("restarts", restarts, 0)
    settings = _Settings(
        parameters=parameters,
        frequencies=checked_frequencies(frequencies, len(sentences)),
        starts=checked_starts(starts, parameters, same_zeros=prior is not None),
        restarts=restarts,
        pseudo_counts=pseudo_counts,
        stepwise=stepwise,
        tolerance=checked_number("tolerance", tolerance, 0.0),
        max_iterations=at_least("max_iterations", max_iterations, 0),
        generator=own_generator(generator) if restarts else None,
        own_generator=generator is None,
    )
    checked_generator(generator)
    check_progress(progress)
    identity = partial(settings.identity, model, sentences)
    kept, state = Checkpoint.opened(checkpoint, "em", identity, resume=resume)
    log_partitions = (
        model.likelihood(sentences)
        if stepwise is None
        else Minibatches(model, sentences, settings.frequencies, stepwise)
    )
    lengths = sentence_lengths(model, sentences)
    training = _Training(settings, log_partitions, lengths, kept)
    with reporter(progress, "EM") as tell, discarded_if_refused(kept, state):
        training.go_on(state, tell)
    return training.result(model)


@dataclass(frozen=True, slots=True)
class _Settings:
    """The arguments of `em`, checked."""

    parameters: Parameters
    frequencies: NDArray[np.float64]
    starts: list[NDArray[np.float64]]
    restarts: int
    pseudo_counts: NDArray[np.float64]
    stepwise: Stepwise | None
    tolerance: float
    max_iterations: int
    generator: torch.Generator | None
    own_generator: bool  # not the caller's

    @property
    def num_runs(self) -> int:
        return 1 + len(self.starts) + self.restarts

    @property
    def sparse(self) -> bool:
        """Whether the prior may drop parameters."""
        return bool((self.pseudo_counts < 0).any())

    def identity(self, model: GenerativeModel, sentences: Sized) -> dict[str, str]:
        """The identity of this run."""
        online = {} if self.stepwise is None else {"stepwise": str(self.stepwise)}
        return online | {
            "model": model_digest(model, self.parameters),
            "corpus": digest(sentences),
            "frequencies": digest(self.frequencies),
            "starts": digest(self.starts),
            "restarts": str(self.restarts),
            "prior": digest(self.pseudo_counts),
            "tolerance": repr(self.tolerance),
            "max_iterations": str(self.max_iterations),
        }

    def start(self, run: int) -> Float[np.ndarray, " p"]:
        """The log-weights that a run starts from; the generator moves on for a random one."""
        own = self.parameters.log_weights
        given = [own, *self.starts]
        if run < len(given):
            return self.parameters.normalised(given[run])
        assert self.generator is not None
        # Exponential variates over their sum are uniform over the simplex.
        drawn = torch.empty(len(own), dtype=torch.float64, device=self.generator.device)
        drawn.exponential_(generator=self.generator)
        drawn = drawn.clamp_min(torch.finfo(torch.float64).tiny).log().cpu()
        return self.parameters.normalised(np.where(own > -np.inf, drawn.numpy(), -np.inf))


@dataclass(slots=True)
class _Run:
    """A run in progress; while `found` is None its starting point is not evaluated yet."""

    number: int
    log_weights: NDArray[np.float64]
    found: Expectation | None = None
    log_likelihoods: list[float] = field(default_factory=list)
    objectives: list[float] = field(default_factory=list)
    converged: bool = False
    running: NDArray[np.float64] | None = None  # the counts of stepwise EM

    @property
    def left_out(self) -> Int[np.ndarray, " k"]:
        assert self.found is not None
        return np.flatnonzero(~self.found.analysed)

    def ended(self) -> EMRun:
        left_out = tuple(self.left_out.tolist())
        histories = tuple(self.log_likelihoods), tuple(self.objectives)
        return EMRun(*histories, self.converged, left_out)

    def as_state(self) -> dict[str, Any]:
        found = self.found
        return {
            "number": self.number,
            "log_weights": self.log_weights,
            "log_likelihoods": torch.tensor(self.log_likelihoods, dtype=torch.float64),
            "objectives": torch.tensor(self.objectives, dtype=torch.float64),
            "converged": self.converged,
            "counts": None if found is None else found.counts,
            "analysed": None if found is None else found.analysed,
            "scale": None if found is None else found.scale,
            "running": self.running,
        }

    @staticmethod
    def of_state(state: dict[str, Any]) -> _Run:
        likelihoods = state["log_likelihoods"].tolist()
        found = None
        if state["counts"] is not None:
            counts, analysed = state["counts"].numpy(), state["analysed"].numpy()
            found = Expectation(likelihoods[-1], counts, analysed, state["scale"])
        return _Run(
            state["number"],
            state["log_weights"].numpy(),
            found,
            likelihoods,
            state["objectives"].tolist(),
            state["converged"],
            None if state.get("running") is None else state["running"].numpy(),
        )


class _Training:
    """The loop over starting points and iterations."""

    def __init__(
        self,
        settings: _Settings,
        log_partitions: LogPartitions,
        lengths: NDArray[np.int64] | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.settings, self.log_partitions = settings, log_partitions
        self.lengths, self.checkpoint = lengths, checkpoint
        self.first_generator_state = _generator_state(settings.generator)
        self.finished: list[_Run] = []
        self.best: _Run | None = None
        self.clock = Clock(settings.tolerance, settings.max_iterations, settings.num_runs)

    def go_on(self, state: dict[str, Any] | None, tell: Callback) -> None:
        """Run everything, or what the state of a checkpoint lacks."""
        run = None if state is None else self._restore(state)
        while len(self.finished) < self.settings.num_runs:
            if run is None:
                number = len(self.finished)
                run = _Run(number, self.settings.start(number))
                self._save(run)
            self._complete(run, tell)
            self._finish(run)
            self.clock.run_ended(len(run.log_likelihoods) - 1)
            run = None

    def _finish(self, run: _Run) -> None:
        self.finished.append(run)
        if self.best is None or self._rank(run) > self._rank(self.best):
            self.best = run

    def _complete(self, run: _Run, tell: Callback) -> None:
        """Iterate until the run ends."""
        while not run.converged and len(run.log_likelihoods) <= self.settings.max_iterations:
            weights = run.log_weights if run.found is None else self._step(run, run.found.counts)
            self._evaluate(run, weights)
            self._save(run)
            tell(self._progress(run))

    def _step(self, run: _Run, counts: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
        """The log-weights of the next iteration."""
        chosen = self.settings
        best = partial(maximise, chosen.parameters, pseudo_counts=chosen.pseudo_counts)
        if not isinstance(self.log_partitions, Minibatches):
            return best(run.log_weights, counts)
        before = counts if run.running is None else run.running
        passes = len(run.log_likelihoods) - 1
        weights, run.running = self.log_partitions.go_through(run.log_weights, before, passes, best)
        return weights

    def _evaluate(self, run: _Run, log_weights: Float[np.ndarray, " p"]) -> None:
        """Take the log-weights over into the run, with their expectations, if all is well."""
        settings = self.settings
        found = expect(self.log_partitions, log_weights, settings.frequencies)
        penalty = log_prior(log_weights, settings.pseudo_counts)
        objective = found.log_likelihood + penalty
        if run.found is None:
            if not (found.analysed & (settings.frequencies > 0)).any():
                raise TrainingError("no sentence of the corpus has an analysis under the model")
        else:
            self._refuse_losses(run, found, log_weights, objective)
            # A step that dropped parameters is no reason to stop: it changed the objective.
            changed = objective - run.objectives[-1]
            changed = changed if settings.stepwise is None else abs(changed)
            run.converged = not _drops(run.log_weights, log_weights, settings) and (
                changed <= max(settings.tolerance * abs(objective), found.noise)
            )
        run.log_weights, run.found = log_weights, found
        run.log_likelihoods.append(found.log_likelihood)
        run.objectives.append(objective)
        self.clock.tick()

    def _refuse_losses(
        self, run: _Run, found: Expectation, log_weights: Float[np.ndarray, " p"], objective: float
    ) -> None:
        """Raise if a step lost what EM never loses."""
        assert run.found is not None
        where = f"iteration {len(run.log_likelihoods)}"
        if self.settings.num_runs > 1:
            where += f" from starting point {run.number}"
        lost = np.flatnonzero(run.found.analysed & ~found.analysed)
        if len(lost):
            why = "the prior dropped too much; a larger alpha drops less"
            raise TrainingError(
                f"{where}: sentence {lost[0]} lost its last analysis"
                + (f": {why}" if self.settings.sparse else "")
            )
        if self.settings.stepwise is not None:
            return
        before = run.objectives[-1]
        slack = max(found.rounding, run.found.rounding)
        slack += 1e-10 * abs(objective - found.log_likelihood)
        if not _drops(run.log_weights, log_weights, self.settings) and objective < before - slack:
            name = "objective" if self.settings.pseudo_counts.any() else "log-likelihood"
            raise TrainingError(
                f"{where}: the {name} fell from {before!r} to {objective!r}, more than rounding "
                "does. The model's likelihood is not exact, or its distributions are others"
            )

    def _rank(self, run: _Run) -> tuple[float, float]:
        """The better the higher: fewer sentences left out, then the objective.

        Where the prior drops parameters objectives are not comparable, and likelihoods decide.
        """
        values = run.log_likelihoods if self.settings.sparse else run.objectives
        return -float(self.settings.frequencies[run.left_out].sum()), values[-1]

    def _perplexity(self, run: _Run) -> float | None:
        if self.lengths is None or run.found is None:
            return None
        analysed = run.found.analysed
        words = float(np.dot(self.settings.frequencies[analysed], self.lengths[analysed]))
        exponent = -run.log_likelihoods[-1] / words if words else math.inf
        return math.exp(exponent) if exponent < 700 else None

    def _progress(self, run: _Run) -> Progress:
        told = self.clock.progress(
            run.objectives,
            run.log_likelihoods[-1],
            converged=run.converged,
            run=run.number,
            perplexity=self._perplexity(run),
        )
        return replace(told, log_weights=torch.tensor(run.log_weights))

    def _save(self, run: _Run) -> None:
        if self.checkpoint is None:
            return
        self.checkpoint.save(
            {
                "run": run.as_state(),
                "finished": [ended.as_state() for ended in self.finished],
                "first_generator_state": self.first_generator_state,
                "generator_state": _generator_state(self.settings.generator),
            }
        )

    def _restore(self, state: dict[str, Any]) -> _Run:
        generator = self.settings.generator
        if self.settings.restarts and generator is not None:
            now = _generator_state(generator)
            known = [state["first_generator_state"], state["generator_state"]]
            same = any(now is not None and old is not None and now.equal(old) for old in known)
            if not (same or self.settings.own_generator):
                given = "one where the generator had another state (another seed?)"
                raise ArgumentError("checkpoint", f"must be of the same run. Got {given}")
            self.first_generator_state = state["first_generator_state"]
            generator.set_state(state["generator_state"])
        for ended in state["finished"]:
            self._finish(_Run.of_state(ended))
        return _Run.of_state(state["run"])

    def result(self, model: Model) -> EMResult[Model]:
        """What `em` returns."""
        best = self.best
        assert best is not None
        assert best.found is not None
        runs = tuple(run.ended() for run in self.finished)
        chosen = runs[best.number]
        return EMResult(
            model=model.with_log_weights(torch.from_numpy(best.log_weights.copy())),
            log_likelihoods=chosen.log_likelihoods,
            objectives=chosen.objectives,
            converged=chosen.converged,
            left_out=chosen.left_out,
            perplexity=self._perplexity(best),
            expected_counts=torch.from_numpy(best.found.counts.copy()),
            best=best.number,
            runs=runs,
        )


def _drops(
    before: Float[np.ndarray, " p"], after: Float[np.ndarray, " p"], settings: _Settings
) -> bool:
    """Whether a prior of alpha < 1 dropped a parameter in this step."""
    gone = (before > -np.inf) & (after == -np.inf)
    return bool((gone & (settings.pseudo_counts < 0)).any())


def _generator_state(generator: torch.Generator | None) -> Tensor | None:
    return None if generator is None else generator.get_state()
