"""Workload `rna`: the Pfold grammar on the test part of bpRNA, nothing about words in it."""

from __future__ import annotations

import lzma
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.data import data_file
from benchmarks.report import Agreement, Figure
from benchmarks.rna import pfold, plain
from benchmarks.rna.folding import Accuracy, most_accurate
from benchmarks.rna.pfold import Pairs, Tables
from inout import Parser

Result = TypeVar("Result")

MOLECULES = "rna/bprna1m90_short.tsv.xz"
GAMMAS = (1.0, 2.0, 4.0)
QUICK = 100  # molecules
# How long sequences are that the oracles fold.
SHORT = 16


@dataclass(frozen=True, eq=False)
class State:
    """The grammar, sequences of bases and their known structures."""

    tables: Tables
    parser: Parser
    sequences: Sequence[str]
    gold: Sequence[Pairs]

    def viterbi(self) -> list[Pairs]:
        """The most likely structure of each molecule, on all cores."""
        parses = self.parser.parse_each(map(list, self.sequences))
        return [set() if p.tree is None else pfold.pairs_of_tree(p.tree) for p in parses]

    def posteriors(self) -> list[NDArray[np.float64]]:
        """How likely each two bases are a pair, on all cores."""

        def of(bases: str) -> NDArray[np.float64]:
            marginals = self.parser.marginals(list(bases))
            return pfold.pair_posteriors(self.parser.grammar, marginals, len(bases))

        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            return list(pool.map(of, self.sequences))


def prepare(quick: bool) -> State:
    """The grammar, and the test part (quick: molecules of it at equal distances)."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with lzma.open(data_file(MOLECULES), "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    test = [(sequence, brackets) for _, _, part, sequence, brackets in rows if part == "test"]
    if quick:
        test = test[:: len(test) // QUICK][:QUICK]
    tables = pfold.tables()
    gold = [pfold.pairs_of_brackets(brackets) for _, brackets in test]
    parser = Parser(pfold.grammar(tables))
    return State(tables, parser, [sequence for sequence, _ in test], gold)


def check(state: State) -> Iterator[Agreement]:
    """Against recursions written by hand; what probabilities of pairs must obey."""
    short = [*(s[:SHORT] for s in state.sequences[::20]), "GGGNAAACCC"]
    parser, tables = state.parser, state.tables
    logs = [math.log(plain.value(tables, s)) for s in short]
    off = max(
        abs(float(parser.log_partition(list(s))) - log) for s, log in zip(short, logs, strict=True)
    )
    yield Agreement(f"log Z of {len(short)} short sequences: recursions by hand", off, 1e-12)
    best = [math.log(plain.value(tables, s, max)) for s in short]
    off = max(
        abs(parser.parse(list(s)).log_weight - log) for s, log in zip(short, best, strict=True)
    )
    yield Agreement(f"best structures of {len(short)} short sequences: by hand", off, 1e-12)
    yield from _check_pairs(state, short[0])
    yield from _check_pairs(state, short[-1])
    sums = [_pairings(state, s).max() for s in state.sequences[::20]]
    yield Agreement("how much likelier than 1 a base is in a pair", max(0.0, max(sums) - 1), 1e-12)
    yield _check_accuracy(state, short[-1])


def _pairings(state: State, bases: str) -> NDArray[np.float64]:
    """How likely each base is in a pair."""
    found = pfold.pair_posteriors(
        state.parser.grammar, state.parser.marginals(list(bases)), len(bases)
    )
    both: NDArray[np.float64] = found.sum(axis=0) + found.sum(axis=1)
    return both


def _check_pairs(state: State, bases: str) -> Iterator[Agreement]:
    """What is missing from Z when a pair is forbidden is the probability of the pair."""
    n, marginals = len(bases), state.parser.marginals(list(bases))
    ours = pfold.pair_posteriors(state.parser.grammar, marginals, n)
    whole = plain.value(state.tables, bases)
    wanted = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            wanted[i, j] = 1 - plain.value(state.tables, bases, forbidden=(i, j)) / whole
    off = float(np.abs(ours - wanted).max())
    yield Agreement(f"pairs of {bases}: by hand, each forbidden in turn", off, 1e-12)


def _check_accuracy(state: State, bases: str) -> Agreement:
    """The structure of least risk against all structures of few bases."""
    n, marginals = len(bases), state.parser.marginals(list(bases))
    posteriors = pfold.pair_posteriors(state.parser.grammar, marginals, n)
    single = 1 - posteriors.sum(axis=0) - posteriors.sum(axis=1)

    def gain(pairs: Pairs) -> float:
        paired = {place for pair in pairs for place in pair}
        alone = [single[i] for i in range(n) if i not in paired]
        return float(sum(alone) + sum(4 * posteriors[pair] for pair in pairs))

    most = max(map(gain, _structures(0, n)))
    return Agreement(
        f"structure of least risk of {bases}: all structures",
        abs(gain(most_accurate(posteriors, 2.0)) - most),
        1e-12,
    )


def _structures(i: int, j: int) -> list[Pairs]:
    """All sets of nested pairs of the bases i .. j−1."""
    if i >= j:
        return [set()]
    found = _structures(i + 1, j)
    for k in range(i + 1, j):
        for inner in _structures(i + 1, k):
            found = found + [{(i, k)} | inner | rest for rest in _structures(k + 1, j)]
    return found


def measure(state: State) -> Iterator[Figure]:
    """Accuracy and speed of best structures and of those of least risk."""
    bases = sum(map(len, state.sequences))
    yield Figure("molecules of the test part", len(state.sequences), "")
    yield Figure("bases", bases, "")
    yield Figure("pairs", sum(map(len, state.gold)), "")
    structures, seconds = _timed(state.viterbi)
    yield from _accuracy("most likely structures", state, structures)
    yield Figure("most likely structures: speed", bases / seconds, "bases/s")
    posteriors, seconds = _timed(state.posteriors)
    yield Figure("probabilities of pairs: speed", bases / seconds, "bases/s")
    yield Figure("probabilities of pairs: all molecules", seconds, "s")
    for gamma in GAMMAS:
        structures, seconds = _timed(partial(_fold, posteriors, gamma))
        name = f"least risk, gamma {gamma:g}"
        yield from _accuracy(name, state, structures)
        yield Figure(f"{name}: structures from probabilities", seconds, "s")


def _fold(posteriors: Sequence[NDArray[np.float64]], gamma: float) -> list[Pairs]:
    return [most_accurate(molecule, gamma) for molecule in posteriors]


def _timed(way: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    found = way()
    return found, time.perf_counter() - start


def _accuracy(name: str, state: State, found: Sequence[Pairs]) -> Iterator[Figure]:
    accuracy = Accuracy.of(state.gold, found)
    yield Figure(f"{name}: sensitivity", 100 * accuracy.sensitivity, "%")
    yield Figure(f"{name}: PPV", 100 * accuracy.ppv, "%")
    yield Figure(f"{name}: F1", 100 * accuracy.f1, "%")
    yield Figure(f"{name}: mean sensitivity of a molecule", 100 * accuracy.mean_sensitivity, "%")
    yield Figure(f"{name}: mean PPV of a molecule", 100 * accuracy.mean_ppv, "%")
