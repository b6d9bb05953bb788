"""Workload `contexts-ocr`: word recognition with reified contexts and with beams (figure 3).

Every method is trained with two settings. "The paper's": n-grams of order 4 only, equation (6),
and δ = 1e-4; the paper does not say how many passes, so the table has 5 and 10. "Tuned": n-grams
of all lengths up to 4, and for each method the δ and the number of passes, from one grid for all
methods, with which most words of fold 0 were read, held out of training.

Recall at a precision is what share of the words can be answered, the most confident first. "Recall"
is the largest at which precision is 99 % or more; "before" is where precision first falls below
99 %, as the paper words it ("before our accuracy drops below a given threshold").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

import numpy as np
import torch

from benchmarks.contexts_ocr.runs import Look, Plan, Run, fitted, train
from benchmarks.contexts_ocr.words import Words, load
from benchmarks.processes import Trainings
from benchmarks.report import RESULTS, Agreement, Figure
from benchmarks.timing import alternate
from inout import LinearChain
from inout.learning.contexts import fit_contexts
from inout.viz.plot import line_chart

PAPERS_DELTA = 1e-4
DELTAS = (1e-4, 1e-2, 0.1, 1.0)
LOOKS = (5, 10)  # passes
RUNS = 3  # orders of the training words
DEV_RUNS = 2
CONTEXTS, BEAM, ESCAPING, WIDE = (
    "contexts, 10", "beam, 10", "beam with learned escape, 10", "beam, 200",
)  # fmt: skip
METHODS = {
    CONTEXTS: ("contexts", 10),
    BEAM: ("beam", 10),
    ESCAPING: ("escape", 10),
    WIDE: ("beam", 200),
}
# With the paper's settings only: what would be gained by more contexts.
MORE = {"contexts, 20": ("contexts", 20), "contexts, 40": ("contexts", 40)}
READING = (20, 40)  # sizes with which models of size 10 read as well
PAPERS, TUNED = "the paper's", "tuned"


@dataclass(frozen=True)
class Row:
    """A method with some settings, and what each order of the training words gave."""

    setting: str
    method: str
    passes: int
    delta: float
    looks: Sequence[Look]
    runs: Sequence[Run]

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.setting}: {self.method}"

    def median(self, what: str) -> float:
        """Over the orders of the words."""
        return float(median(getattr(look, what) for look in self.looks))

    @property
    def middle(self) -> int:
        """The order whose recall is the median."""
        order = sorted(range(len(self.looks)), key=lambda k: self.looks[k].recall)
        return order[len(order) // 2]


@dataclass(frozen=True, eq=False)
class State:
    """The words, and how much to do with them."""

    quick: bool
    seed: int
    train: Words
    test: Words
    trainings: Trainings[Plan, Run]

    @property
    def looks(self) -> tuple[int, ...]:
        """Passes after which to look."""
        return (1, 2) if self.quick else LOOKS

    @property
    def deltas(self) -> tuple[float, ...]:
        """The grid."""
        return DELTAS[::2] if self.quick else DELTAS

    def plans(self, name: str, shorter: bool, delta: float, dev: bool = False) -> list[Plan]:
        """One method, in several orders of the words."""
        kind, size = (METHODS | MORE)[name]
        count = 1 if self.quick else DEV_RUNS if dev else RUNS
        reading = READING if name == CONTEXTS and not shorter else ()
        step = 8 if self.quick else 1
        first = Plan(kind, size, shorter, delta, self.looks, 0, reading, dev, step)
        return [replace(first, seed=10 * self.seed + run) for run in range(count)]


def prepare(quick: bool, seed: int = 0, resume: bool = False) -> State:
    """The nine folds for training (quick: every eighth word of them) and fold 1."""
    torch.set_num_threads(1)
    words, others = load(8 if quick else 1)
    trainings = Trainings("contexts-ocr", train, Run, _told, resume)
    return State(quick, seed, words, others, trainings)


def _told(plan: Plan, run: Run) -> str:
    what = f"{plan.kind} {plan.size}, {'1-4' if plan.shorter else '4'}-grams, delta {plan.delta:g}"
    last = run.looks[-1]
    return f"{what}, order {plan.seed}: {last.words:.1f} % of words, recall {last.recall:.1f} %"


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


def measure(state: State) -> Iterator[Figure]:
    """The speed, while nothing else runs; every method; then the bounds and the pictures."""
    yield from _speed(state)
    rows = _rows(state)
    for row in rows:
        yield from _cells(row)
    yield from _bounds(state, rows)
    if not state.quick:
        _draw(rows)


def _rows(state: State) -> list[Row]:
    """All trainings: the paper's and the grid at once, then those with the best of the grid."""
    # Those that take longest begin.
    papers = {n: state.plans(n, False, PAPERS_DELTA) for n in (*list(METHODS)[::-1], *MORE)}
    grid = {
        name: {delta: state.plans(name, True, delta, dev=True) for delta in state.deltas}
        for name in list(METHODS)[::-1]
    }
    trials = [plan for deltas in grid.values() for plans in deltas.values() for plan in plans]
    done = state.trainings([*trials, *(plan for plans in papers.values() for plan in plans)])
    best = {name: max(_dev_words(deltas, done)) for name, deltas in grid.items()}
    tuned = {name: state.plans(name, True, -delta) for name, (_, delta, _) in best.items()}
    done |= state.trainings([plan for plans in tuned.values() for plan in plans])

    def row(setting: str, name: str, plans: Sequence[Plan], passes: int, size: int = 0) -> Row:
        runs = [done[plan] for plan in plans]
        looks = [run.at(passes, size or plans[0].size) for run in runs]
        return Row(setting, name, passes, plans[0].delta, looks, runs)

    rows = []
    for passes in state.looks:
        setting = f"{PAPERS}, {passes} passes"
        rows += [row(setting, name, papers[name], passes) for name in (*METHODS, *MORE)]
        for size in READING:
            name = f"{CONTEXTS}, read with {size}"
            rows.append(row(setting, name, papers[CONTEXTS], passes, size))
    return rows + [row(TUNED, name, tuned[name], -best[name][2]) for name in METHODS]


