"""Workload `contexts-decipher`: a substitution cipher of 500 words, read by EM without a key.

Steinhardt & Liang, "Reified context models" (2015), sections 6 and 7, figures 5 and 6. What the
paper does not say was chosen: sentences have no end symbol (as a hidden Markov model has none);
EM starts from uniform emissions, for all methods alike, so that the seed's cipher only names the
symbols otherwise; a symbol is read as the label y of the largest p(symbol | y), the parameters
that EM learns (the reading by p(y | symbol) is in the table as well).

All of it is done with two settings. "The paper's": absolute discounting by 0.25, contexts of any
length, plain text and cipher drawn from the same sentences (24,666, of which 2,000 enciphered).
"Ours": plain text and cipher of different books, the discount with which the language models
predict other books best, contexts that remember two labels at most; and a stronger beam, which
merges histories with the same last labels. Different texts stand for seeds: three for the largest
size and exact inference, one for the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch

from benchmarks.contexts_decipher.data import Task, load
from benchmarks.contexts_decipher.plots import save
from benchmarks.contexts_decipher.runs import (
    BEAM,
    CONTEXTS,
    EXACT,
    RECOMBINING,
    Curve,
    Plan,
    Setting,
    exact_expectation,
    learn,
)
from benchmarks.processes import Trainings
from benchmarks.report import Agreement, Figure
from inout.contexts.hidden_markov import ContextHiddenMarkovModel
from inout.contexts.language_model import NGramLanguageModel

# The paper has 0.25. On this text a larger one predicts far better, above all in second order; see
# the perplexities, which are of books that are neither in the plain text nor in the cipher.
DISCOUNT = 0.75
DISCOUNTS = (0.25, 0.5, 0.75, 0.9)
ONE = 0.1  # points: less than one symbol of 500
TEXTS = 3
SHOWN = (5, 10, 20, 30, 40)  # passes
PAPERS, OURS = "the paper's", "ours"

Curves = Mapping[Setting, Sequence[Curve]]  # of each text


@dataclass(frozen=True, eq=False)
class State:
    """The cipher, and how much to do with it."""

    quick: bool
    seed: int
    task: Task
    trainings: Trainings[Plan, Curve]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of contexts."""
        return (5, 20) if self.quick else (10, 20, 30, 60)

    def estimated(self, order: int, discount: float) -> NGramLanguageModel:
        """A language model of the plain text."""
        labels = len(self.task.words)
        return NGramLanguageModel.estimated(self.task.plain, labels, order, discount=discount)

    def settings(self, papers: bool) -> list[Setting]:
        """All rows; first those of the left part of figure 5."""
        largest = self.sizes[-1]
        rows = [Setting(1, EXACT), *(Setting(1, kind, largest) for kind in (BEAM, CONTEXTS))]
        for kind in (BEAM, CONTEXTS) if papers else (BEAM, RECOMBINING, CONTEXTS):
            rows += [Setting(2, kind, size) for size in self.sizes]
        if papers:
            return [replace(row, any_length=row.kind == CONTEXTS, lines=True) for row in rows]
        return [replace(row, discount=DISCOUNT) for row in rows]

    def plans(self, setting: Setting) -> list[Plan]:
        """One for each text."""
        if self.quick:
            return [Plan(setting, 0, 12, 100, 400, self.seed)]
        # The most are for the comparison of orders, where beams rise slowly to the end.
        few = setting.kind == RECOMBINING or 0 < setting.size < self.sizes[-1]
        passes = 30 if few or (setting.order, setting.kind) == (2, CONTEXTS) else SHOWN[-1]
        texts = range(1 if few else TEXTS)
        return [Plan(setting, text, passes, 500, 2000, self.seed) for text in texts]


