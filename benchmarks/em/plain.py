"""One step of inside-outside as in Lari & Young (1990), in plain Python: the oracle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

# Probabilities of A -> B C and of A -> w.
Binary = Mapping[tuple[str, str, str], float]
Lexical = Mapping[tuple[str, str], float]
Table = dict[tuple[int, int, str], float]


def step(
    binary: Binary, lexical: Lexical, corpus: Sequence[Sequence[str]], start: str
) -> tuple[dict[tuple[str, ...], float], float]:
    """(new probabilities, likelihood of the corpus under the old ones)."""
    uses: dict[tuple[str, ...], float] = defaultdict(float)
    likelihood = 1.0
    for words in corpus:
        inside = _inside(binary, lexical, words)
        outside = _outside(binary, inside, len(words), start)
        total = inside[0, len(words), start]
        likelihood *= total
        for i, word in enumerate(words):
            for (a, w), p in lexical.items():
                if w == word:
                    uses[a, w] += outside[i, i + 1, a] * p / total
        for i, j, k in _splits(len(words)):
            for (a, b, c), p in binary.items():
                both = inside[i, j, b] * inside[j, k, c]
                uses[a, b, c] += outside[i, k, a] * p * both / total
    totals: dict[str, float] = defaultdict(float)
    for rule, count in uses.items():
        totals[rule[0]] += count
    return {rule: count / totals[rule[0]] for rule, count in uses.items()}, likelihood


def _splits(n: int) -> list[tuple[int, int, int]]:
    """All (start, middle, end), narrow spans first."""
    widths = range(2, n + 1)
    return [(i, j, i + w) for w in widths for i in range(n - w + 1) for j in range(i + 1, i + w)]


def _inside(binary: Binary, lexical: Lexical, words: Sequence[str]) -> Table:
    table: Table = defaultdict(float)
    for i, word in enumerate(words):
        for (a, w), p in lexical.items():
            if w == word:
                table[i, i + 1, a] += p
    for i, j, k in _splits(len(words)):
        for (a, b, c), p in binary.items():
            table[i, k, a] += p * table[i, j, b] * table[j, k, c]
    return table


def _outside(binary: Binary, inside: Table, n: int, start: str) -> Table:
    table: Table = defaultdict(float)
    table[0, n, start] = 1.0
    for i, j, k in reversed(_splits(n)):
        for (a, b, c), p in binary.items():
            table[i, j, b] += table[i, k, a] * p * inside[j, k, c]
            table[j, k, c] += table[i, k, a] * p * inside[i, j, b]
    return table
