"""Workload `latent`: latent-variable grammars of GENIA by EM and by spectral learning."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from nltk.tree import Tree

from benchmarks import genia
from benchmarks.latent import bounds, memory
from benchmarks.latent.limits import limits, semi_supervised
from benchmarks.latent.rows import Row, gold_parts, latent_row, plain_row
from benchmarks.report import Agreement, Figure
from inout import Markovisation, Parser
from inout.grammars.treebank import leaves
from inout.latent import LatentGrammar, LatentParser, TrainingSet, random_model, refined_grammar
from inout.latent.starts import Latent
from inout.learning.latent_grammars import fit_latent_em, fit_latent_grammar

GIB = 2**30
SIZES = (2, 4, 8, 16, 24)
MEASURED = 16  # the number of values that the bounds are about
RESTARTS = 2
RESTARTED = 8  # the number of values of the random starts
PLAIN = {
    "treebank PCFG": Markovisation(horizontal=None, vertical=1),
    "Markovised, parent annotation": Markovisation(horizontal=1, vertical=2, tags=True),
}
METHODS = {"viterbi": "Viterbi", "min_risk": "minimum risk"}


@dataclass(frozen=True, eq=False)
class State:
    """The training set and the trees to find again."""

    quick: bool
    train: list[Tree]
    data: TrainingSet
    preparing: float  # seconds
    parts: dict[str, list[Tree]]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of latent values."""
        return (2, 4) if self.quick else SIZES

    @property
    def measured(self) -> int:
        """The number of values that the bounds are about."""
        return 4 if self.quick else MEASURED


