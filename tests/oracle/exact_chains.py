"""Moments of chains in exact integers, and theorem 3 of Azuma & Matsumoto as printed."""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial

import numpy as np

Table = list[list[int]]


def exact_moments(
    nodes: Table, pairs: Table, values: Table, highest: int
) -> tuple[list[Fraction], list[Fraction]]:
    """Raw and central moments of orders 0..highest of a chain with whole weights and values.

    `nodes` [n s] and `pairs` [s s] are weights, `values` [n s] the additive function. The
    recursion of theorem 1 in Python integers.
    """

    def shifted(sums: list[int], by: int) -> list[int]:
        return [
            sum(comb(m, j) * sums[j] * by ** (m - j) for j in range(m + 1))
            for m in range(highest + 1)
        ]

    labels = range(len(pairs))
    none = [0] * highest
    alphas = [shifted([nodes[0][y], *none], values[0][y]) for y in labels]
    for t in range(1, len(nodes)):
        reached = [
            [
                sum(pairs[x][y] * nodes[t][y] * alphas[x][m] for x in labels)
                for m in range(highest + 1)
            ]
            for y in labels
        ]
        alphas = [shifted(reached[y], values[t][y]) for y in labels]
    total = [sum(alpha[m] for alpha in alphas) for m in range(highest + 1)]
    raw = [Fraction(m, total[0]) for m in total]
    central = [
        sum((comb(m, j) * raw[j] * (-raw[1]) ** (m - j) for j in range(m + 1)), Fraction(0))
        for m in range(highest + 1)
    ]
    return raw, central


def printed_theorem_3(nodes: Table, pairs: Table, values: Table, size: int) -> np.ndarray:
    """Sums of weights times powers 0..size-1 by equations 17-19, with 2 `size` points."""
    n, s = len(nodes), len(pairs)
    powers = np.array(
        [
            [[values[t][y] ** m / factorial(m) for m in range(size)] for y in range(s)]
            for t in range(n)
        ]
    )
    f = np.fft.fft(np.pad(powers, ((0, 0), (0, 0), (0, size))), axis=-1)
    alphas = np.array(nodes[0])[:, None] * f[0]
    for t in range(1, n):
        alphas = np.array(nodes[t])[:, None] * f[t] * (np.array(pairs).T @ alphas)
    sums = np.fft.ifft(alphas.sum(0)).real[:size]
    return sums * np.array([float(factorial(m)) for m in range(size)])
