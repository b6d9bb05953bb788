"""One training run, and many of them in two processes."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

import torch

from benchmarks.contexts_align.words import LETTERS, Word, scores
from inout.contexts.alignments.model import AlignmentModel
from inout.learning.alignment import AlignmentStats, Strategy, fit_alignment

PROCESSES = 2


@dataclass(frozen=True)
class Plan:
    """What to train: a strategy, an order of the data, settings that all strategies share."""

    strategy: Strategy
    seed: int
    epochs: int
    every: int  # examples between two looks at the test words
    least: float  # see `fit_alignment`
    delta: float  # the same
    size: int = 20
    order: int = 5
    most_letters: int = 3


@dataclass
class Run:
    """What came out."""

    plan: Plan
    seen: list[int] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    exact: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)  # of contexts, since the last look
    lost: int = 0  # examples of the first pass that taught nothing
    seconds: float = 0.0  # of training, looks at the test words not counted
    bytes: int = 0  # most memory of the process so far
    weights: int = 0


def run(plan: Plan, train: Sequence[Word], test: Sequence[Word]) -> Run:
    """Train as planned."""
    torch.set_num_threads(1)
    done = Run(plan)
    looking, length = 0.0, 0.0
    start = time.perf_counter()

    def after(seen: int, model: AlignmentModel, stats: AlignmentStats) -> None:
        nonlocal looking, length
        if seen == len(train):
            done.lost = stats.lost
        if seen % plan.every == 0:
            began = time.perf_counter()
            error, exact = scores(model, test)
            done.seen.append(seen)
            done.errors.append(error)
            done.exact.append(exact)
            done.lengths.append((stats.context_length - length) / plan.every)
            length = stats.context_length
            looking += time.perf_counter() - began

    model = fit_alignment(
        [phones for _, phones in train],
        [word for word, _ in train],
        strategy=plan.strategy,
        order=plan.order,
        size=plan.size,
        most_letters=plan.most_letters,
        epochs=plan.epochs,
        least=plan.least,
        delta=plan.delta,
        generator=torch.Generator().manual_seed(plan.seed),
        after=after,
        symbols=sorted({phone for _, phones in [*train, *test] for phone in phones}),
        letters=LETTERS,
    )
    done.seconds = time.perf_counter() - start - looking
    done.bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    done.weights = model.histories.num_weights
    return done


def run_all(plans: Sequence[Plan], train: Sequence[Word], test: Sequence[Word]) -> Iterator[Run]:
    """All runs, as they end, each in a process of its own."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(
        min(PROCESSES, len(os.sched_getaffinity(0))),
        multiprocessing.get_context("spawn"),
        max_tasks_per_child=1,
    ) as pool:
        for ended in as_completed([pool.submit(run, plan, train, test) for plan in plans]):
            yield ended.result()
