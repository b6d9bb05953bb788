"""Small grammars and sentences, and all their trees written out one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
from inout.kernels.sparse.cpu.passes import ParsingPasses

Array = NDArray[Any]
Entries = list[tuple[int, float]]  # what one word, or arc, may be: symbols and log-weights
Arcs = dict[tuple[int, int, int], Entries]  # by sentence, first and last word
Logs = list[float] | Array  # one number for each rule, or also for each cell


@dataclass(frozen=True)
class Case:
    """A grammar with its log-weights, and sentences as lists of words' entries.

    dropped has (sentence, first word, last word, symbol) that no tree may have after the unary
    rules of a span: what a beam leaves out.
    """

    num_symbols: int
    binary: list[tuple[int, int, int]]
    unary: list[tuple[int, int]]
    binary_logs: Logs
    unary_logs: Logs
    sentences: list[list[Entries]]
    arcs: Arcs = field(default_factory=dict)
    allowed: Array | None = None
    dropped: frozenset[tuple[int, int, int, int]] = frozenset()

    def cells(self) -> Iterator[tuple[int, int, int]]:
        """(sentence, first word, last word), and nonsense, in the order of the cells."""
        for b, words in enumerate(self.sentences):
            for i in range(len(words)):
                for j in range(len(words)):
                    yield b, i, j

    @cached_property
    def cell(self) -> dict[tuple[int, int, int], int]:
        return {x: c for c, x in enumerate(self.cells())}

    @cached_property
    def entries(self) -> list[tuple[tuple[int, int, int], int, float]]:
        """(span, symbol, log-weight) of all entries, words first."""
        found = [
            ((b, i, i), a, x)
            for b, words in enumerate(self.sentences)
            for i, entries in enumerate(words)
            for a, x in entries
        ]
        return found + [(c, a, x) for c in self.cells() for a, x in self.arcs.get(c, [])]

    @cached_property
    def found(self) -> dict[tuple[int, int, int, int], list[Tree]]:
        """The trees written out so far."""
        return {}

    def allows(self, b: int, i: int, j: int, a: int) -> bool:
        if self.allowed is None:
            return True
        return bool(self.allowed[self.cell[b, i, j], a if self.allowed.shape[1] > 1 else 0])

    def weight(self, logs: Logs, number: int, b: int, i: int, j: int) -> float:
        values = np.asarray(logs)
        return float(values[number] if values.ndim == 1 else values[self.cell[b, i, j], number])

    def arrays(self) -> tuple[RuleArrays, SentenceArrays]:
        starts, offsets, symbols = [0], [0], []
        for sentence in self.sentences:
            for entries in sentence:
                symbols += [a for a, _ in entries]
                offsets.append(len(symbols))
            starts.append(len(offsets) - 1)
        rules = RuleArrays.compile(
            self.num_symbols, 0,
            np.array(self.binary, np.int64).reshape(-1, 3),
            np.array(self.unary, np.int64).reshape(-1, 2),
        )  # fmt: skip
        further: dict[str, Any] = {}
        if self.arcs:
            counts = [len(self.arcs.get(c, [])) for c in self.cells()]
            further["arc_offsets"] = np.append(0, np.cumsum(counts))
            own = [a for _, a, _ in self.entries[len(symbols) :]]
            further["arc_symbols"] = np.array(own, np.int32)
        if self.allowed is not None:
            further["allowed"] = self.allowed
        words = np.array(starts), np.array(offsets), np.array(symbols, np.int32)
        return rules, SentenceArrays(*words, **further)

    def weights(self) -> tuple[Array, Array, Array]:
        words = np.array([x for _, _, x in self.entries], float)
        return np.array(self.binary_logs, float), np.array(self.unary_logs, float), words

    def passes(self, beam: float = 0.0) -> ParsingPasses:
        return ParsingPasses(*self.arrays(), *self.weights(), beam)


class Tree(NamedTuple):
    """A tree's log-weight, and what it consists of, parents first, left before right.

    parts: (binary, unary or word; number; first word, last of the left part or -1, last word);
    nodes: (first word, last word, symbol after the unary rules, symbol before them).
    """

    log_weight: float
    parts: tuple[tuple[str, int, int, int, int], ...]
    nodes: tuple[tuple[int, int, int, int], ...]


def trees_below(case: Case, b: int, i: int, j: int, a: int) -> list[Tree]:
    """All trees of symbol a over i..j with no unary rule at their top, nor their top node."""
    found = [
        Tree(log, (("word", e, i, -1, j),), ())
        for e, (span, symbol, log) in enumerate(case.entries)
        if span == (b, i, j) and symbol == a
    ]
    for r, (head, left, right) in enumerate(case.binary):
        if head != a:
            continue
        weight = case.weight(case.binary_logs, r, b, i, j)
        for k in range(i, j):
            for x in trees(case, b, i, k, left):
                for y in trees(case, b, k + 1, j, right):
                    log = weight + (x.log_weight + y.log_weight)
                    parts = (("binary", r, i, k, j), *x.parts, *y.parts)
                    found.append(Tree(log, parts, x.nodes + y.nodes))
    return found


def trees(case: Case, b: int, i: int, j: int, a: int) -> list[Tree]:
    """All trees of symbol a over i..j that have a weight."""
    if (b, i, j, a) not in case.found:
        case.found[b, i, j, a] = _trees(case, b, i, j, a)
    return case.found[b, i, j, a]


def _trees(case: Case, b: int, i: int, j: int, a: int) -> list[Tree]:
    if not case.allows(b, i, j, a) or (b, i, j, a) in case.dropped:
        return []
    found = [x._replace(nodes=((i, j, a, a), *x.nodes)) for x in trees_below(case, b, i, j, a)]
    for u, (head, child) in enumerate(case.unary):
        if head == a and case.allows(b, i, j, child):
            weight = case.weight(case.unary_logs, u, b, i, j)
            for x in trees_below(case, b, i, j, child):
                parts = (("unary", u, i, -1, j), *x.parts)
                found.append(Tree(weight + x.log_weight, parts, ((i, j, a, child), *x.nodes)))
    return [x for x in found if x.log_weight > -math.inf]


def possible_trees(case: Case) -> Iterator[list[Tree]]:
    """The trees of each sentence."""
    for b, words in enumerate(case.sentences):
        yield trees(case, b, 0, len(words) - 1, 0) if words else []


def log_sum(found: Iterable[Tree]) -> float:
    logs = [x.log_weight for x in found]
    return float(np.logaddexp.reduce(logs)) if logs else -math.inf


def random_case(seed: int, spread: float = 2.0, dead: float = 0.1) -> Case:
    """A random grammar with doubled rules, impossible rules, and sentences of all lengths."""
    rng = np.random.default_rng(seed)
    s = int(rng.integers(2, 4))
    binary = [tuple(x) for x in rng.integers(s, size=(int(rng.integers(3, 7)), 3)).tolist()]
    unary = [tuple(x) for x in rng.integers(s, size=(int(rng.integers(0, 4)), 2)).tolist()]
    sentences = []
    for n in rng.permutation([0, 1, 1, 2, 3, 4]):
        words = []
        for _ in range(n):
            count = int(rng.integers(0, 4)) if rng.random() < 0.1 else int(rng.integers(1, 3))
            words.append(random_entries(rng, s, count, spread, dead))
        sentences.append(words)
    logs = random_logs(rng, len(binary), spread, dead), random_logs(rng, len(unary), spread, dead)
    return Case(s, binary, unary, *logs, sentences)


def random_logs(rng: np.random.Generator, size: Any, spread: float, dead: float) -> Any:
    values = rng.normal(size=size) * spread
    return np.where(rng.random(size) < dead, -np.inf, values).tolist()


def random_entries(
    rng: np.random.Generator, s: int, count: int, spread: float, dead: float
) -> Entries:
    symbols = rng.integers(s, size=count).tolist()
    return list(zip(symbols, random_logs(rng, count, spread, dead), strict=True))


def with_arcs(case: Case, seed: int, spread: float = 2.0) -> Case:
    """The case with arcs at some of its spans, and some words left out."""
    rng = np.random.default_rng((seed, 1))
    arcs: Arcs = {}
    for b, i, j in case.cells():
        if i <= j and rng.random() < 0.4:
            count = int(rng.integers(1, 3))
            arcs[b, i, j] = random_entries(rng, case.num_symbols, count, spread, 0.1)
    sentences = [[x if rng.random() < 0.8 else [] for x in words] for words in case.sentences]
    return replace(case, arcs=arcs, sentences=sentences)


def with_mask(case: Case, seed: int, whole_spans: bool = False) -> Case:
    """The case with some symbols not allowed over some spans."""
    rng = np.random.default_rng((seed, 2))
    size = len(case.cell), 1 if whole_spans else case.num_symbols
    return replace(case, allowed=rng.random(size) < 0.85)


def with_anchors(case: Case, seed: int, kinds: str = "bu", spread: float = 2.0) -> Case:
    """The case with weights of its own for each span, of binary and/or unary rules."""
    rng = np.random.default_rng((seed, 3))
    changes = {}
    for kind, name in (("b", "binary"), ("u", "unary")):
        if kind in kinds:
            size = len(case.cell), len(getattr(case, name))
            changes[f"{name}_logs"] = np.array(random_logs(rng, size, spread, 0.1)).reshape(size)
    return replace(case, **changes)
