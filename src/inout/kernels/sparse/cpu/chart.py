"""The chart of a sentence under a sparse grammar, for any type of numbers.

Values are those after the unary rules, and they are kept twice: `lefts` has, for a start i and a
symbol, a row over the ends of the span; `rights`, for an end j and a symbol, a row over the starts.
So the sum over the splits of a span i..j, for a left and a right symbol, is the scalar product of
two rows. `left_ends` and `right_starts` give for each row the first and the last nonzero place:
most rows do not meet, so most zeros are skipped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import inner

# No rule, entry or split.
NONE = np.int64(-1)
# The exponent of a span that nothing can have.
NOTHING = -(1 << 60)


class Chart(NamedTuple):
    """Values of symbols over spans i..j (both inclusive) of n words."""

    lefts: NDArray[Any]  # flat, see `left_base`
    rights: NDArray[Any]  # flat, see `right_base`
    exps: NDArray[np.int64]  # [n n], the binary exponents of scaled values
    left_ends: NDArray[np.int32]  # [n symbols 2]
    right_starts: NDArray[np.int32]  # [n symbols 2]
    active: NDArray[np.int32]  # [n symbols], those that a span from here can have
    active_counts: NDArray[np.int64]  # [n], their number
    below: NDArray[Any]  # [n n symbols of unary rules], values before the unary rules


@inner
def empty_chart(nothing, n, s, scales, unary_symbols):
    """A chart of zeros, which are `nothing`; scales: n if they have exponents, or 0."""
    size = s * ((n * (n + 1)) // 2)
    lefts, rights = np.full(size, nothing), np.full(size, nothing)
    exps, below = np.full((scales, scales), NOTHING), np.full((n, n, unary_symbols), nothing)
    left_ends, right_starts = np.empty((n, s, 2), np.int32), np.empty((n, s, 2), np.int32)
    for i in range(n):
        for a in range(s):
            # No row meets these, on whichever side.
            left_ends[i, a, 0], left_ends[i, a, 1] = n + 1, -1
            right_starts[i, a, 0], right_starts[i, a, 1] = n + 1, -1
    active = np.empty((n, s), np.int32)
    return Chart(lefts, rights, exps, left_ends, right_starts, active, np.zeros(n, np.int64), below)


@inner
def left_base(i, n, s):
    """Where the rows of start i begin in `lefts`; each has n - i places."""
    return s * (i * n - (i * (i - 1)) // 2)


@inner
def right_base(j, s):
    """Where the rows of end j begin in `rights`; each has j + 1 places."""
    return s * ((j * (j + 1)) // 2)


@inner
def value_above(chart, i, j, a):
    """The value of a symbol over a span after the unary rules."""
    n, s = chart.left_ends.shape[0], chart.left_ends.shape[1]
    return chart.lefts[left_base(i, n, s) + a * (n - i) + j - i]


@inner
def value_below(chart, places, i, j, a):
    """And before them, if the chart is in log space."""
    if places[a] >= 0:
        return chart.below[i, j, places[a]]
    return value_above(chart, i, j, a)


@inner
def common_splits(first, last, right_starts, j, c):
    """The splits from first to last at which a symbol can have the words up to j."""
    return max(first, right_starts[j, c, 0] - 1), min(last, right_starts[j, c, 1] - 1)


@inner
def splits_of(chart, i, j, b, c):
    """(first, last split, where they are in lefts and in rights) of two symbols over i..j.

    A split is the last word of the left part. There is none where the first is after the last.
    """
    n, s = chart.left_ends.shape[0], chart.left_ends.shape[1]
    first, last = chart.left_ends[i, b, 0], chart.left_ends[i, b, 1]
    lo, hi = common_splits(first, last, chart.right_starts, j, c)
    left = left_base(i, n, s) + b * (n - i) - i + lo
    return lo, hi, left, right_base(j, s) + c * (j + 1) + 1 + lo


@inner
def row_of(weights, cell):
    """The row that holds the weights of a cell."""
    return cell if weights.shape[0] > 1 else 0


@inner
def barred(allowed, cell):
    """Whether a span may have no symbol at all."""
    return allowed.shape[0] > 0 and allowed.shape[1] == 1 and not allowed[cell, 0]


@inner
def bar(allowed, cell, values, nothing):
    """Makes the values [symbols] of symbols that a span may not have `nothing`."""
    if allowed.shape[0] > 0 and allowed.shape[1] > 1:
        for a in range(values.shape[0]):
            if not allowed[cell, a]:
                values[a] = nothing