def prepare(quick: bool) -> State:
    """GENIA's training part (quick: 1,500 trees of it) and the short trees of the others."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    train = genia.trees("train", limit=1500 if quick else None)
    start = time.perf_counter()
    data = TrainingSet.of(train)
    taken = time.perf_counter() - start
    return State(quick, train, data, taken, gold_parts(60 if quick else None))


def check(state: State) -> Iterator[Agreement]:
    """The block kernel against the parser of ordinary grammars, with two values each."""
    generator = torch.Generator().manual_seed(0)
    grammar = state.data.grammar(random_model(state.data.trees, 2, generator))
    plain = Parser(refined_grammar(grammar.model))
    latent = LatentParser(grammar, threshold=None)
    known = grammar.vocabulary.replace
    sentences = [leaves(tree) for tree in state.parts["dev"] if len(leaves(tree)) <= 12][:10]
    analyses = [latent.given(words) for words in sentences]
    exact = [float(plain.log_partition(known(words))) for words in sentences]
    off = max(abs(a.log_partition - e) for a, e in zip(analyses, exact, strict=True))
    yield Agreement(f"log Z of {len(exact)} sentences: refined grammar", off, 1e-10)
    off = 0.0
    for words, found in zip(sentences, analyses, strict=True):
        summed: dict[tuple[str, int, int], float] = {}
        for (name, i, j), value in plain.marginals(known(words)).constituents.items():
            place = name.rpartition("_")[0], i, j
            summed[place] = summed.get(place, 0.0) + value
        off = max(
            [off, *(abs(summed.get(place, 0.0) - v) for place, v in found.posteriors.items())]
        )
    yield Agreement("posteriors of their constituents: refined grammar", off, 1e-10)


def measure(state: State) -> Iterator[Figure]:
    """Every row, then what must hold between them."""
    plain: list[Row] = []
    for name, orders in PLAIN.items():
        for row in _plain_rows(state, name, orders):
            plain.append(row)
            yield from row.figures()
    spectral: list[Row] = []
    for latent in state.sizes:
        row, grammar = _spectral_row(state, f"spectral, m = {latent}", latent)
        spectral.append(row)
        yield from row.figures()
        if latent == state.measured:
            yield from _pruning(state, row.name, grammar)
    # One part is enough to see how far these are from the others, and takes half of the time.
    name = "spectral, m by singular values"
    yield from _spectral_row(state, name, "auto", ["dev"])[0].figures()
    for latent in state.sizes:
        name = f"spectral, the paper's, m = {latent}"
        row, _ = _spectral_row(state, name, latent, ["dev"], estimator="paper")
        yield from row.figures()
    by_em: list[Row] = []
    few: dict[int, LatentGrammar] = {}
    for row, latent, grammar in _em_rows(state):
        by_em.append(row)
        few[latent] = grammar
        yield from row.figures()
    yield from _restarts(state)
    dev = state.parts["dev"][: 20 if state.quick else 400]
    for latent in (2, 4):
        yield from limits(state.data, latent, few[latent].model, dev)
    counts = (
        {"parsed": 100, "words_only": 50} if state.quick else {"parsed": 500, "words_only": 1000}
    )
    yield from semi_supervised(state.train, dev, **counts)
    yield from bounds.figures(5 if state.quick else 60)
    yield from _bounds(state, plain, spectral, by_em)


def _spectral_row(
    state: State, name: str, latent: Latent, parts: Sequence[str] | None = None, **options: Any
) -> tuple[Row, LatentGrammar]:
    start = time.perf_counter()
    grammar = fit_latent_grammar(state.data, latent, "spectral", **options)
    taken = time.perf_counter() - start
    chosen = {part: state.parts[part] for part in parts or state.parts}
    return latent_row(name, taken, grammar, chosen), grammar


def _plain_rows(state: State, name: str, orders: Markovisation) -> Iterator[Row]:
    from inout.grammars import Grammar

    start = time.perf_counter()
    grammar = Grammar.from_treebank(state.train, orders)
    taken = time.perf_counter() - start
    for method, shown in METHODS.items():
        yield plain_row(f"{name}, {shown}", taken, grammar, method, state.parts)


def _em_rows(state: State) -> Iterator[tuple[Row, int, LatentGrammar]]:
    """The models after each split; the seconds are those from the beginning."""
    found: list[tuple[int, float, LatentGrammar]] = []
    start = time.perf_counter()
    fit_latent_em(
        state.data,
        state.sizes[-1],
        after_round=lambda model, latent: found.append(
            (latent, time.perf_counter() - start, state.data.grammar(model))
        ),
    )
    for latent, taken, grammar in found:
        row = latent_row(f"EM, splits, m = {latent}", taken, grammar, state.parts)
        yield row, latent, grammar


def _restarts(state: State) -> Iterator[Figure]:
    """EM from random points, the number of values full from the start."""
    latent = min(RESTARTED, state.measured)
    start = time.perf_counter()
    model = fit_latent_em(state.data, latent, "random", restarts=RESTARTS)
    taken = time.perf_counter() - start
    name = f"EM, best of {1 + RESTARTS} random starts, m = {latent}"
    yield from latent_row(name, taken, state.data.grammar(model), state.parts).figures()


def _pruning(state: State, name: str, grammar: LatentGrammar) -> Iterator[Figure]:
    """What pruning costs: F1 on the first dev sentences with and without it; the mass lost."""
    part = {"dev": state.parts["dev"][: 20 if state.quick else 200]}
    pruned = latent_row(name, 0.0, grammar, part)
    whole = latent_row(name, 0.0, grammar, part, threshold=None)
    about = f"{name}, {len(part['dev'])} dev sentences"
    yield Figure(f"{about}: F1 with pruning", pruned.f1["dev"], "%")
    yield Figure(f"{about}: F1 without pruning", whole.f1["dev"], "%")
    lost = whole.f1["dev"] - pruned.f1["dev"]
    yield Figure(f"{about}: F1 lost by pruning", lost, "points", at_most=0.3)
    yield Figure(f"{about}: speed without pruning", whole.speed, "sentences/s")
    parser = LatentParser(grammar)
    masses = [parser.given(leaves(tree)).lost_mass() for tree in part["dev"]]
    yield Figure(f"{about}: skeletal mass lost, mean", float(np.mean(masses)), "")


def _bounds(
    state: State, plain: list[Row], spectral: list[Row], by_em: list[Row]
) -> Iterator[Figure]:
    measured = state.measured
    taken = memory.train(measured, 1500 if state.quick else None)
    name = f"spectral, m = {measured}, trees read, a process of its own"
    yield Figure(f"{name}: training", taken["seconds"] / 60, "min", at_most=5)
    yield Figure(f"{name}: peak memory", taken["bytes"] / GIB, "GiB", at_most=6)
    best_em = max(by_em, key=lambda row: row.f1["dev"])
    best_spectral = max(spectral, key=lambda row: row.f1["dev"])
    own = next(row for row in spectral if row.name.endswith(f" {measured}"))
    yield Figure(
        f"EM to its best dev F1 ({best_em.name}) / {own.name}: training",
        best_em.training / own.training,
        "times",
        at_least=None if state.quick else 1,
    )
    yield Figure(f"{own.name}: speed with pruning", own.speed, "sentences/s", at_least=10)
    best = max([best_em, best_spectral], key=lambda row: row.f1["dev"])
    # The bounds are for all of the training part.
    least = (None, None, None) if state.quick else (6.0, 0.0, -1.0)
    for part in state.parts:
        above = best.f1[part] - max(row.f1[part] for row in plain if "treebank" in row.name)
        yield Figure(
            f"{part} F1: best latent ({best.name}) above the treebank PCFG",
            above,
            "points",
            at_least=least[0],
        )
        above = best.f1[part] - max(row.f1[part] for row in plain if "treebank" not in row.name)
        yield Figure(
            f"{part} F1: best latent above the parent-annotated PCFG",
            above,
            "points",
            at_least=least[1],
        )
        above = best_spectral.f1[part] - best_em.f1[part]
        yield Figure(f"{part} F1: best spectral above best EM", above, "points", at_least=least[2])
