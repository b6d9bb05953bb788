"""A dense CKY parser in numpy that shares nothing with the library: the oracle."""

from __future__ import annotations

import numpy as np

from benchmarks.deduction.grammar import Parsing


def cky(parsing: Parsing, start: str = "S") -> tuple[float, int]:
    """(log Z, number of edges of the forest), by the definitions.

    The forest's edges are those that some parse of the whole sentence uses: binary steps, lexical
    steps, and the one that makes the goal.
    """
    symbols = sorted({s for rule in parsing.binary for s in rule} | {a for a, _ in parsing.lexical})
    number = {symbol: i for i, symbol in enumerate(symbols)}
    rules = np.array([[number[s] for s in rule] for rule in parsing.binary])
    heads, lefts, rights = rules.T
    weights = np.exp(list(parsing.binary.values()))
    n, size = len(parsing.words), len(symbols)
    inside = np.zeros((n, n + 1, size))
    for i, word in enumerate(parsing.words):
        for (head, other), weight in parsing.lexical.items():
            if other == word:
                inside[i, i + 1, number[head]] += np.exp(weight)
    spans = [(i, i + width) for width in range(2, n + 1) for i in range(n - width + 1)]
    for i, k in spans:
        for j in range(i + 1, k):
            products = weights * inside[i, j, lefts] * inside[j, k, rights]
            inside[i, k] += np.bincount(heads, products, size)
    root = number[start]
    used = np.zeros(inside.shape, dtype=bool)
    used[0, n, root] = inside[0, n, root] > 0
    num_edges = int(used[0, n, root])
    for i, k in reversed(spans):
        for j in range(i + 1, k):
            fits = used[i, k, heads] & (inside[i, j, lefts] > 0) & (inside[j, k, rights] > 0)
            used[i, j, lefts[fits]] = True
            used[j, k, rights[fits]] = True
            num_edges += int(fits.sum())
    num_edges += int(sum(used[i, i + 1].sum() for i in range(n)))
    return float(np.log(inside[0, n, root])), num_edges
