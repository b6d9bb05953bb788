"""One training run."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, field

import torch

from benchmarks.contexts_align.words import LETTERS, Part, scores, words
from inout.contexts.alignments.model import AlignmentModel
from inout.learning.alignment import AlignmentStats, Strategy, fit_alignment


@dataclass(frozen=True)
class Plan:
    """What to train: a strategy, an order of the data, settings that all strategies share."""

    strategy: Strategy
    seed: int  # of the order of the data
    epochs: int
    every: int  # examples between two looks at the other words
    least: float  # see `fit_alignment`
    delta: float  # the same
    only_longest: bool  # the same: the paper's features
    train: int  # how many words
    test: int
    part: Part  # of the other words
    draw: int  # the seed with which words were drawn
    size: int = 20
    order: int = 5
    most_letters: int = 3


@dataclass
class Run:
    """What came out."""

    seen: list[int] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    exact: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)  # of contexts, since the last look
    lost: int = 0  # examples of the first pass that taught nothing
    seconds: float = 0.0  # of one core in training, looks at the other words not counted
    bytes: int = 0  # most memory of the process so far
    weights: int = 0


def run(plan: Plan) -> Run:
    """Train as planned."""
    torch.set_num_threads(1)
    train = words("train", plan.train, plan.draw)
    test = words(plan.part, plan.test, plan.draw)
    done = Run()
    looking, length = 0.0, 0.0
    start = time.process_time()

    def after(seen: int, model: AlignmentModel, stats: AlignmentStats) -> None:
        nonlocal looking, length
        if seen == len(train):
            done.lost = stats.lost
        if seen % plan.every == 0:
            began = time.process_time()
            error, exact = scores(model, test)
            done.seen.append(seen)
            done.errors.append(error)
            done.exact.append(exact)
            done.lengths.append((stats.context_length - length) / plan.every)
            length = stats.context_length
            looking += time.process_time() - began

    model = fit_alignment(
        [phones for _, phones in train],
        [word for word, _ in train],
        strategy=plan.strategy,
        order=plan.order,
        only_longest=plan.only_longest,
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
    done.seconds = time.process_time() - start - looking
    done.bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    done.weights = model.histories.num_weights
    return done
