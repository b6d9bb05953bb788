"""Workload `parser`: grammars of any shape beside NLTK, a WSJ grammar, ATIS, the GENIA treebank."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from nltk.parse import ViterbiParser

from benchmarks.parser import agreement, grammars, treebank
from benchmarks.parser.first_use import first_calls, first_calls_compiled
from benchmarks.parser.grammars import Atis, Sample
from benchmarks.parser.memory import K, peak_memory
from benchmarks.parser.treebank import Treebank
from benchmarks.report import Agreement, Figure
from benchmarks.timing import alternate
from inout import Parser

MIB = 2**20


@dataclass(frozen=True, eq=False)
class State:
    """The grammars of the workload."""

    quick: bool
    wsj: Parser
    words: list[str]
    atis: Atis
    english: Sample
    both: Sample  # what NLTK is timed on
    treebank: Treebank

    @property
    def repeats(self) -> int:
        """How often the long things run."""
        return 3 if self.quick else 15


def prepare(quick: bool) -> State:
    """The grammars read, one of them off the treebank."""
    torch.set_num_threads(1)
    atis = grammars.atis()
    return State(
        quick,
        grammars.wsj("R2"),
        grammars.WSJ_SENTENCE.split(),
        atis,
        grammars.english(8, 12, limit=10 if quick else None),
        atis.sample(8, 12, limit=2 if quick else 12),
        treebank.load(quick),
    )


def check(state: State) -> Iterator[Agreement]:
    """Against NLTK, known numbers of trees, and a deduction program."""
    yield from agreement.with_nltk(state.english)
    yield from agreement.best_weights(state.english)
    yield from agreement.best_weights(state.both)
    yield from agreement.parse_counts(state.atis)
    yield from agreement.with_deduction()


def measure(state: State) -> Iterator[Figure]:
    """One thread for one sentence, all cores for the treebank."""
    torch.set_num_threads(1)
    yield from _once(state)
    yield from _wsj(state)
    yield from _peer(state.both, 1 if state.quick else 5, bound=300)
    yield from _peer(state.english, 1 if state.quick else 5, bound=None)
    yield from _atis(state.atis)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    yield from treebank.figures(state.treebank)


def _questions(parser: Parser, words: list[str]) -> dict[str, Callable[[], Any]]:
    return {
        "inside": lambda: parser.log_partition(words),
        "inside and expected counts": lambda: parser.expected_counts(words),
        "Viterbi": lambda: parser.parse(words),
        f"{K} best": lambda: parser.kbest(words, K),
        "minimum risk": lambda: parser.parse(words, "min_risk"),
        "max-rule": lambda: parser.parse(words, "max_rule"),
    }


def _once(state: State) -> Iterator[Figure]:
    """What a new grammar costs, and the first calls in a new process."""
    start = time.perf_counter()
    grammars.wsj("R2")
    yield Figure("once: WSJ R2 from its file to a parser", time.perf_counter() - start, "s")
    name = "once: first calls of all questions"
    if state.quick:
        compiled = first_calls_compiled()
    else:
        cold, compiled = first_calls()
        for question, taken in cold.items():
            yield Figure(f"once, nothing compiled yet: {question}", taken, "s")
        yield Figure(f"{name}, nothing compiled yet", sum(cold.values()), "s")
    yield Figure(f"{name}, compiled before", sum(compiled.values()), "s")


def _wsj(state: State) -> Iterator[Figure]:
    words, repeats = state.words, state.repeats
    bounds = {"inside": 0.2, "inside and expected counts": 0.6, f"{K} best": 0.6}
    seconds = alternate(_questions(state.wsj, words), repeats)
    for name, taken in seconds.items():
        yield Figure(
            f"WSJ R2, {len(words)} words, one core: {name}",
            taken,
            "s",
            at_most=bounds.get(name),
            repeats=repeats,
        )
    short = [*words[:9], words[-1]]
    seconds = alternate(_questions(state.wsj, short), repeats)
    for name, taken in seconds.items():
        yield Figure(
            f"WSJ R2, {len(short)} words, one core: {name}", taken * 1e3, "ms", repeats=repeats
        )
    peaks = peak_memory()
    name = f"WSJ R2, {len(words)} words: peak memory"
    yield Figure(f"{name} of the process", peaks["whole"] / MIB, "MiB", at_most=1024)
    yield Figure(f"{name} over imports, grammar, machine code", peaks["growth"] / MIB, "MiB")


def _peer(sample: Sample, repeats: int, bound: float | None) -> Iterator[Figure]:
    peer = ViterbiParser(sample.peer)
    seconds = alternate(
        {
            "ours": lambda: [sample.parser.parse(words) for words in sample.sentences],
            "theirs": lambda: [next(iter(peer.parse(words))) for words in sample.sentences],
        },
        repeats,
        warm_up=repeats > 1,
    )
    yield Figure(
        f"Viterbi, {sample.name}, one core",
        seconds["ours"] * 1e3 / len(sample.sentences),
        "ms a sentence",
        repeats=repeats,
    )
    yield Figure(
        f"peer: NLTK's ViterbiParser / ours, {sample.name}",
        seconds["theirs"] / seconds["ours"],
        "times",
        at_least=bound,
        repeats=repeats,
    )


def _atis(atis: Atis) -> Iterator[Figure]:
    start = time.perf_counter()
    parser = Parser(atis.grammar)
    for _, words in atis.counts:
        parser.count(words)
    taken = time.perf_counter() - start
    yield Figure(f"numbers of trees of {len(atis.counts)} ATIS sentences", taken, "s", at_most=60)
