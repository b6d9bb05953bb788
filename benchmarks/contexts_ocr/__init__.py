"""Workload `contexts-ocr`: word recognition with reified contexts and with beams (figure 3)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.contexts_ocr.words import Words, load
from benchmarks.report import RESULTS, Agreement, Figure
from benchmarks.timing import alternate
from inout import LinearChain
from inout.contexts import ContextModel
from inout.contexts.confidence import precision_recall, recall_at
from inout.learning.contexts import fit_contexts
from inout.viz.plot import line_chart

ORDER, SIZE, STEP, DELTA = 4, 10, 0.2, 1e-4  # the paper's
EPOCHS = 10  # accuracy on fold 0, held out of training, rose until about the sixth
RUNS = 3  # orders of the training words
EVERY = 50  # words between two points of the curve of context lengths
CONTEXTS, BEAM, ESCAPING, WIDE = (
    "contexts, 10", "beam, 10", "beam with learned escape, 10", "beam, 200",
)  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    CONTEXTS: {"size": SIZE, "memory": None},
    BEAM: {"size": SIZE, "beam": True},
    ESCAPING: {"size": SIZE, "beam": True, "learn_escape": True},
    WIDE: {"size": 200, "beam": True},
}


@dataclass(eq=False)
class State:
    """The words, and what was measured of each run."""

    quick: bool
    seed: int
    train: Words
    test: Words
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    lengths: list[tuple[float, float]] = field(default_factory=list)


def prepare(quick: bool, seed: int) -> State:
    """The nine folds for training (quick: every eighth word of them) and fold 1."""
    torch.set_num_threads(1)
    train, test = load(8 if quick else 1)
    return State(quick, seed, train, test)


def check(state: State) -> Iterator[Agreement]:
    """With all contexts of one letter the model is a chain: against `LinearChain`."""
    words, letters = state.train.pictures[:200], state.train.spellings[:200]
    model = fit_contexts(words, letters, order=2, size=100, epochs=2)
    seen = model.observe(words)
    lattice = model.select(seen)
    bigrams = model.histories
    count = len(model.labels)
    unigram = bigrams.weights[bigrams.row(0, [])]

    def row(symbol: int) -> np.ndarray:
        return unigram + bigrams.weights[bigrams.row(0, [symbol])]

    transitions = torch.from_numpy(np.stack([row(label) for label in range(count)]))
    start = torch.from_numpy(row(bigrams.BEGIN))
    emissions = model.emissions(seen)
    exact = [
        LinearChain(torch.from_numpy(emissions[lo:hi]), transitions, start=start)
        for lo, hi in zip(seen.starts[:-1], seen.starts[1:], strict=True)
    ]
    log_z = np.array([float(chain.log_partition()) for chain in exact])
    off = float(np.abs(log_z - lattice.log_partition).max())
    yield Agreement(f"log Z of {len(words)} words with all contexts: LinearChain", off, 1e-9)
    marginals = lattice.emission_counts(lattice.posteriors)
    known = torch.cat([chain.marginals("emissions")["emissions"] for chain in exact]).numpy()
    off = float(np.abs(marginals - known).max())
    yield Agreement("marginals of their letters: LinearChain", off, 1e-9)


@dataclass(frozen=True, eq=False)
class Run:
    """A trained model on the test words."""

    model: ContextModel
    seconds: float
    confidences: np.ndarray
    right: np.ndarray
    letters: float

    @property
    def accuracy(self) -> float:
        """Of words, in percent."""
        return 100 * float(self.right.mean())

    def recall(self, precision: float) -> float:
        """The share of words that can be answered at a precision, in percent."""
        return 100 * recall_at(precision, self.confidences, self.right)


def _run(state: State, name: str, run: int) -> Run:
    lengths: list[tuple[float, float]] = []
    total = 0.0

    def after(passed: Any, model: ContextModel) -> None:
        # A cumulative average, as in the paper's figure 6.
        nonlocal total
        total += passed.context_length
        lengths.append((passed.examples, total / (len(lengths) + 1)))

    start = time.perf_counter()
    model = fit_contexts(
        state.train.pictures, state.train.spellings, order=ORDER, step=STEP, delta=DELTA,
        epochs=2 if state.quick else EPOCHS,
        generator=torch.Generator().manual_seed(state.seed + run), every=EVERY, after=after,
        **METHODS[name],
    )  # fmt: skip
    taken = time.perf_counter() - start
    found = model.tag(state.test.pictures)
    right = np.array([f.labels == s for f, s in zip(found, state.test.spellings, strict=True)])
    pairs = [
        a == b
        for f, s in zip(found, state.test.spellings, strict=True)
        for a, b in zip(f.labels, s, strict=True)
    ]
    confidences = np.array([f.confidence for f in found])
    if run == 0:
        precision, recall = precision_recall(confidences, right)
        state.curves[name] = list(zip(recall.tolist(), precision.tolist(), strict=True))
        if name == CONTEXTS:
            state.lengths[:] = lengths
    return Run(model, taken, confidences, right, 100 * sum(pairs) / len(pairs))


def measure(state: State) -> Iterator[Figure]:
    """Every method; then the bounds, the pictures and the speed."""
    rows: dict[str, list[Run]] = {}
    for name in METHODS:
        # The wide beam stands for exact inference: once is enough.
        count = 1 if state.quick or name == WIDE else RUNS
        rows[name] = [_run(state, name, run) for run in range(count)]
        yield from _cells(name, rows[name])
    ours, beam = rows[CONTEXTS], rows[BEAM]
    # The bounds are for all training words.
    at_least: dict[str, Any] = {} if state.quick else {"at_least": 88}
    yield Figure(
        "word accuracy, contexts of size 10", median(r.accuracy for r in ours), "%",
        repeats=len(ours), **at_least,
    )  # fmt: skip
    at_least = {} if state.quick else {"at_least": 80}
    recall = median(r.recall(0.99) for r in ours)
    yield Figure("recall at 99 % precision, contexts", recall, "%", repeats=len(ours), **at_least)
    at_least = {} if state.quick else {"at_least": 0}
    ceiling = median(r.recall(0.99) for r in beam)
    yield Figure("the same, above the beam of this size", recall - ceiling, "%", **at_least)
    _draw(state)
    yield from _speed(state, ours[0].model, beam[0].model)


def _cells(name: str, runs: Sequence[Run]) -> Iterator[Figure]:
    columns = {
        "word accuracy, %": [r.accuracy for r in runs],
        "letter accuracy, %": [r.letters for r in runs],
        "recall at 99 % precision, %": [r.recall(0.99) for r in runs],
        "lowest": [min(r.recall(0.99) for r in runs)],
        "recall at 98 %, %": [r.recall(0.98) for r in runs],
        "training, s": [r.seconds for r in runs],
    }
    for column, values in columns.items():
        yield Figure(
            f"{name}: {column}", median(values), "", repeats=len(values), cell=(name, column)
        )


def _draw(state: State) -> None:
    """Figures 3 and 6 of the paper."""
    if state.quick:
        return
    pictures = {
        "precision": line_chart(
            state.curves,
            title="Word recognition",
            across="recall",
            up="precision",
            up_range=(0.85, 1.0),
        ),
        "lengths": line_chart(
            {CONTEXTS: state.lengths},
            title="Word recognition: average context length",
            across="words trained on",
            up="labels remembered",
        ),
    }
    for name, picture in pictures.items():
        (RESULTS / f"contexts-ocr-{name}.svg").write_text(picture, encoding="utf-8")


def _speed(state: State, ours: ContextModel, beam: ContextModel) -> Iterator[Figure]:
    """Selection and inference of all test words, one thread."""
    positions = sum(map(len, state.test.pictures))

    def inferred(model: ContextModel) -> Any:
        seen = model.observe(state.test.pictures)
        return lambda: model.select(seen).posteriors

    repeats = 5 if state.quick else 15
    taken = alternate({CONTEXTS: inferred(ours), BEAM: inferred(beam)}, repeats)
    yield Figure(
        "contexts of size 10: selection, log Z and marginals", positions / taken[CONTEXTS],
        "positions/s", at_least=50_000, repeats=repeats,
    )  # fmt: skip
    ratio = taken[CONTEXTS] / taken[BEAM]
    yield Figure("time of contexts / beam of the same size", ratio, "", at_most=3, repeats=repeats)
