"""Workload `contexts-align`: letters from phones with hidden alignments (figures 4 and 6).

750 words, about as many as the paper has, and 10,000; 250 and 2,000 others to test on. After 10,000
words the better strategies are close to each other, and 250 words too few to tell them apart.

All strategies are trained with two settings. "The paper's": 5-grams only, δ = 1e-4, five passes.
"Tuned": n-grams of all lengths up to 5, and for each strategy the δ, of one grid for all, with the
least errors on dev words. Contexts learn from every alignment that they cannot rule out: with a
small δ the edges of unlikely ones move weights as much as those of certain ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

from benchmarks.contexts_align.plain import enumerate_scores, log_sum
from benchmarks.contexts_align.runs import Plan, Run, run
from benchmarks.contexts_align.words import words
from benchmarks.processes import Trainings
from benchmarks.report import RESULTS, Agreement, Figure
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
DELTAS = (1e-4, 0.1, 0.3, 1.0)
PAPERS, TUNED = "the paper's", "tuned"


@dataclass(frozen=True)
class Experiment:
    """So many training words, in some orders, with some settings."""

    name: str
    setting: str
    plan: Plan  # what all trainings have in common
    seeds: Sequence[int]  # of the orders of the data

    def plans(self, strategy: Strategy, delta: float) -> list[Plan]:
        """One strategy in all orders."""
        return [
            replace(self.plan, strategy=strategy, delta=delta, seed=seed) for seed in self.seeds
        ]

    def grid(self, strategy: Strategy, deltas: Sequence[float]) -> dict[float, list[Plan]]:
        """One strategy on dev words, with each δ, in two orders of few words or one of many."""
        dev = replace(self.plan, part="dev", test=min(8 * self.plan.test, 2_000))
        dev = replace(dev, every=dev.train * dev.epochs)
        few = replace(self, plan=dev, seeds=self.seeds[: 2 if dev.train < 1_000 else 1])
        return {delta: few.plans(strategy, delta) for delta in deltas}


Found = Mapping[Strategy, Sequence[tuple[Plan, Run]]]  # one experiment's, in all orders


@dataclass(frozen=True)
class State:
    """What to train."""

    quick: bool
    seed: int
    experiments: Sequence[Experiment]
    deltas: Sequence[float]
    trainings: Trainings[Plan, Run]


def prepare(quick: bool, seed: int = 0, resume: bool = False) -> State:
    """750 and 10,000 words of the training part (quick: 100), 250 and 2,000 of the test part.

    With n-grams of all lengths 10,000 words are gone through three times, after which contexts and
    forced decoding were best on dev words.
    """
    trainings = Trainings("contexts-align", run, Run, _told, resume)
    seeds = range(10 * seed, 10 * seed + 5)
    base = Plan("contexts", 0, 5, 150, 1e-3, PAPERS_DELTA, False, 750, 250, "test", seed)
    if quick:
        base = replace(base, epochs=2, every=100, train=100, test=50)
        seeds = seeds[:1]
    papers = replace(base, only_longest=True)
    small = f"{base.train} words"
    experiments = [Experiment(small, PAPERS, papers, seeds), Experiment(small, TUNED, base, seeds)]
    if not quick:
        # Rows for the small gradients of 10,000 words would need much memory; for 750 they do not.
        many: dict[str, Any] = {"every": 10_000, "least": 1e-2, "train": 10_000, "test": 2_000}
        experiments += [
            Experiment("10,000 words", PAPERS, replace(papers, **many), seeds[:3]),
            Experiment("10,000 words", TUNED, replace(base, epochs=3, **many), seeds[:3]),
        ]
    deltas = DELTAS[::3] if quick else DELTAS
    return State(quick, seed, experiments, deltas, trainings)


def _told(plan: Plan, done: Run) -> str:
    grams = "5-grams" if plan.only_longest else "1-5-grams"
    what = f"{plan.train} words, {NAMES[plan.strategy]}, {grams}, delta {plan.delta:g}"
    return f"{what}, {plan.part}, order {plan.seed}: CER {100 * done.errors[-1]:.2f} %"


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
    for experiment, found in _trained(state):
        yield from _cells(experiment, found)
        yield from _bounds(state, experiment, found)
        if not state.quick:
            _write(experiment, found)


def _trained(state: State) -> Iterator[tuple[Experiment, Found]]:
    """All trainings: the paper's and the grids at once, then those with the best of the grids."""
    # By number of words and strategy.
    grids: dict[tuple[str, Strategy], dict[float, list[Plan]]] = {}
    plans: dict[tuple[str, str, Strategy], list[Plan]] = {}
    for experiment in state.experiments:
        for strategy in NAMES:
            if experiment.setting == PAPERS:
                plans[experiment.name, PAPERS, strategy] = experiment.plans(strategy, PAPERS_DELTA)
            else:
                grids[experiment.name, strategy] = experiment.grid(strategy, state.deltas)
    trial = [plan for grid in grids.values() for own in grid.values() for plan in own]
    done = _done(state, [*plans.values(), trial])
    for experiment in state.experiments:
        if experiment.setting == TUNED:
            for strategy in NAMES:
                own = grids[experiment.name, strategy]
                errors = {d: mean(done[plan].errors[-1] for plan in own[d]) for d in own}
                # Of two as good the smaller.
                best = min(errors, key=errors.__getitem__)
                plans[experiment.name, TUNED, strategy] = experiment.plans(strategy, best)
    done |= _done(state, [own for (_, setting, _), own in plans.items() if setting == TUNED])
    for experiment in state.experiments:
        chosen = {s: plans[experiment.name, experiment.setting, s] for s in NAMES}
        yield experiment, {s: [(plan, done[plan]) for plan in own] for s, own in chosen.items()}


