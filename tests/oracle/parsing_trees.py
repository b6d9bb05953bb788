"""Small parsing problems with everything in them, and all their trees written out one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
from inout.kernels.sparse.cpu.passes import ParsingPasses

Array = NDArray[Any]
Row = tuple[int, int, int, int, int]


class Tree(NamedTuple):
    """A tree's log-weight and its nodes, in the form and order of the decoders."""

    log_weight: float
    nodes: tuple[Row, ...]


class Entry(NamedTuple):
    """What the words of a span i..j, both inclusive, may be."""

    number: int
    i: int
    j: int
    symbol: int


@dataclass(frozen=True, eq=False)
class Problem:
    """A grammar, sentences and weights; the root is symbol 0."""

    binary: Array  # [r 3]
    unary: Array  # [u 2]
    num_symbols: int
    sentences: SentenceArrays
    binary_logs: Array  # [r] or [cells r]
    unary_logs: Array  # [u] or [cells u]
    word_logs: Array  # [entries]

    def passes(self) -> ParsingPasses:
        rules = RuleArrays.compile(self.num_symbols, 0, self.binary, self.unary)
        logs = self.binary_logs, self.unary_logs, self.word_logs
        return ParsingPasses(rules, self.sentences, *logs)

    def trees(self, b: int) -> list[Tree]:
        """All trees of sentence b, also those of weight 0."""
        n = int(self.sentences.starts[b + 1] - self.sentences.starts[b])
        return _Enumeration(self, b, n).above(0, n - 1, 0) if n else []

    def possible(self, b: int) -> list[Tree]:
        """The trees that have a weight, best first."""
        found = [x for x in self.trees(b) if x.log_weight > -math.inf]
        return sorted(found, key=lambda x: -x.log_weight)


class _Enumeration:
    """All trees of a sentence, by recursion on the definition."""

    def __init__(self, problem: Problem, b: int, n: int) -> None:
        self.problem, self.n = problem, n
        self.known: dict[tuple[int, int, int], list[Tree]] = {}
        words = problem.sentences
        self.first_cell = sum(int(m) ** 2 for m in np.diff(words.starts)[:b])
        self.entries = []
        for i in range(n):
            position = int(words.starts[b]) + i
            for e in range(words.offsets[position], words.offsets[position + 1]):
                self.entries.append(Entry(e, i, i, int(words.symbols[e])))
        if len(words.arc_offsets):
            for i in range(n):
                for j in range(i, n):
                    cell = self.first_cell + i * n + j
                    for x in range(words.arc_offsets[cell], words.arc_offsets[cell + 1]):
                        number = len(words.symbols) + x
                        self.entries.append(Entry(number, i, j, int(words.arc_symbols[x])))

    def weight(self, logs: Array, i: int, j: int, number: int) -> float:
        if logs.ndim == 1:
            return float(logs[number])
        return float(logs[self.first_cell + i * self.n + j, number])

    def allows(self, i: int, j: int, a: int) -> bool:
        allowed = self.problem.sentences.allowed
        if len(allowed) == 0:
            return True
        return bool(allowed[self.first_cell + i * self.n + j, a if allowed.shape[1] > 1 else 0])

    def below(self, i: int, j: int, a: int) -> list[tuple[float, int, tuple[Row, ...]]]:
        """(log-weight, entry or rule, nodes of the children) of the trees without a unary rule."""
        if not self.allows(i, j, a):
            return []
        problem = self.problem
        found: list[tuple[float, int, tuple[Row, ...]]] = [
            (float(problem.word_logs[x.number]), x.number, ())
            for x in self.entries
            if (x.i, x.j, x.symbol) == (i, j, a)
        ]
        for r, (head, left, right) in enumerate(problem.binary.tolist()):
            for k in range(i, j) if head == a else ():
                weight = self.weight(problem.binary_logs, i, j, r)
                for x in self.above(i, k, left):
                    for y in self.above(k + 1, j, right):
                        log = weight + x.log_weight + y.log_weight
                        found.append((log, r, x.nodes + y.nodes))
        return found

    def above(self, i: int, j: int, a: int) -> list[Tree]:
        """All trees of symbol a over i..j."""
        if (i, j, a) not in self.known:
            self.known[i, j, a] = self._above(i, j, a) if self.allows(i, j, a) else []
        return self.known[i, j, a]

    def _above(self, i: int, j: int, a: int) -> list[Tree]:
        found = []
        for log, number, nodes in self.below(i, j, a):
            found.append(Tree(log, ((i, j + 1, a, -1, number), *nodes)))
        for u, (head, child) in enumerate(self.problem.unary.tolist()):
            if head == a:
                weight = self.weight(self.problem.unary_logs, i, j, u)
                for log, number, nodes in self.below(i, j, child):
                    found.append(Tree(weight + log, ((i, j + 1, a, u, number), *nodes)))
        return found


