"""Workload `em`: inside-outside over corpora, seconds for each iteration and how they grow."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from benchmarks.em import corpora
from benchmarks.report import Agreement, Figure
from inout import Grammar, em
from inout.grammars import Terminal
from inout.learning import Progress
from tests.oracle.lari_young import lari_young_step

RULES = 2000  # binary ones
SENTENCES = 10_000
SHORT = (5, 15)  # words
ITERATIONS = 3
OFF = 0.15  # how far from 1 the exponent of a linear growth may be
# Twice the time for twice the size; the same beside a fixed part; not more than that.
LINEAR, AFFINE, NO_MORE = "linear", "affine", "at most linear"
Corpus = Sequence[Sequence[str]]


@dataclass(frozen=True, eq=False)
class Problem:
    """A grammar, a corpus, and the threads to use."""

    grammar: Grammar
    corpus: Corpus
    threads: int

    def seconds(self) -> list[float]:
        """Of each iteration; what is done once before comes first."""
        torch.set_num_threads(self.threads)
        times = [time.perf_counter()]

        def note(_: Progress) -> None:
            times.append(time.perf_counter())

        em(self.grammar, self.corpus, tolerance=0, max_iterations=ITERATIONS, progress=note)
        return np.diff(times).tolist()


@dataclass(frozen=True, eq=False)
class State:
    """Grammars by their number of binary rules, and a corpus that all of them can parse."""

    quick: bool
    cores: int
    grammars: Mapping[int, Grammar]
    corpus: Corpus

    @property
    def repeats(self) -> int:
        """How often everything runs."""
        return 1 if self.quick else 3

    @property
    def problem(self) -> Problem:
        """The one to which the others are compared."""
        return Problem(self.grammars[RULES], self.corpus, self.cores)


def prepare(quick: bool) -> State:
    """The grammars, and the sentences drawn from the smallest."""
    sizes = (1000, 2000, 4000, 8000)
    grammars = {size: corpora.random_grammar(size) for size in sizes}
    count = SENTENCES // 2 if quick else SENTENCES
    corpus = corpora.sentences(grammars[sizes[0]], count, *SHORT)
    rough = {size: corpora.rough(grammar) for size, grammar in grammars.items()}
    return State(quick, len(os.sched_getaffinity(0)), rough, corpus)


def check(state: State) -> Iterator[Agreement]:
    """One step against plain Python; rising likelihood; the same on any number of threads."""
    yield from _check_step()
    results = []
    for threads in (1, state.cores):
        torch.set_num_threads(threads)
        corpus = state.corpus[:500]
        results.append(em(state.problem.grammar, corpus, tolerance=0, max_iterations=10))
    fall = max(0.0, -min(np.diff(results[0].log_likelihoods)))
    yield Agreement("fall of the log-likelihood in 10 iterations", float(fall), 0)
    yield Agreement("sentences without a tree", len(results[0].left_out), 0)
    off = (results[0].model.log_weights.exp() - results[1].model.log_weights.exp()).abs().max()
    yield Agreement(f"weights after 10 iterations, 1 thread: {state.cores}", float(off), 0)


def _check_step() -> Iterator[Agreement]:
    torch.set_num_threads(1)
    grammar = corpora.random_grammar(20, symbols=3, words=4)
    corpus = corpora.sentences(grammar, 20, 1, 6)
    grammar = corpora.rough(grammar)
    found = em(grammar, corpus, tolerance=0, max_iterations=1)
    rules = [
        (rule.lhs, *(x.text if isinstance(x, Terminal) else x for x in rule.rhs))
        for rule in grammar.rules
    ]
    old = dict(zip(rules, grammar.log_weights.exp().tolist(), strict=True))
    wanted, log_likelihood = lari_young_step(old, corpus, grammar.start)
    ours = found.model.log_weights.exp().tolist()
    off = max(abs(p - wanted[rule]) for rule, p in zip(rules, ours, strict=True))
    yield Agreement("one step on 20 sentences: Lari & Young in plain Python", off, 1e-12)
    off = abs(found.log_likelihoods[0] - log_likelihood)
    yield Agreement("log-likelihood of 20 sentences: plain Python", off, 1e-10)


def measure(state: State) -> Iterator[Figure]:
    """The time of an iteration, then how it grows with each size, then threads."""
    whole = state.problem
    once, *_ = whole.seconds()
    words = sum(map(len, state.corpus))
    taken = _seconds({0: whole}, state.repeats)[0]
    name = f"{corpora.SYMBOLS} nonterminals, {len(whole.grammar):,} rules"
    name = f"{name}, {len(state.corpus):,} sentences ({words:,} words), {state.cores} cores"
    yield Figure(f"before the first iteration, and that: {name}", once, "s")
    yield Figure(f"iteration: {name}", taken, "s", repeats=state.repeats)
    yield Figure(f"speed: {name}", words / taken, "words/s", repeats=state.repeats)
    yield from _threads(state)
    sizes = [len(state.corpus) // k for k in (4, 2, 1)]
    parts = {n: Problem(whole.grammar, state.corpus[:n], 1) for n in sizes}
    yield from _growth("sentences", parts, state, LINEAR)
    yield from _growth("binary rules of 60 nonterminals", _separate(state), state, AFFINE)
    some = state.corpus[: SENTENCES // 10]
    shared = {n: Problem(g, some, 1) for n, g in state.grammars.items()}
    name = f"binary rules of {corpora.SYMBOLS} nonterminals, right sides shared"
    yield from _growth(name, shared, state, NO_MORE)
    yield from _growth("words of a sentence", _lengths(state), state, None)


def _separate(state: State) -> dict[int, Problem]:
    """Grammars in which each rule means work of its own."""
    corpus = corpora.random_sentences(100 if state.quick else 400, 10)
    sizes = (450, 900, 1800, 3600)
    return {n: Problem(corpora.separate_grammar(n), corpus, 1) for n in sizes}


def _lengths(state: State) -> dict[int, Problem]:
    """The words of the corpus in sentences of one length, fewer of the longer ones."""
    words = [word for sentence in state.corpus for word in sentence]
    grammar, count = state.grammars[8000], 1600 // (4 if state.quick else 1)
    return {
        n: Problem(grammar, [words[i * n : i * n + n] for i in range(count // n)], 1)
        for n in (5, 10, 20, 40)
    }


def _threads(state: State) -> Iterator[Figure]:
    problems = {
        n: Problem(state.problem.grammar, state.corpus, n) for n in sorted({1, 2, state.cores})
    }
    seconds = _seconds(problems, state.repeats)
    for threads, taken in seconds.items():
        yield Figure(f"iteration, {threads} threads", taken, "s", repeats=state.repeats)
    yield Figure(
        "one thread / two threads",
        seconds[1] / seconds[2],
        "times",
        at_least=1.6,
        repeats=state.repeats,
    )


def _growth(
    what: str, problems: Mapping[int, Problem], state: State, bound: str | None
) -> Iterator[Figure]:
    """Seconds at each size, each twice the one before, and the slope of the line in logs."""
    seconds = _seconds(problems, state.repeats)
    scale, unit = 1.0, "s"
    if bound is None:  # the corpora are not of one size
        seconds = {n: taken / len(problems[n].corpus) for n, taken in seconds.items()}
        scale, unit = 1e3, "ms a sentence"
    for size, taken in seconds.items():
        name = f"iteration, one core, {size:,} {what}"
        yield Figure(name, taken * scale, unit, repeats=state.repeats)
    slope = float(np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0])
    most = None if bound is None or bound == LINEAR else 1 + OFF
    name = f"growth with {what}: exponent"
    yield Figure(name, slope, "", at_most=most, repeats=state.repeats)
    if bound == AFFINE:
        slope = _beyond_fixed(list(seconds.values()))
        name = f"growth with {what}, fixed part taken off: exponent"
        yield Figure(name, slope, "", repeats=state.repeats)
    if bound in (LINEAR, AFFINE):
        yield Figure(
            f"{name}, its distance from 1", abs(slope - 1), "", at_most=OFF, repeats=state.repeats
        )


def _beyond_fixed(seconds: list[float]) -> float:
    """The exponent p if the last four are a + b size^p, the size doubling each time."""
    increases = seconds[-1] - seconds[-3], seconds[-2] - seconds[-4]
    return math.log2(increases[0] / increases[1]) if min(increases) > 0 else math.nan


def _seconds(problems: Mapping[int, Problem], repeats: int) -> dict[int, float]:
    """The median over iterations and repeats, the problems taking turns."""
    found: dict[int, list[float]] = {size: [] for size in problems}
    for _ in range(repeats):
        for size, problem in problems.items():
            found[size] += problem.seconds()[1:]
    return {size: median(taken) for size, taken in found.items()}
