"""Alignments by their definition: all bipartite graphs, and scores read off their edges."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

Graph = tuple[tuple[int, int], ...]

BEGIN, END = "BEGIN", "END"


def graphs(n: int, m: int, *, stars: bool, most_letters: int | None = None) -> Iterator[Graph]:
    """All graphs between n symbols and m letters that do not cross and leave no node alone."""
    subsets = [
        some
        for size in range(1, min(m, most_letters or m) + 1)
        for some in combinations(range(m), size)
    ]
    for graph in _uncrossed(n, subsets):
        above = [sum(i == node for i, _ in graph) for node in range(n)]
        below = [sum(k == node for _, k in graph) for node in range(m)]
        if 0 in below or (stars and any(above[i] > 1 and below[k] > 1 for i, k in graph)):
            continue
        yield graph


def _uncrossed(n: int, subsets: list[tuple[int, ...]]) -> Iterator[Graph]:
    """All ways to link each of n symbols with one of the sets of letters without crossing."""
    if n == 0:
        yield ()
        return
    for graph in _uncrossed(n - 1, subsets):
        for letters in subsets:
            if all(k <= h for _, k in graph for h in letters):
                yield (*graph, *((n - 1, h) for h in letters))


def delannoy(n: int, m: int) -> int:
    """The number of ways from (0, 0) to (n, m) by steps of one in either direction or both."""
    return sum(math.comb(n, k) * math.comb(m, k) * 2**k for k in range(min(n, m) + 1))


class Weights:
    """Weights of n-grams, drawn when they are first asked for, the same for the same n-gram."""

    def __init__(self, seed: int, order: int) -> None:
        self.seed, self.order = seed, order
        self.drawn: dict[Any, float] = {}
        self.shifts: dict[Any, float] = {}

    def __call__(self, *ngram: Any) -> float:
        if ngram not in self.drawn:
            self.drawn[ngram] = random.Random(f"{self.seed} {ngram}").gauss(0, 0.7)
        return self.drawn[ngram] + self.shifts.get(ngram, 0.0)

    def score(self, x: Sequence[int], y: Sequence[int], graph: Graph) -> float:
        """The sum of the weights of all n-grams of letters and of edges."""
        return sum(self(*ngram) for ngram in self.ngrams(x, y, graph))

    def ngrams(self, x: Sequence[int], y: Sequence[int], graph: Graph) -> Iterator[tuple[Any, ...]]:
        """("letters", what came before, the letter), ("edges", what came before, the edge)."""
        for name, shown in (("letters", [*y, END]), ("edges", labelled(x, y, graph))):
            padded: list[Any] = [BEGIN] * self.order + list(shown)
            for place in range(self.order, len(padded)):
                for k in range(self.order):
                    yield name, tuple(padded[place - k : place]), padded[place]


def labelled(x: Sequence[int], y: Sequence[int], graph: Graph) -> list[tuple[int, str, int]]:
    """Each edge in order as (symbol, how it goes on, letter; -1 where no letter is new)."""
    found, before = [], (-1, -1)
    for i, k in sorted(graph):
        kind = "next" if i > before[0] and k > before[1] else "same" if k > before[1] else "share"
        found.append((x[i], kind, -1 if kind == "share" else y[k]))
        before = (i, k)
    return found


def everything(
    x: Sequence[int], letters: int, *, stars: bool, most_letters: int
) -> Iterator[tuple[tuple[int, ...], Graph]]:
    """All outputs of an input with all their alignments."""
    for m in range(1, len(x) * most_letters + 1):
        for graph in graphs(len(x), m, stars=stars, most_letters=most_letters):
            for y in product(range(letters), repeat=m):
                yield y, graph


def log_sum(values: Sequence[float]) -> float:
    """log Σ exp."""
    if not values:
        return -math.inf
    most = max(values)
    return most + math.log(math.fsum(math.exp(value - most) for value in values))