def _dev_words(
    deltas: Mapping[float, Sequence[Plan]], done: Mapping[Plan, Run]
) -> Iterator[tuple[float, float, int]]:
    """(dev words read, -δ, -passes): of two as good the smaller δ and fewer passes are larger."""
    for delta, plans in deltas.items():
        for passes in plans[0].looks:
            looks = [done[plan].at(passes, plan.size) for plan in plans]
            yield mean(look.words for look in looks), -delta, -passes


def _cells(row: Row) -> Iterator[Figure]:
    columns = {"delta": row.delta, "passes": float(row.passes)}
    for column, what in (
        ("words right, %", "words"),
        ("recall at 99 %, %", "recall"),
        ("before 99 %, %", "first_recall"),
    ):
        values = [getattr(look, what) for look in row.looks]
        columns[column] = median(values)
        columns[f"{column}: lowest"], columns[f"{column}: highest"] = min(values), max(values)
    columns["recall at 98 %, %"] = row.median("recall_98")
    columns["letters right, %"] = row.median("letters")
    columns["training, processor s"] = row.median("seconds")
    for column, value in columns.items():
        cell = (row.name, column)
        yield Figure(f"{row.name}: {column}", value, "", repeats=len(row.looks), cell=cell)


def _bounds(state: State, rows: Sequence[Row]) -> Iterator[Figure]:
    """Contexts against the beams; the tuned ones against the paper's figures as well."""

    def figure(name: str, value: float, unit: str, bound: float | None = None) -> Figure:
        # The bounds are for all training words.
        at_least = None if state.quick else bound
        repeats = len(rows[0].looks)
        return Figure(name, value, unit, at_least=at_least, repeats=repeats)

    for setting in dict.fromkeys(row.setting for row in rows):
        own = {row.method: row for row in rows if row.setting == setting}
        bounds = (88.0, 80.0) if setting == TUNED else (None, None)
        words, recall = (own[CONTEXTS].median(what) for what in ("words", "recall"))
        yield figure(f"{setting}: words right, contexts of size 10", words, "%", bounds[0])
        yield figure(f"{setting}: recall at 99 % precision, contexts", recall, "%", bounds[1])
        above = recall - own[BEAM].median("recall")
        yield figure(f"{setting}: the same, above the beam of this size", above, "points", 0.0)
        below = own[WIDE].median("recall") - recall
        yield figure(f"{setting}: the same, below the beam of size 200", below, "points")


def _draw(rows: Sequence[Row]) -> None:
    """Figures 3 and 6 of the paper: of each method the order of the words with median recall."""
    pictures = {}
    for setting, name in ((TUNED, ""), (f"{PAPERS}, {LOOKS[-1]} passes", "papers-")):
        own = [row for row in rows if row.setting == setting and row.method in METHODS]
        pictures[f"{name}precision"] = line_chart(
            {row.method: row.looks[row.middle].curve for row in own},
            title=f"Word recognition, settings: {setting}",
            across="recall",
            up="precision",
            up_range=(0.85, 1.0),
        )
        pictures[f"{name}lengths"] = line_chart(
            {row.method: row.runs[row.middle].lengths for row in own if row.method == CONTEXTS},
            title=f"Word recognition: average context length, settings: {setting}",
            across="words trained on",
            up="labels remembered",
        )
    for name, picture in pictures.items():
        (RESULTS / f"contexts-ocr-{name}.svg").write_text(picture, encoding="utf-8")


def _speed(state: State) -> Iterator[Figure]:
    """Selection and inference of all test words, one thread."""
    positions = sum(map(len, state.test.pictures))

    def inferred(name: str) -> Any:
        (plan, *_) = state.plans(name, True, PAPERS_DELTA)
        model, _ = fitted(replace(plan, looks=state.looks[-1:]), state.train, state.test)
        seen = model.observe(state.test.pictures)
        return lambda: model.select(seen).posteriors

    repeats = 5 if state.quick else 15
    taken = alternate({name: inferred(name) for name in (CONTEXTS, BEAM)}, repeats)
    yield Figure(
        "contexts of size 10: selection, log Z and marginals", positions / taken[CONTEXTS],
        "positions/s", at_least=50_000, repeats=repeats,
    )  # fmt: skip
    ratio = taken[CONTEXTS] / taken[BEAM]
    yield Figure("time of contexts / beam of the same size", ratio, "", at_most=3, repeats=repeats)