def random_problem(
    seed: int,
    spread: float = 2.0,
    dead: float = 0.1,
    whole: bool = False,
    arcs: bool = False,
    masked: bool = False,
    anchored: bool = False,
) -> Problem:
    """Doubled rules, impossible rules, sentences of 0 to 4 words; `whole`: weights with ties."""
    rng = np.random.default_rng(seed)
    s = int(rng.integers(2, 4))

    def logs(*shape: int) -> Array:
        values = rng.normal(size=shape) * spread
        values = np.round(values) if whole else values
        return np.where(rng.random(shape) < dead, -np.inf, values)

    binary = rng.integers(s, size=(int(rng.integers(3, 7)), 3))
    unary = rng.integers(s, size=(int(rng.integers(0, 4)), 2))
    if len(unary) > 1 and rng.random() < 0.5:
        unary[1] = unary[0]
    lengths = rng.permutation([0, 1, 1, 2, 3, 4])
    starts = np.append(0, lengths.cumsum())
    positions, cells = int(starts[-1]), int((lengths**2).sum())
    counts = np.where(
        rng.random(positions) < 0.1,
        rng.integers(0, 4, size=positions),
        rng.integers(1, 3, size=positions),
    )
    offsets = np.append(0, counts.cumsum())
    symbols = rng.integers(s, size=int(offsets[-1])).astype(np.int32)
    more: dict[str, Array] = {}
    if arcs:
        chances = np.concatenate([np.triu(np.full((n, n), 0.3)).ravel() for n in lengths])
        numbers = (rng.random(cells) < chances).astype(np.int64)
        more["arc_offsets"] = np.append(0, numbers.cumsum())
        more["arc_symbols"] = rng.integers(s, size=int(numbers.sum())).astype(np.int32)
    if masked:
        columns = 1 if seed % 3 == 0 else s
        more["allowed"] = rng.random((cells, columns)) < 0.8
    sentences = SentenceArrays(starts, offsets, symbols, **more)
    rows = (cells,) if anchored else ()
    return Problem(
        binary, unary, s, sentences, logs(*rows, len(binary)), logs(*rows, len(unary)),
        logs(sentences.num_entries),
    )  # fmt: skip


def as_rows(nodes: Array) -> tuple[Row, ...]:
    """Nodes of a decoder as those of a `Tree`."""
    return tuple((i, j, a, u, r) for i, j, a, u, r in nodes.tolist())


def parts(nodes: tuple[Row, ...]) -> list[tuple[Any, ...]]:
    """Anchored rules and entries: ("unary", u, i, j), ("word", e), ("binary", r, i, k, j)."""
    found: list[tuple[Any, ...]] = []
    for x, (i, j, _, u, number) in enumerate(nodes):
        if u >= 0:
            found.append(("unary", u, i, j))
        if x + 1 < len(nodes) and nodes[x + 1][0] == i:
            found.append(("binary", number, i, nodes[x + 1][1], j))
        else:
            found.append(("word", number))
    return found
