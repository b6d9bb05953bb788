"""Workload `contexts-decipher`: a substitution cipher of 500 words, read by EM without a key.

Steinhardt & Liang, "Reified context models" (2015), sections 6 and 7, figures 5 and 6. What the
paper does not say was chosen: sentences have no end symbol (as a hidden Markov model has none);
EM starts from uniform emissions, for all methods alike, so that the seed's cipher only names the
symbols otherwise; a symbol is read as the label y of the largest p(symbol | y), the parameters
that EM learns (the reading by p(y | symbol) is in the table as well). Contexts remember two
labels at most, those of the beam everything; a stronger beam merges histories with the same last
labels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

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
    Setting,
    exact_expectation,
    learn,
)
from benchmarks.report import Agreement, Figure
from inout.contexts.hidden_markov import ContextHiddenMarkovModel
from inout.contexts.language_model import NGramLanguageModel

# The paper has 0.25. On this text a larger one predicts far better, above all in second order; see
# the perplexities, which are of books that are neither in the plain text nor in the cipher. With
# 0.25 trigrams predict worse than bigrams do, and second order is hardly above first order exact.
DISCOUNT = 0.75
DISCOUNTS = (0.25, 0.5, 0.75, 0.9)
ONE = 0.1  # points: less than one symbol of 500


@dataclass(frozen=True, eq=False)
class State:
    """The cipher and the language models."""

    quick: bool
    task: Task

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of contexts."""
        return (5, 20) if self.quick else (10, 20, 30, 60)

    @property
    def iterations(self) -> int:
        """Passes of EM."""
        return 12 if self.quick else 30

    @cached_property
    def words(self) -> dict[int, NGramLanguageModel]:
        """The language model of each order."""
        return {order: self.estimated(order, DISCOUNT) for order in (1, 2)}

    def estimated(self, order: int, discount: float) -> NGramLanguageModel:
        """A language model of the plain text."""
        labels = len(self.task.words)
        return NGramLanguageModel.estimated(self.task.plain, labels, order, discount=discount)

    @property
    def settings(self) -> list[Setting]:
        """All runs; first those of the left part of figure 5."""
        largest = self.sizes[-1]
        first = [Setting(1, EXACT), *(Setting(1, kind, largest) for kind in (BEAM, CONTEXTS))]
        kinds = (BEAM, RECOMBINING, CONTEXTS)
        return first + [Setting(2, kind, size) for kind in kinds for size in self.sizes]


def prepare(quick: bool, seed: int = 0) -> State:
    """The task (quick: 100 words, 400 sentences)."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    return State(quick, load(100, 400, seed) if quick else load(500, 2000, seed))


def check(state: State) -> Iterator[Agreement]:
    """All contexts of first order against the hidden Markov model, under random emissions."""
    generator = torch.Generator().manual_seed(0)
    labels = len(state.task.words)
    emission = torch.randn(labels, labels, generator=generator, dtype=torch.float64).log_softmax(1)
    short = replace(state.task, cipher=state.task.cipher[:30])
    exact = exact_expectation(short, state.words[1])(emission)
    found = ContextHiddenMarkovModel(state.words[1], emission, labels).expectation(short.cipher)
    off = np.abs(found.log_likelihoods / exact.log_likelihoods - 1).max()
    yield Agreement("log Z of 30 sentences, all contexts: hidden Markov model", off, 1e-12)
    off = np.abs(found.counts - exact.counts).max()
    yield Agreement("expected counts of emissions: hidden Markov model", off, 1e-10)
    fewer = ContextHiddenMarkovModel(state.words[2], emission, state.sizes[0])
    total = fewer.expectation(short.cipher).counts.sum()
    wanted = sum(map(len, short.cipher))
    yield Agreement("expected counts of few contexts add up", abs(total / wanted - 1), 1e-12)


def measure(state: State) -> Iterator[Figure]:
    """Every run, then what must hold between them."""
    curves: dict[Setting, Curve] = {}
    yield Figure("symbols that occur", float(len(state.task.occurring)), "")
    yield Figure("words matched by frequency alone", state.task.by_frequency(), "%")
    yield from _perplexities(state)
    shown = [k for k in (5, 10, 20, 30) if k < state.iterations] + [state.iterations]
    for setting in state.settings:
        words = state.words[setting.order]
        curve = curves[setting] = learn(state.task, words, setting, state.iterations)
        name = setting.name
        cells = {f"accuracy after {k}, %": curve.accuracies[k - 1] for k in dict.fromkeys(shown)}
        cells["by p(word given symbol), %"] = curve.posterior_accuracies[-1]
        cells["context length"] = curve.context_lengths[-1]
        cells["log-likelihood"] = curve.log_likelihoods[-1]
        cells["s a pass"] = float(np.median(curve.seconds))
        for column, value in cells.items():
            yield Figure(f"{name}: {column}", value, "", cell=(name, column))
    if not state.quick:
        save(curves, state.sizes)
    yield from _bounds(state, curves)


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


def _bounds(state: State, curves: dict[Setting, Curve]) -> Iterator[Figure]:
    """Contexts of second order above all else, at every size."""
    last = {setting: curve.accuracies[-1] for setting, curve in curves.items()}
    bound = None if state.quick else ONE
    for size in state.sizes:
        own = last[Setting(2, CONTEXTS, size)]
        for other in (Setting(2, BEAM, size), Setting(2, RECOMBINING, size), Setting(1, EXACT)):
            name = f"{Setting(2, CONTEXTS, size).name} above {other.name}"
            yield Figure(name, own - last[other], "points", at_least=bound)
