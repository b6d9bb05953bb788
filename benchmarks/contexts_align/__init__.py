"""Workload `contexts-align`: letters from phones with hidden alignments (figures 4 and 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.contexts_align.plain import enumerate_scores, log_sum
from benchmarks.contexts_align.runs import Plan, Run, run_all
from benchmarks.contexts_align.words import Word, words
from benchmarks.report import RESULTS, Agreement, Figure, say
from inout.learning.alignment import Strategy, fit_alignment
from inout.viz.plot import line_chart

NAMES: dict[Strategy, str] = {
    "contexts": "contexts (RCMS)",
    "forced": "forced decoding",
    "hybrid": "beam, hybrid",
    "target": "beam, by target",
    "model": "beam, by model",
}
PAPERS_DELTA = 1e-4


@dataclass(frozen=True)
class Experiment:
    """So many training words, by some strategies, in some orders of the data."""

    name: str
    train: Sequence[Word]
    test: Sequence[Word]
    strategies: Sequence[Strategy]
    seeds: Sequence[int]  # of the orders of the data
    epochs: int
    every: int
    least: float
    deltas: Mapping[Strategy, float]  # of AdaGrad, for those with another than the paper's

    def delta(self, strategy: Strategy) -> float:
        """What AdaGrad adds to the root of sums of squares."""
        return self.deltas.get(strategy, PAPERS_DELTA)

    @property
    def plans(self) -> list[Plan]:
        """Those that take longest first."""
        return [
            Plan(strategy, seed, self.epochs, self.every, self.least, self.delta(strategy))
            for strategy in self.strategies
            for seed in self.seeds
        ]


@dataclass(frozen=True)
class State:
    """The words, and what to do with them."""

    quick: bool
    seed: int
    small: Experiment
    large: Experiment | None


def prepare(quick: bool, seed: int = 0) -> State:
    """750 and 10,000 words of the training part (quick: 100), 250 and 2,000 of the test part.

    After 10,000 words the better strategies are close to each other, and 250 words too few to tell
    them apart: a first run with 250 words and two orders had forced decoding 0.05 points ahead of
    contexts, one letter in 1,871.

    Each strategy has the delta with which it did best on 4,000 dev words: of 1e-4 (the paper's),
    0.1, 0.3 and 1, for the beams of 1e-4 and 1. Contexts learn from every alignment that they
    cannot rule out: with a small delta the edges of unlikely ones move weights as much as those of
    certain ones. 10,000 words are gone through three times, after which contexts and forced
    decoding were best there.
    """
    everyone: tuple[Strategy, ...] = ("forced", "contexts", "hybrid", "target", "model")
    seeds = range(10 * seed, 10 * seed + 5)

    def drawn(name: str, train: int, test: int, *others: Any) -> Experiment:
        return Experiment(name, words("train", train, seed), words("test", test, seed), *others)

    small: dict[Strategy, float] = {"contexts": 1.0}
    large: dict[Strategy, float] = {"contexts": 1.0, "forced": 1.0}
    if quick:
        few = drawn("100 words", 100, 50, everyone, seeds[:1], 2, 100, 1e-3, {})
        return State(quick, seed, few, None)
    # Rows for the small gradients of 10,000 words would need much memory; for 750 they do not.
    return State(
        quick,
        seed,
        drawn("750 words", 750, 250, everyone, seeds, 5, 150, 1e-3, small),
        drawn("10,000 words", 10_000, 2_000, everyone, seeds, 3, 10_000, 1e-2, large),
    )


def check(state: State) -> Iterator[Agreement]:
    """With every context kept: log Z, log p(letters) and the best spelling by enumeration."""
    few = "aeln"
    train = [
        (word, phones)
        for word, phones in words("train", 40_000, state.seed)
        if set(word) <= set(few) and len(word) <= 3 * len(phones)
    ]
    short = [(word, phones) for word, phones in train if len(phones) <= 2][:4]
    model = fit_alignment(
        [phones for _, phones in train], [word for word, _ in train], epochs=1, letters=few
    )
    exact = replace(model, settings=replace(model.settings, size=100_000))
    off_z = off_p = off_best = 0.0
    for word, phones in short:
        every = list(enumerate_scores(exact, exact.numbered_inputs([phones])[0]))
        log_z = log_sum([score for _, score in every])
        lattice = exact.lattice(exact.columns(exact.numbered_inputs([phones])))
        off_z = max(off_z, abs(float(lattice.log_partition[0]) - log_z))
        letters = tuple(exact.numbered_outputs([word])[0])
        own = log_sum([score for written, score in every if written == letters])
        off_p = max(off_p, abs(float(exact.log_likelihood([phones], [word])[0]) - own + log_z))
        best = max(score for _, score in every)
        off_best = max(off_best, abs(float(lattice.best()[2][0]) - best))
    about = f"of {len(short)} words over {few}"
    yield Agreement(f"log Z {about}: enumeration", off_z, 1e-9)
    yield Agreement(f"log p(letters) {about}: enumeration", off_p, 1e-9)
    yield Agreement(f"score of the best path {about}: enumeration", off_best, 1e-9)


def measure(state: State) -> Iterator[Figure]:
    """Error rates of all strategies, then what must hold between them; plots."""
    found: dict[str, list[Run]] = {}
    for experiment in (state.small, state.large):
        if experiment is not None:
            runs = found[experiment.name] = _runs(experiment)
            yield from _cells(experiment, runs)
            yield from _bounds(state, experiment, runs)
    if not state.quick:
        _write(found)


def _runs(experiment: Experiment) -> list[Run]:
    """All runs; a line tells of each that ends."""
    plans, runs = experiment.plans, []
    for run in run_all(plans, experiment.train, experiment.test):
        runs.append(run)
        what = f"{experiment.name}, {NAMES[run.plan.strategy]}, order {run.plan.seed}"
        cer = f"{100 * run.errors[-1]:.2f} %"
        say(f"  {what}: CER {cer} ({len(runs)} of {len(plans)} runs)")
    return runs


def _of(runs: Sequence[Run], strategy: Strategy) -> list[Run]:
    return sorted(
        (run for run in runs if run.plan.strategy == strategy), key=lambda run: run.plan.seed
    )


def _cells(experiment: Experiment, runs: Sequence[Run]) -> Iterator[Figure]:
    """The row of each strategy: medians over the orders of the data."""
    for strategy, shown in NAMES.items():
        own = _of(runs, strategy)
        if not own:
            continue
        errors = [100 * run.errors[-1] for run in own]
        name = f"{experiment.name}, {shown}"
        for column, value, unit in (
            ("delta", experiment.delta(strategy), ""),
            ("CER", median(errors), "%"),
            ("lowest", min(errors), "%"),
            ("highest", max(errors), "%"),
            ("exact", median(100 * run.exact[-1] for run in own), "%"),
            ("lost in pass 1", median(run.lost for run in own), "words"),
            ("context length", median(run.lengths[-1] for run in own), "edges"),
            ("weights", median(run.weights for run in own) / 1e6, "million"),
            ("memory", max(run.bytes for run in own) / 2**30, "GiB"),
            ("training", median(run.seconds for run in own), "s"),
        ):
            heading = f"{column}, {unit}" if unit else column
            yield Figure(f"{name}: {column}", value, unit, cell=(name, heading))


def _bounds(state: State, experiment: Experiment, runs: Sequence[Run]) -> Iterator[Figure]:
    """Contexts ahead of every beam, and at least level with forced decoding."""
    ours = _of(runs, "contexts")
    for strategy in experiment.strategies:
        if strategy == "contexts":
            continue
        pairs = list(zip(_of(runs, strategy), ours, strict=True))
        above = 100 * (
            median(theirs.errors[-1] for theirs, _ in pairs)
            - median(own.errors[-1] for _, own in pairs)
        )
        name = f"{experiment.name}: CER of {NAMES[strategy]} above contexts"
        bound = None if state.quick else 0.0
        yield Figure(name, above, "points", at_least=bound, repeats=len(pairs))
        better = sum(theirs.errors[-1] > own.errors[-1] for theirs, own in pairs)
        yield Figure(f"{name}: orders of the data", better, f"of {len(pairs)}")


def _write(found: dict[str, list[Run]]) -> None:
    """The learning curves as SVG (figure 4: errors; figure 6: lengths of contexts)."""
    RESULTS.mkdir(exist_ok=True)
    for name, runs in found.items():
        short = name.replace(",", "").replace(" ", "-")
        title, ours = f"Letters from phones, {name}", _of(runs, "contexts")
        for file, chart in {
            # Beams that learn nothing may write words of any length.
            "errors": _chart(title, "character error rate", runs, "errors", (0.0, 1.0)),
            "lengths": _chart(f"Mean context length, {name}", "edges", ours, "lengths"),
        }.items():
            _save(f"{file}-{short}.svg", chart)


def _chart(
    title: str, up: str, runs: Sequence[Run], what: str, up_range: tuple[float, float] | None = None
) -> str:
    """Medians, and the single orders of the data as thin lines."""
    medians, single = {}, {}
    for strategy, name in NAMES.items():
        own = _of(runs, strategy)
        if own:
            columns = zip(*(getattr(run, what) for run in own), strict=True)
            medians[name] = list(zip(own[0].seen, map(median, columns), strict=True))
            single[name] = [list(zip(run.seen, getattr(run, what), strict=True)) for run in own]
    across = "training examples seen"
    return line_chart(medians, title=title, across=across, up=up, up_range=up_range, faint=single)


def _save(name: str, text: str) -> None:
    (RESULTS / f"contexts-align-{name}").write_text(text, encoding="utf-8")
