"""Arborescences by trying every vector of heads, and by determinants of many digits: the truth.

Shares no code with the library.
"""

from __future__ import annotations

import math
from decimal import Decimal, getcontext, localcontext
from itertools import product

Heads = tuple[int, ...]
Table = list[list[Decimal]]


def arborescences(n: int, single_root: bool) -> list[Heads]:
    """All heads of n words without a cycle: 0 for the root, j for the j-th word."""
    return [
        heads
        for heads in product(range(n + 1), repeat=n)
        if (heads.count(0) == 1 or not single_root)
        and all(_reaches_root(heads, word) for word in range(1, n + 1))
    ]


def _reaches_root(heads: Heads, word: int) -> bool:
    for _ in heads:
        word = heads[word - 1]
        if word == 0:
            return True
    return False


def determinant(matrix: Table) -> Decimal:
    """By elimination with partial pivoting, in the precision of the context."""
    rows, result = [list(row) for row in matrix], Decimal(1)
    for k in range(len(rows)):
        best = max(range(k, len(rows)), key=lambda i: abs(rows[i][k]))
        if rows[best][k] == 0:
            return Decimal(0)
        if best != k:
            rows[k], rows[best], result = rows[best], rows[k], -result
        result *= rows[k][k]
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / rows[k][k]
            for j in range(k, len(rows)):
                rows[i][j] -= factor * rows[k][j]
    return result


def laplacian(weights: Table, single_root: bool) -> Table:
    """Of weights [n+1 n], row 0 for the root (Koo et al. 2007, equations 4 and 12)."""
    n = len(weights[0])
    matrix = [[-weights[h + 1][d] for d in range(n)] for h in range(n)]
    for d in range(n):
        total = sum((weights[h + 1][d] for h in range(n) if h != d), Decimal(0))
        matrix[d][d] = total if single_root else total + weights[0][d]
    if single_root:
        matrix[0] = list(weights[0])
    return matrix


def exact(scores: list[list[float]], single_root: bool, digits: int) -> tuple[float, Table]:
    """log Z and the probability of every arc, in so many digits."""
    with localcontext() as context:
        context.prec = digits
        weights = [[_exp(x) for x in row] for row in scores]
        n = len(weights[0])
        z = determinant(laplacian(weights, single_root))
        chances = [[Decimal(0)] * n for _ in range(n + 1)]
        for h, d in product(range(n + 1), range(n)):
            if h == d + 1 or weights[h][d] == 0:
                continue
            only = [list(row) for row in weights]
            for other in range(n + 1):
                only[other][d] = weights[h][d] if other == h else Decimal(0)
            chances[h][d] = determinant(laplacian(only, single_root)) / z if z else Decimal(0)
        return (float(z.ln()) if z > 0 else -math.inf), chances


def _exp(x: float) -> Decimal:
    return Decimal(0) if x == -math.inf else Decimal(x).exp(getcontext())
