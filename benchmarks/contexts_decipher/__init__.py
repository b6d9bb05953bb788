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

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
import torch

from benchmarks.contexts_decipher.data import Task, load
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
from benchmarks.report import RESULTS, Agreement, Figure
from inout.contexts.hidden_markov import ContextHiddenMarkovModel
from inout.contexts.language_model import NGramLanguageModel
from inout.viz.lines import line_chart

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
        labels = len(self.task.words)
        return {
            order: NGramLanguageModel.estimated(self.task.plain, labels, order) for order in (1, 2)
        }

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
    short = Task(state.task.words, state.task.plain, state.task.cipher[:30], state.task.key)
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
        _save(state, curves)
    yield from _bounds(state, curves)


def _bounds(state: State, curves: dict[Setting, Curve]) -> Iterator[Figure]:
    """Contexts of second order above all else, at every size."""
    last = {setting: curve.accuracies[-1] for setting, curve in curves.items()}
    bound = None if state.quick else ONE
    for size in state.sizes:
        own = last[Setting(2, CONTEXTS, size)]
        for other in (Setting(2, BEAM, size), Setting(2, RECOMBINING, size), Setting(1, EXACT)):
            name = f"{Setting(2, CONTEXTS, size).name} above {other.name}"
            yield Figure(name, own - last[other], "points", at_least=bound)


def _save(state: State, curves: dict[Setting, Curve]) -> None:
    """The curves as JSON, and figures 5 and 6."""
    RESULTS.mkdir(exist_ok=True)
    document = {setting.name: asdict(curve) for setting, curve in curves.items()}
    path = RESULTS / "contexts-decipher-curves.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    largest = state.sizes[-1]
    left = [
        Setting(1, EXACT),
        *(Setting(order, kind, largest) for order in (1, 2) for kind in (BEAM, CONTEXTS)),
    ]
    right = [Setting(2, kind, size) for kind in (BEAM, CONTEXTS) for size in state.sizes]
    length = [Setting(2, CONTEXTS, size) for size in state.sizes]
    for name, settings, title, up in (
        ("orders", left, f"Decipherment, size {largest}", "mapping accuracy, %"),
        ("sizes", right, "Decipherment, 2nd order", "mapping accuracy, %"),
        ("lengths", length, "Decipherment, 2nd order", "average context length"),
    ):
        series = {
            setting.name: list(
                enumerate(
                    curves[setting].context_lengths
                    if name == "lengths"
                    else curves[setting].accuracies,
                    1,
                )
            )
            for setting in settings
        }
        dashed = [setting.name for setting in settings if setting.kind == BEAM]
        picture = line_chart(series, title=title, across="pass of EM", up=up, dashed=dashed)
        (RESULTS / f"contexts-decipher-{name}.svg").write_text(picture, encoding="utf-8")
