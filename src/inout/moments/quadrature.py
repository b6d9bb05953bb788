"""Gauss-Jacobi rules on [0, 1] for 1 / (m + c) = the integral of t^(m + c - 1), m = 0, 1, ..."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PRECISION = 1e-13
# Sizes to try; a rule with q nodes is exact up to degree 2q - 1, and nearly exact far above.
_SIZES: tuple[int, ...] = (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96)
_SIZES += (112, 128, 160, 192, 224, 256, 320, 384, 448, 512)


@lru_cache(maxsize=4096)
def jacobi_rule(exponent: float, count: int) -> tuple[Array, Array]:
    """Nodes t and weights w: sum of w p(t) = integral over [0, 1] of t^exponent p(t) dt.

    Exact for polynomials p of degree below 2 `count`; exponent > -1. The nodes are the
    eigenvalues of the three-term recurrence (Golub & Welsch 1969), with one step of Newton's; the
    weights come from the orthonormal polynomials there, so that small ones are accurate as well.
    """
    n = np.arange(count, dtype=np.float64)
    ends = (2 * n + exponent) * (2 * n + exponent + 2)
    middle = np.where(n == 0, exponent / (exponent + 2), exponent**2 / np.where(n == 0, 1, ends))
    diagonal = (1 + middle) / 2
    k = n + 1
    beside = (
        k * (k + exponent)
        / (2 * k + exponent)
        / np.sqrt((2 * k + exponent + 1) * (2 * k + exponent - 1))
    )  # fmt: skip
    nodes = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(beside[:-1], -1))
    # A node whose weight underflows overflows here: it stays in place, with weight 0.
    with np.errstate(all="ignore"):
        value, slope, _ = _orthonormal(nodes, diagonal, beside, exponent)
        step = value / slope
        nodes = nodes - np.where(np.isfinite(step), step, 0.0)
        squares = _orthonormal(nodes, diagonal, beside, exponent)[2]
        return nodes, np.where(np.isfinite(squares), 1 / squares, 0.0)


def _orthonormal(
    t: Array, diagonal: Array, beside: Array, exponent: float
) -> tuple[Array, Array, Array]:
    """The orthonormal polynomial of degree `count`, its slope, and the sum of squares below."""
    before, now = np.zeros_like(t), np.full_like(t, np.sqrt(exponent + 1))
    slope_before, slope = np.zeros_like(t), np.zeros_like(t)
    squares = np.zeros_like(t)
    last = 0.0
    for a, b in zip(diagonal, beside, strict=True):
        squares += now**2
        slope_before, slope = slope, (now + (t - a) * slope - last * slope_before) / b
        before, now = now, ((t - a) * now - last * before) / b
        last = b
    return now, slope, squares


def worst_error(exponent: float, count: int, degree: int) -> float:
    """Largest relative error of the rule for t^0 ... t^degree."""
    nodes, weights = jacobi_rule(exponent, count)
    powers = np.arange(degree + 1)
    found = np.exp(np.log(nodes) * powers[:, None]) @ weights
    return float(np.abs(found * (powers + exponent + 1) - 1).max())


@lru_cache(maxsize=4096)
def enough_nodes(exponent: float, degree: int) -> int:
    """The number of nodes that give t^0 ... t^degree to 13 digits, or to rounding.

    About 3 sqrt(degree) of them, and never more than the degree / 2 + 1 that are exact.
    """
    exact = degree // 2 + 1
    # Powers are rounded in proportion to their degree, with any number of nodes.
    wanted = max(PRECISION, 4 * degree * float(np.finfo(np.float64).eps))
    for count in _SIZES:
        if count >= exact or worst_error(exponent, count, degree) <= wanted:
            return min(count, exact)
    return exact