def _done(state: State, plans: Sequence[Sequence[Plan]]) -> dict[Plan, Run]:
    """Those that take longest begin."""
    return state.trainings(sorted((plan for own in plans for plan in own), key=_longest))


def _longest(plan: Plan) -> tuple[int, int]:
    """The order in which trainings begin."""
    return -plan.train * plan.epochs, list(NAMES).index(plan.strategy)


def _cells(experiment: Experiment, found: Found) -> Iterator[Figure]:
    """The row of each strategy: medians over the orders of the data."""
    for strategy, shown in NAMES.items():
        runs = [done for _, done in found[strategy]]
        errors = [100 * done.errors[-1] for done in runs]
        exact = [100 * done.exact[-1] for done in runs]
        name = f"{experiment.name}, {experiment.setting}: {shown}"
        for column, value in {
            "delta": found[strategy][0][0].delta,
            "passes": experiment.plan.epochs,
            "CER, %": median(errors),
            "CER, %: lowest": min(errors),
            "CER, %: highest": max(errors),
            "exact, %": median(exact),
            "exact, %: lowest": min(exact),
            "exact, %: highest": max(exact),
            "lost in pass 1, words": median(done.lost for done in runs),
            "context length, edges": median(done.lengths[-1] for done in runs),
            "weights, million": median(done.weights for done in runs) / 1e6,
            "memory, GiB": max(done.bytes for done in runs) / 2**30,
            "training, processor s": median(done.seconds for done in runs),
        }.items():
            cell = (name, column)
            yield Figure(f"{name}: {column}", value, "", repeats=len(runs), cell=cell)


def _bounds(state: State, experiment: Experiment, found: Found) -> Iterator[Figure]:
    """Contexts ahead of every beam, and at least level with forced decoding; tuned, all of them."""
    ours = [done.errors[-1] for _, done in found["contexts"]]
    for strategy, shown in NAMES.items():
        if strategy == "contexts":
            continue
        theirs = [done.errors[-1] for _, done in found[strategy]]
        name = f"{experiment.name}, {experiment.setting}: CER of {shown} above contexts"
        bound = None if state.quick or experiment.setting == PAPERS else 0.0
        above = 100 * (median(theirs) - median(ours))
        yield Figure(name, above, "points", at_least=bound, repeats=len(ours))
        better = sum(a > b for a, b in zip(theirs, ours, strict=True))
        yield Figure(f"{name}: orders of the data", better, f"of {len(ours)}")


def _write(experiment: Experiment, found: Found) -> None:
    """The learning curves as SVG (figure 4: errors; figure 6: lengths of contexts)."""
    RESULTS.mkdir(exist_ok=True)
    short = experiment.name.replace(",", "").replace(" ", "-")
    short += "-papers" if experiment.setting == PAPERS else ""
    name = f"{experiment.name}, settings: {experiment.setting}"
    ours: Found = {"contexts": found["contexts"]}
    for file, chart in {
        # Beams that learn nothing may write words of any length.
        "errors": _chart(
            f"Letters from phones, {name}", "character error rate", found, "errors", (0.0, 1.0)
        ),
        "exact": _chart(f"Words spelled rightly, {name}", "share of words", found, "exact"),
        "lengths": _chart(f"Mean context length, {name}", "edges", ours, "lengths"),
    }.items():
        (RESULTS / f"contexts-align-{file}-{short}.svg").write_text(chart, encoding="utf-8")


def _chart(
    title: str, up: str, found: Found, what: str, up_range: tuple[float, float] | None = None
) -> str:
    """Medians, and the single orders of the data as thin lines."""
    medians, single = {}, {}
    for strategy, own in found.items():
        name, seen = NAMES[strategy], own[0][1].seen
        columns = zip(*(getattr(done, what) for _, done in own), strict=True)
        medians[name] = list(zip(seen, map(median, columns), strict=True))
        single[name] = [list(zip(seen, getattr(done, what), strict=True)) for _, done in own]
    across = "training examples seen"
    return line_chart(medians, title=title, across=across, up=up, up_range=up_range, faint=single)
