"""Elimination of the words, its adjoint and the derivative of both, in plain floating point.

Scores [b n+1 n]: row 0 is the root, row h the word h as a head; column d is the dependent d, which
is row d + 1 as a head. Weights are relative to the best head of each column, which every tree uses
once. Every kernel does the elements lo:hi, those that are `good` only: the others have weights so
far apart that something might underflow, or no tree at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.limits import ARBORESCENCE_FAR, ARBORESCENCE_HUGE, ARBORESCENCE_TINY
from inout.kernels.math.cpu.exponential import FAST, exp_below

Array = NDArray[Any]
Kernel = Callable[..., None]


class Factors(NamedTuple):
    """What elimination leaves: all that its adjoint reads."""

    rows: Array  # [b n+1 n]: below the diagonal words as heads, above it the shares of the heads
    pivots: Array  # [b n]
    shifts: Array  # [b n+1]: of the root (where it has one dependent), and of each column


@inner
def extremes(row, start, end, tops, lows):
    """Takes row[start:end] into tops[1:] and, unless -inf, into lows; how many are -inf."""
    none = 0
    for j in range(start, end):
        x = row[j]
        none += 1 if x == -np.inf else 0
        tops[j + 1] = x if x > tops[j + 1] else tops[j + 1]
        lows[j] = x if (x < lows[j]) & (x > -np.inf) else lows[j]
    return none


@inner
def shift(scores, n, single, tops, lows):
    """Finds the best head of each column, tops[1:], and the root's shift; whether all is in range.

    0 if not, 1 if there are forbidden arcs, 2 if there are none.
    """
    for j in range(n):
        tops[j + 1], lows[j] = -np.inf, np.inf
    tops[0], none = 0.0, 0
    if not single:
        none += extremes(scores[0], 0, n, tops, lows)
    for i in range(1, n + 1):
        none += extremes(scores[i], 0, i - 1, tops, lows)
        none += extremes(scores[i], i, n, tops, lows)
    if single:
        if n == 1:
            tops[1] = lows[0] = 0.0
        least, tops[0] = np.inf, -np.inf
        for j in range(n):
            x = scores[0, j] - tops[j + 1]
            none += 1 if x == -np.inf else 0
            tops[0] = x if x > tops[0] else tops[0]
            least = x if (x < least) & (x > -np.inf) else least
        if least < tops[0] - ARBORESCENCE_FAR:
            return 0
    for j in range(n + 1):
        if not abs(tops[j]) < np.inf:
            return 0
    for j in range(n):
        if lows[j] < tops[j + 1] - ARBORESCENCE_FAR:
            return 0
    return 1 if none else 2


@inner
def weigh(scores, n, tops, rows):
    """Fills rows with the weights, 0 on the diagonal."""
    for i in range(n + 1):
        down = tops[0] if i == 0 else 0.0
        for j in range(n):
            rows[i, j] = exp_below(scores[i, j] - tops[j + 1] - down)
        if i:
            rows[i, i - 1] = 0.0


@inner(fastmath=FAST)
def add_product(target, factor, row, end):
    """target[:end] += factor * row[:end]."""
    for j in range(end):
        target[j] += factor * row[j]


@inner(fastmath=FAST)
def add_products(target, a, b, c, d, rows, k, end):
    """target[:end] += the sum of a, …, d times the rows k, …, k + 3: one pass for four words."""
    first, second, third, fourth = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
    for j in range(end):
        target[j] += (a * first[j] + b * second[j]) + (c * third[j] + d * fourth[j])


@inner(fastmath=FAST)
def add_product_with_care(target, factor, row, end):
    """The same, and whether what came of a product is in range."""
    bad = 0
    for j in range(end):
        x = target[j] + factor * row[j]
        bad += 1 if (row[j] > 0) & ((x < ARBORESCENCE_TINY) | (x > ARBORESCENCE_HUGE)) else 0
        target[j] = x
    return bad == 0


@inner
def divide(rows, k, first, pivots):
    """Makes column k the shares of its heads; whether there are any."""
    pivot = 0.0
    for i in range(first, k + 1):
        pivot += rows[i, k]
    if not pivot > 0:
        return False
    pivots[k] = pivot
    inverse = 1 / pivot
    for i in range(k + 1):
        rows[i, k] *= inverse
    return True


@inner
def eliminate_with_care(rows, last, first, pivots):
    """Eliminates the words from `last` on down to 1; whether all went well."""
    for k in range(last, 0, -1):
        if not divide(rows, k, first, pivots):
            return False
        for i in range(k + 1):
            share = rows[i, k]
            if share > 0 and not add_product_with_care(rows[i], share, rows[k + 1], k):
                return False
    return True


@inner
def eliminate_four(rows, k, first, pivots):
    """Eliminates the words k + 3, …, k: first among themselves, then all from the rest at once."""
    for own in range(k + 3, k - 1, -1):
        if not divide(rows, own, first, pivots):
            return False
        for other in range(k, own):
            add_product(rows[other + 1], rows[other + 1, own], rows[own + 1], own)
        for i in range(k + 1):
            share = rows[i, own]
            for other in range(k, own):
                rows[i, other] += share * rows[own + 1, other]
    for i in range(k + 1):
        shares = rows[i, k], rows[i, k + 1], rows[i, k + 2], rows[i, k + 3]
        add_products(rows[i], shares[0], shares[1], shares[2], shares[3], rows, k + 1, k)
    return True


@inner
def eliminate_one(rows, n, single, careful, pivots):
    """Eliminates the words of one element, the last one first; whether all went well."""
    first, last = 1 if single else 0, n - 1
    while not careful and last >= 4:
        if not eliminate_four(rows, last - 3, first, pivots):
            return False
        last -= 4
    if not eliminate_with_care(rows, last, first, pivots):
        return False
    pivots[0] = rows[0, 0]
    return pivots[0] > 0


@compiled
def eliminate(scores, lengths, single, lo, hi, factors, log_z, good):
    """Fills the factors, log_z [b] and good [b]."""
    lows = np.empty(scores.shape[2])
    for b in range(lo, hi):
        n, tops, pivots = lengths[b], factors.shifts[b], factors.pivots[b]
        kind = shift(scores[b], n, single, tops, lows) if n else 0
        good[b] = False
        if kind:
            weigh(scores[b], n, tops, factors.rows[b])
            good[b] = eliminate_one(factors.rows[b], n, single, kind == 1, pivots)
        if good[b]:
            total = tops[0]
            for k in range(n):
                total += tops[k + 1] + math.log(pivots[k])
            log_z[b] = total


@inner(fastmath=FAST)
def adjoint_row(slopes, share, row, end, out):
    """out[:end] += share * slopes[:end]; the product of the slopes and the row."""
    total = 0.0
    for j in range(end):
        out[j] += share * slopes[j]
        total += slopes[j] * row[j]
    return total


@inner(fastmath=FAST)
def adjoint_rows(slopes, i, k, rows, out, sums):
    """`adjoint_row` for the rows i, …, i + 3 at once; the products in sums."""
    a, b, c, d = slopes[i], slopes[i + 1], slopes[i + 2], slopes[i + 3]
    row = rows[k + 1]
    x, y, z, w = rows[i, k], rows[i + 1, k], rows[i + 2, k], rows[i + 3, k]
    of_a = of_b = of_c = of_d = 0.0
    for j in range(k):
        out[j] += (x * a[j] + y * b[j]) + (z * c[j] + w * d[j])
        of_a += a[j] * row[j]
        of_b += b[j] * row[j]
        of_c += c[j] * row[j]
        of_d += d[j] * row[j]
    sums[i], sums[i + 1], sums[i + 2], sums[i + 3] = of_a, of_b, of_c, of_d


@inner
def adjoint(rows, pivots, n, single, slopes, sums):
    """Fills slopes [n+1 n] with the derivatives of log Z by the weights.

    As word k comes back, those by the other arcs stay. An arc (k, j) is worth its shares in the
    arcs (i, j); an arc (i, k) all that goes through it, less what the other heads of k would get.
    """
    slopes[0, 0], slopes[1, 0] = 1 / pivots[0], 0.0
    for k in range(1, n):
        row, out, inverse = rows[k + 1], slopes[k + 1], 1 / pivots[k]
        for j in range(n):
            out[j] = 0.0
        through, fours = 0.0, (k + 1) // 4 * 4
        for i in range(0, fours, 4):
            adjoint_rows(slopes, i, k, rows, out, sums)
        for i in range(fours, k + 1):
            sums[i] = adjoint_row(slopes[i], rows[i, k], row, k, out)
        for i in range(k + 1):
            through += rows[i, k] * sums[i]
        for i in range(k + 1):
            own = 1 - through if i > 0 or not single else 0.0
            slopes[i, k] = (own + sums[i]) * inverse


@compiled
def marginals(scores, lengths, single, lo, hi, factors, good, roots, out):
    """Fills out [b n+1 n] with roots[b] * P(arc)."""
    size = scores.shape[2]
    slopes, sums, weights = np.empty((size + 1, size)), np.empty(size + 1), np.empty(size)
    for b in range(lo, hi):
        n, tops = lengths[b], factors.shifts[b]
        out[b] = 0.0
        if not good[b]:
            continue
        adjoint(factors.rows[b], factors.pivots[b], n, single, slopes, sums)
        for i in range(n + 1):
            down = tops[0] if i == 0 else 0.0
            for j in range(n):
                weights[j] = exp_below(scores[b, i, j] - tops[j + 1] - down)
            for j in range(n):
                # Rounding may leave a probability just outside 0..1.
                out[b, i, j] = roots[b] * min(max(weights[j] * slopes[i, j], 0.0), 1.0)
            if i:
                out[b, i, i - 1] = 0.0


@inner(fastmath=FAST)
def tangent_row(change, share, shares, row, rows, end):
    """change[:end] += the derivative of share * row; `shares` and `rows` are theirs."""
    for j in range(end):
        change[j] += shares * row[j] + share * rows[j]


@inner(fastmath=FAST)
def adjoint_tangent_row(slopes, changes, share, shares, row, rows, end, out):
    """As `adjoint_row`, of which this is the derivative: (the change of the product)."""
    total = 0.0
    for j in range(end):
        out[j] += shares * slopes[j] + share * changes[j]
        total += changes[j] * row[j] + slopes[j] * rows[j]
    return total


@inner
def tangent_one(rows, pivots, n, single, moved, moves):
    """Eliminates the tangents `moved` [n+1 n] beside the weights; those of log pivots in `moves`.

    Above the diagonal they become those of the shares.
    """
    first = 1 if single else 0
    for k in range(n - 1, 0, -1):
        total, inverse = 0.0, 1 / pivots[k]
        for i in range(first, k + 1):
            total += moved[i, k]
        moves[k] = total * inverse
        for i in range(k + 1):
            shares = moved[i, k] * inverse - rows[i, k] * moves[k]
            moved[i, k] = shares
            tangent_row(moved[i], rows[i, k], shares, rows[k + 1], moved[k + 1], k)
    moves[0] = moved[0, 0] / pivots[0]


@inner
def adjoint_tangent(rows, pivots, n, single, moved, moves, slopes, changes, sums):
    """Fills slopes as `adjoint` does, and changes [n+1 n] with their derivatives."""
    slopes[0, 0], slopes[1, 0], changes[1, 0] = 1 / pivots[0], 0.0, 0.0
    changes[0, 0] = -moves[0] / pivots[0]
    for k in range(1, n):
        row, out, inverse = rows[k + 1], slopes[k + 1], 1 / pivots[k]
        for j in range(n):
            out[j] = changes[k + 1, j] = 0.0
        through = change = 0.0
        for i in range(k + 1):
            share, shares = rows[i, k], moved[i, k]
            sums[i, 0] = adjoint_row(slopes[i], share, row, k, out)
            sums[i, 1] = adjoint_tangent_row(
                slopes[i], changes[i], share, shares, row, moved[k + 1], k, changes[k + 1]
            )
            through += share * sums[i, 0]
            change += shares * sums[i, 0] + share * sums[i, 1]
        for i in range(k + 1):
            own = i > 0 or not single
            slopes[i, k] = ((1 - through if own else 0.0) + sums[i, 0]) * inverse
            changes[i, k] = ((-change if own else 0.0) + sums[i, 1]) * inverse
            changes[i, k] -= slopes[i, k] * moves[k]


@compiled
def tangents(scores, lengths, single, lo, hi, factors, good, roots, u, expected, out):
    """Fills out [b n+1 n] with roots[b] * Cov[arc, U] and expected [b] with E[U].

    U is the sum of u [b n+1 n] over the arcs of the tree.
    """
    size = scores.shape[2]
    weights, moved = np.empty((size + 1, size)), np.empty((size + 1, size))
    slopes, changes = np.empty((size + 1, size)), np.empty((size + 1, size))
    moves, sums = np.empty(size), np.empty((size + 1, 2))
    for b in range(lo, hi):
        n = lengths[b]
        out[b], expected[b] = 0.0, 0.0
        if not good[b]:
            continue
        weigh(scores[b], n, factors.shifts[b], weights)
        for i in range(n + 1):
            for j in range(n):
                moved[i, j] = weights[i, j] * u[b, i, j] if weights[i, j] > 0 else 0.0
        rows, pivots = factors.rows[b], factors.pivots[b]
        tangent_one(rows, pivots, n, single, moved, moves)
        adjoint_tangent(rows, pivots, n, single, moved, moves, slopes, changes, sums)
        for k in range(n):
            expected[b] += moves[k]
        for i in range(n + 1):
            for j in range(n):
                if weights[i, j] > 0:
                    change = changes[i, j] + slopes[i, j] * u[b, i, j]
                    out[b, i, j] = roots[b] * weights[i, j] * change
