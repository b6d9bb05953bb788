"""What `batched.py` does to a strip: spans of one width side by side, the lanes of vectors.

A block is a few sentences of n words. Its spans of width w + 1 are the lanes
`lane_base(w) + i * size + b`, i the start and b the sentence: those of all left, and of all right,
parts at the same split lie side by side as well. A strip is some of these; its parts are copied,
and what comes of them is [.. lanes], with `count` lanes in use.

Numbers without sign are never counted from the end of an array: without the test for that, the
loops over lanes become vector instructions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import inner
from inout.kernels.limits import SPARSE_SPECK
from inout.kernels.math.cpu.exponential import FAST
from inout.kernels.sparse.cpu.arithmetic import power
from inout.kernels.sparse.cpu.chart import NOTHING

ONE, TWO, THREE, FOUR = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)
Floats = NDArray[np.float64]


class Lanes(NamedTuple):
    """The chart of a block: values of symbols after the unary rules, one lane for each span."""

    values: Floats  # [s lanes]
    below: Floats  # [symbols of unary rules, lanes], before them
    exps: NDArray[np.int64]  # [lanes], binary exponents
    floors: Floats  # [lanes], the smallest of a span's values that are not 0
    present: NDArray[np.bool_]  # [n s], whether a span of this width has the symbol


class Strip(NamedTuple):
    """The parts of the spans of a strip, and the first and last split where they are not 0."""

    lefts: Floats  # [s w wide]
    rights: Floats  # [s w wide]
    left_ends: NDArray[np.int64]  # [s 2]
    right_ends: NDArray[np.int64]  # [s 2]


@inner
def lane_base(w, n, size):
    """The first lane of width w + 1."""
    return size * (w * n - (w * (w - 1)) // 2)


@inner
def parts(w, d, n, size):
    """Where the lanes of the left and the right parts begin, at split d of spans of width w + 1."""
    return lane_base(d, n, size), lane_base(w - 1 - d, n, size) + (d + 1) * size


@inner
def find_shifts(exps, n, size, w, lane, count, shifts):
    """shifts [lanes] = the largest exponent of the splits, below NOTHING / 2 if there is none."""
    for t in range(count):
        shifts[t] = 2 * NOTHING
    for d in range(w):
        left, right = parts(w, d, n, size)
        for t in range(count):
            shifts[t] = max(shifts[t], exps[left + lane + t] + exps[right + lane + t])


@inner
def set_factors(chart, n, size, w, lane, count, shifts, factors):
    """factors [w lanes] = 2**(exponent of the split, less shift), 0 where there is nothing.

    Returns a bound below all products of values above 0 with their factors.
    """
    least = 1.0
    for d in range(w):
        left, right = parts(w, d, n, size)
        x, y, split = np.uintp(left + lane), np.uintp(right + lane), np.uintp(d)
        for t in range(np.uintp(count)):
            exponent = chart.exps[x + t] + chart.exps[y + t]
            here = (exponent > NOTHING // 2) & (shifts[t] > NOTHING // 2)
            factor = power(exponent - shifts[t]) if here else 0.0
            factors[split, t] = factor
            product = chart.floors[x + t] * chart.floors[y + t] * factor if here else 1.0
            least = product if product < least else least
    return least


@inner
def find_ends(present, w, strip):
    """Fills in the first and the last split at which some left, or right, part has a symbol."""
    left_ends, right_ends = strip.left_ends, strip.right_ends
    for a in range(present.shape[1]):
        left_ends[a, 0] = right_ends[a, 0] = w
        left_ends[a, 1] = right_ends[a, 1] = -1
        for d in range(w):
            if present[d, a]:
                left_ends[a, 0], left_ends[a, 1] = min(left_ends[a, 0], d), d
            if present[w - 1 - d, a]:
                right_ends[a, 0], right_ends[a, 1] = min(right_ends[a, 0], d), d


@inner
def load(values, n, size, w, lane, count, factors, careful, strip):
    """Copies the parts of the spans of a strip, the left ones times factors."""
    lefts, rights = strip.lefts, strip.rights
    lanes = np.uintp(count)
    for d in range(w):
        left_lane, right_lane = parts(w, d, n, size)
        left, right, split = np.uintp(left_lane + lane), np.uintp(right_lane + lane), np.uintp(d)
        for a in range(np.uintp(values.shape[0])):
            for t in range(lanes):
                lefts[a, split, t] = values[a, left + t] * factors[split, t]
            for t in range(lanes):
                rights[a, split, t] = values[a, right + t]
            if careful:
                for t in range(lanes):
                    if values[a, left + t] > 0:
                        lefts[a, split, t] = max(lefts[a, split, t], SPARSE_SPECK)


@inner
def store(gradients, n, size, w, lane, count, factors, grads):
    """Adds the gradients by the parts of a strip to those of all lanes."""
    for a in range(gradients.shape[0]):
        for d in range(w):
            left, right = parts(w, d, n, size)
            left, right = left + lane, right + lane
            for t in range(count):
                gradients[a, left + t] += grads.lefts[a, d, t] * factors[d, t]
            for t in range(count):
                gradients[a, right + t] += grads.rights[a, d, t]


@inner(fastmath=FAST)
def products(strip, b, c, first, last, count, result):
    """result[t] = the sum over d = first..last of lefts[b, d, t] rights[c, d, t], for t < count."""
    lefts, rights = strip.lefts, strip.rights
    x, y, lanes, d = np.uintp(b), np.uintp(c), np.uintp(count), np.uintp(first)
    for t in range(lanes):
        result[t] = 0.0
    for _ in range((last - first + 1) // 4):
        for t in range(lanes):
            result[t] += (
                lefts[x, d, t] * rights[y, d, t]
                + lefts[x, d + ONE, t] * rights[y, d + ONE, t]
                + lefts[x, d + TWO, t] * rights[y, d + TWO, t]
                + lefts[x, d + THREE, t] * rights[y, d + THREE, t]
            )
        d += FOUR
    for _ in range((last - first + 1) % 4):
        for t in range(lanes):
            result[t] += lefts[x, d, t] * rights[y, d, t]
        d += ONE


@inner
def careful_products(strip, b, c, first, last, count, result):
    """As `products`, but above 0 wherever there is a term above 0."""
    for t in range(count):
        result[t] = 0.0
    for d in range(first, last + 1):
        for t in range(count):
            x, y = strip.lefts[b, d, t], strip.rights[c, d, t]
            result[t] += max(x * y, SPARSE_SPECK) if x > 0 and y > 0 else 0.0


@inner(fastmath=FAST)
def add_rule(weight, values, count, totals, head):
    """totals[head] += weight * values, both [lanes]."""
    a = np.uintp(head)
    for t in range(np.uintp(count)):
        totals[a, t] += weight * values[t]


@inner
def careful_rule(weight, values, count, totals, head):
    """As `add_rule`, but above 0 wherever values are."""
    for t in range(count):
        totals[head, t] += weight * values[t] + SPARSE_SPECK if values[t] > 0 else 0.0


@inner(fastmath=FAST)
def back_through(strip, b, c, first, last, count, gradient, grads, result):
    """Backward of `products`, which are filled in as well."""
    x, y, lanes = np.uintp(b), np.uintp(c), np.uintp(count)
    for t in range(lanes):
        result[t] = 0.0
    for d in range(np.uintp(first), np.uintp(last + 1)):
        for t in range(lanes):
            result[t] += strip.lefts[x, d, t] * strip.rights[y, d, t]
            grads.lefts[x, d, t] += gradient[t] * strip.rights[y, d, t]
            grads.rights[y, d, t] += gradient[t] * strip.lefts[x, d, t]


@inner(fastmath=FAST)
def scalar_product(x, a, y, count):
    """The sum over the lanes of x[a] y."""
    total, row = 0.0, np.uintp(a)
    for t in range(np.uintp(count)):
        total += x[row, t] * y[t]
    return total
