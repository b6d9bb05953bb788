"""The progress of training: the argument of callbacks, and a bar on the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from torch import Tensor

from inout._core.errors import ArgumentError


class Course:
    """A training run with its objectives: at the beginning, then after each iteration."""

    __slots__ = ()
    objectives: tuple[float, ...]

    @property
    def iterations(self) -> int:
        """The number of steps from the starting point."""
        return len(self.objectives) - 1


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a training run after an iteration.

    `log_likelihood` is what `em` reports; `objective` has the prior or the penalty in it;
    `log_weights` [p] are its parameters of this iteration.
    """

    run: int  # which starting point, from 0
    runs: int
    iteration: int  # 0: the starting point itself was evaluated
    max_iterations: int
    log_likelihood: float
    objective: float
    perplexity: float | None  # per word; None where the number of words is unknown
    iterations_left: int  # of this run, as far as can be told
    seconds_left: float | None  # of all runs, as far as can be told
    log_weights: Tensor | None = field(default=None, repr=False, compare=False)  # of `em` only


Callback = Callable[[Progress], None]

_BAR_WIDTH = 12


class Clock:
    """Estimates how long training will still take, from the changes and times so far."""

    def __init__(self, tolerance: float, max_iterations: int, runs: int) -> None:
        self._tolerance, self._max_iterations, self._runs = tolerance, max_iterations, runs
        self._started, self._done = monotonic(), 0
        self._finished_runs: list[int] = []  # their numbers of iterations

    def tick(self) -> None:
        self._done += 1

    def run_ended(self, iterations: int) -> None:
        self._finished_runs.append(iterations)

    def iterations_left(self, objectives: Sequence[float]) -> int:
        """Steps until the relative change falls below the tolerance, at the rate of late.

        EM converges linearly: each change is a near constant share of the one before.
        """
        most = max(self._max_iterations - (len(objectives) - 1), 0)
        if len(objectives) < 3 or self._tolerance <= 0:
            return most
        before, last = (
            (objectives[k] - objectives[k - 1]) / max(abs(objectives[k]), 1e-300) for k in (-2, -1)
        )
        if last <= self._tolerance:
            return 0
        if not 0 < last < before:
            return most
        return min(most, math.ceil(math.log(self._tolerance / last) / math.log(last / before)))

    def progress(
        self,
        objectives: Sequence[float],
        log_likelihood: float,
        *,
        converged: bool,
        run: int = 0,
        perplexity: float | None = None,
    ) -> Progress:
        """The state of a run with these objectives so far."""
        done = len(objectives) - 1
        left = 0 if converged else self.iterations_left(objectives)
        seconds = self.seconds_left(run, left, done)
        numbers = log_likelihood, objectives[-1], perplexity
        return Progress(run, self._runs, done, self._max_iterations, *numbers, left, seconds)

    def seconds_left(self, run: int, iterations_left: int, iterations_done: int) -> float | None:
        """Seconds for the rest of this run and those after it; None before the first step."""
        if not self._done:
            return None
        each = (monotonic() - self._started) / self._done
        runs_seen = [*self._finished_runs, iterations_done + iterations_left]
        a_run = sum(runs_seen) / len(runs_seen)
        return each * (iterations_left + (self._runs - run - 1) * a_run)


def check_progress(progress: Any) -> None:
    """Refuse a `progress` that is neither a flag nor a function."""
    if not (isinstance(progress, bool) or callable(progress)):
        raise ArgumentError("progress", f"must be True, False or a function. Got {progress!r:.80}")


@contextmanager
def reporter(progress: bool | Callback, name: str) -> Iterator[Callback]:
    """The callback: the caller's, or one that moves a bar on stderr, if that is a terminal."""
    check_progress(progress)
    if callable(progress):
        yield progress
        return
    if not progress:
        yield _ignore
        return
    with _bar(name) as show:
        yield show


def _ignore(progress: Progress) -> None:
    """Does nothing."""


@contextmanager
def _bar(name: str) -> Iterator[Callback]:
    # Imported here for the sake of start-up: few need a bar.
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _ignore
        return
    columns: list[Any] = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=_BAR_WIDTH),
        TextColumn("{task.fields[told]}"),
    ]
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None, told="")

        def show(progress: Progress) -> None:
            of_runs = f" {progress.run + 1}/{progress.runs}" if progress.runs > 1 else ""
            total = progress.iteration + progress.iterations_left
            # The three columns have a space between them.
            room = console.width - len(name + of_runs) - _BAR_WIDTH - 2
            bar.update(
                task,
                description=name + of_runs,
                completed=progress.iteration,
                total=max(total, 1),
                told=describe(progress, room),
            )

        yield show


def describe(progress: Progress, width: int = 100) -> str:
    """One line: iteration, log-likelihood, perplexity for each word, time left.

    If that is wider than `width`, the least important parts are left out.

    >>> progress = Progress(0, 1, 7, 100, -1234.5, -1234.5, 12.25, 20, 65.0)
    >>> describe(progress)
    'iteration 7 · log-likelihood -1234.50 · perplexity 12.25 · about 1:05 left'
    >>> describe(progress, 50)
    'log-likelihood -1234.50 · about 1:05 left'
    """
    likelihood = f"log-likelihood {progress.log_likelihood:.2f}"
    left = []
    if progress.seconds_left is not None:
        minutes, seconds = divmod(round(progress.seconds_left), 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        left = [f"about {clock} left"]
    perplexity = [] if progress.perplexity is None else [f"perplexity {progress.perplexity:.2f}"]
    choices = (
        [f"iteration {progress.iteration}", likelihood, *perplexity, *left],
        [likelihood, *perplexity, *left],
        [likelihood, *left],
        [likelihood],
    )
    texts = [" · ".join(parts) for parts in choices]
    return next((text for text in texts if len(text) <= width), texts[-1])
