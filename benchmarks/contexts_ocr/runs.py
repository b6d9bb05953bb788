"""One training, and what the model does on words it has not seen."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from benchmarks.contexts_ocr.words import Words, load
from inout.contexts import ContextModel
from inout.contexts.confidence import precision_recall, recall_at
from inout.learning.contexts import fit_contexts

ORDER, STEP = 4, 0.2  # the paper's
EVERY = 50  # words between two points of the curve of context lengths


@dataclass(frozen=True)
class Plan:
    """What to train."""

    kind: str  # contexts, beam, escape
    size: int
    shorter: bool  # whether n-grams of all lengths are features; the paper's: the longest only
    delta: float  # of AdaGrad
    looks: tuple[int, ...]  # after how many passes to look at the other words
    seed: int  # of the order of the training words
    reading: tuple[int, ...] = ()  # further sizes with which the model reads the other words
    dev: bool = False  # tested on fold 0, trained without it and without fold 1
    step: int = 1  # every so many words

    @property
    def method(self) -> dict[str, Any]:
        """The arguments of `fit_contexts`."""
        kinds: dict[str, dict[str, Any]] = {
            "contexts": {"memory": None},
            "beam": {"beam": True},
            "escape": {"beam": True, "learn_escape": True},
        }
        return {"size": self.size, "shorter": self.shorter, **kinds[self.kind]}


@dataclass(frozen=True)
class Look:
    """What a model did; percents."""

    passes: int
    size: int  # with which it read
    words: float  # that are right
    letters: float  # that are right
    recall: float  # at 99 % precision: the largest
    first_recall: float  # the same: before precision first falls below it
    recall_98: float  # at 98 % precision: the largest
    seconds: float  # of training so far, of one core
    curve: list[tuple[float, float]]  # recall and precision


@dataclass
class Run:
    """What came out."""

    looks: list[Look] = field(default_factory=list)
    lengths: list[tuple[float, float]] = field(default_factory=list)  # words, average length so far

    def at(self, passes: int, size: int) -> Look:
        """After so many passes, reading with this size."""
        (found,) = (one for one in self.looks if (one.passes, one.size) == (passes, size))
        return found

    def __post_init__(self) -> None:
        # As read from a file.
        self.looks = [Look(**one) if isinstance(one, dict) else one for one in self.looks]


def train(plan: Plan) -> Run:
    """Train as planned."""
    words, others = load(plan.step, plan.dev)
    return fitted(plan, words, others)[1]


def fitted(plan: Plan, words: Words, others: Words) -> tuple[ContextModel, Run]:
    """The model as well; looks at the other words are not counted as training."""
    torch.set_num_threads(1)
    run, total, looking = Run(), 0.0, 0.0
    start = time.process_time()

    def after(passed: Any, model: ContextModel) -> None:
        nonlocal total, looking
        # A cumulative average, as in the paper's figure 6.
        total += passed.context_length
        run.lengths.append((passed.examples, total / (len(run.lengths) + 1)))
        passes, rest = divmod(passed.examples, len(words))
        if not rest and passes in plan.looks:
            now = time.process_time()
            about = passes, now - start - looking
            for size in (plan.size, *plan.reading):
                read = replace(model, settings=replace(model.settings, size=size))
                run.looks.append(_look(read, others, *about))
            looking += time.process_time() - now

    model = fit_contexts(
        words.pictures, words.spellings, order=ORDER, step=STEP, delta=plan.delta,
        epochs=max(plan.looks), generator=torch.Generator().manual_seed(plan.seed), every=EVERY,
        after=after, **plan.method,
    )  # fmt: skip
    return model, run


def _look(model: ContextModel, others: Words, passes: int, seconds: float) -> Look:
    found = model.tag(others.pictures)
    spelled = [one.labels for one in found]
    right = np.array([a == b for a, b in zip(spelled, others.spellings, strict=True)])
    pairs = [
        a == b
        for own, gold in zip(spelled, others.spellings, strict=True)
        for a, b in zip(own, gold, strict=True)
    ]
    confidences = np.array([one.confidence for one in found])
    precision, recall = precision_recall(confidences, right)
    return Look(
        passes,
        model.settings.size,
        100 * float(right.mean()),
        100 * sum(pairs) / len(pairs),
        100 * recall_at(0.99, confidences, right),
        100 * recall_at(0.99, confidences, right, first=True),
        100 * recall_at(0.98, confidences, right),
        seconds,
        list(zip(recall.tolist(), precision.tolist(), strict=True)),
    )