def prepare(quick: bool, seed: int = 0, resume: bool = False) -> State:
    """The task (quick: 100 words, 400 sentences)."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    task = load(100, 400, seed) if quick else load(500, 2000, seed)
    return State(quick, seed, task, Trainings("contexts-decipher", learn, Curve, _told, resume))


def _told(plan: Plan, curve: Curve) -> str:
    what = f"{plan.setting.name}, discount {plan.setting.discount:g}, text {plan.text}"
    return f"{what}: {curve.accuracies[-1]:.1f} % of symbols"


def check(state: State) -> Iterator[Agreement]:
    """All contexts of first order against the hidden Markov model, under random emissions."""
    generator = torch.Generator().manual_seed(0)
    labels = len(state.task.words)
    emission = torch.randn(labels, labels, generator=generator, dtype=torch.float64).log_softmax(1)
    short = replace(state.task, cipher=state.task.cipher[:30])
    bigrams, trigrams = (state.estimated(order, DISCOUNT) for order in (1, 2))
    exact = exact_expectation(short, bigrams)(emission)
    found = ContextHiddenMarkovModel(bigrams, emission, labels).expectation(short.cipher)
    off = np.abs(found.log_likelihoods / exact.log_likelihoods - 1).max()
    yield Agreement("log Z of 30 sentences, all contexts: hidden Markov model", off, 1e-12)
    off = np.abs(found.counts - exact.counts).max()
    yield Agreement("expected counts of emissions: hidden Markov model", off, 1e-10)
    fewer = ContextHiddenMarkovModel(trigrams, emission, state.sizes[0])
    total = fewer.expectation(short.cipher).counts.sum()
    wanted = sum(map(len, short.cipher))
    yield Agreement("expected counts of few contexts add up", abs(total / wanted - 1), 1e-12)


def measure(state: State) -> Iterator[Figure]:
    """Every run, then what must hold between them."""
    yield Figure("symbols that occur", float(len(state.task.occurring)), "")
    yield Figure("words matched by frequency alone", state.task.by_frequency(), "%")
    yield from _perplexities(state)
    groups = {PAPERS: state.settings(papers=True), OURS: state.settings(papers=False)}
    plans = [plan for settings in groups.values() for one in settings for plan in state.plans(one)]
    # Those that take longest begin.
    done = state.trainings(sorted(plans, key=lambda p: (-p.setting.size, -p.setting.order)))
    for group, settings in groups.items():
        curves = {one: [done[plan] for plan in state.plans(one)] for one in settings}
        for setting in settings:
            yield from _cells(f"{group}: {setting.name}", curves[setting])
        yield from _orders(state, group, curves)
        if group == OURS:
            yield from _bounds(state, curves)
        if not state.quick:
            save(curves, "" if group == OURS else "papers-")


def _cells(name: str, curves: Sequence[Curve]) -> Iterator[Figure]:
    """Medians of the texts; of the accuracies the lowest and highest as well."""
    passes = len(curves[0].accuracies)
    cells: dict[str, float] = {"texts": float(len(curves)), "passes": float(passes)}
    for k, column in [(k, f"after {k}, %") for k in SHOWN if k < passes] + [
        (passes, "at the end, %")
    ]:
        values = [curve.accuracies[k - 1] for curve in curves]
        cells[column] = median(values)
        if k in (SHOWN[0], passes):
            cells[f"{column}: lowest"], cells[f"{column}: highest"] = min(values), max(values)
    cells["by p(word given symbol), %"] = median(c.posterior_accuracies[-1] for c in curves)
    cells["context length"] = median(c.context_lengths[-1] for c in curves)
    cells["log-likelihood"] = median(c.log_likelihoods[-1] for c in curves)
    cells["processor s a pass"] = float(np.median([curve.seconds for curve in curves]))
    for column, value in cells.items():
        yield Figure(f"{name}: {column}", value, "", repeats=len(curves), cell=(name, column))


def _orders(state: State, group: str, curves: Curves) -> Iterator[Figure]:
    """The worst of second order above the best of first order, at the largest size."""

    def of(order: int, place: int) -> list[float]:
        return [
            median(curve.accuracies[place] for curve in own)
            for setting, own in curves.items()
            if setting.order == order and setting.size in (0, state.sizes[-1])
        ]

    for when, place in (("after 5 passes", 4), ("after 20", 19), ("at the end", -1)):
        if state.quick and place > 4:
            continue
        above = min(of(2, place)) - max(of(1, place))
        what = f"size {state.sizes[-1]}: worst of 2nd order above best of 1st, {when}"
        yield Figure(f"{group}, {what}", above, "points")


def _perplexities(state: State) -> Iterator[Figure]:
    """How well the language models predict other books, by their discount."""
    sentences = state.task.dev[:1500]
    total = sum(map(len, sentences))
    for order in (1, 2):
        for discount in DISCOUNTS:
            words = state.estimated(order, discount)
            value = np.exp(-sum(map(words.log_probability, sentences)) / total)
            name = f"order {order}, discount {discount:g}: perplexity of other books"
            yield Figure(name, float(value), "")


def _bounds(state: State, curves: Curves) -> Iterator[Figure]:
    """Contexts of second order above all else, at every size."""
    bound = None if state.quick else ONE
    found = {(one.order, one.kind, one.size): own for one, own in curves.items()}
    name = {key: one.name for key, one in zip(found, curves, strict=True)}
    for size in state.sizes:
        own = (2, CONTEXTS, size)
        for other in ((2, BEAM, size), (2, RECOMBINING, size), (1, EXACT, 0)):
            # Of the texts that both have.
            pairs = list(zip(found[own], found[other], strict=False))
            above = median(a.accuracies[-1] - b.accuracies[-1] for a, b in pairs)
            what = f"{name[own]} above {name[other]}"
            yield Figure(what, above, "points", at_least=bound, repeats=len(pairs))
