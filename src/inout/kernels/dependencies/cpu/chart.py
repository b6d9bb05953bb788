"""Eisner's algorithm for one sentence: the inside pass, over several kinds of numbers.

Position 0 is the root, 1..n are the words. Items, for i < j: right(i, j) is the half of i with all
that depends on it to its right, up to j; left(i, j) mirrors it, with the head j; gap(i, j) is the
right half of i and the left half of j, which meet between them; arc(h, d) is an arc with all that
stands between its ends.

    gap(i, j)   = sum over k of right(i, k) left(k+1, j)
    arc(h, d)   = weight(h, d) gap(h, d)
    right(i, j) = sum over k of arc(i, k) right(k, j)
    left(i, j)  = sum over k of left(i, k) arc(j, k)

With siblings, where the dependent k of h comes before d, outwards:

    arc(h, d) = weight(h, d) half(h, d) + sum over k of weight(h, d) sibling(h, d, k) arc(h, k)
                gap(k, d)

where half(h, d) is the half of d that reaches to h. If only one word may be the root, gap(0, j)
and arc(0, d) have their first terms alone. Tables [N N] hold items i < j at [i, j] and at [j, i],
so that every sum runs along two rows.

Numbers are real (REAL), logarithms (LOGS), or logarithms of which the best counts (BEST). Real
weights are relative to the largest of all heads of a word: see `fits`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import inner
from inout.kernels.limits import DEPENDENCY_LEAST, DEPENDENCY_WORDS
from inout.kernels.math.cpu.exponential import FAST, exp_below

Array = NDArray[Any]

REAL, LOGS, BEST = 0, 1, 2
# A word's heads have weights of at most 1 / e: then n words, whose trees are fewer than 6.75^n,
# neither overflow nor underflow for as long as possible.
ROOM = 1.0
TINY = 1e-290  # sums below it do not count: see `fits`


class Scores(NamedTuple):
    """Log-weights of one sentence."""

    arcs: Array  # [n+1 n]: head, from 0 for the root, and dependent
    siblings: Array  # [n n n]: head, dependent, the dependent between them; or [0 0 0]
    length: int
    single_root: bool


class Chart(NamedTuple):
    """Values of the items of one sentence."""

    right: Array
    left: Array
    gap: Array
    arc: Array  # [h, d]
    weight: Array  # [h, d]
    shift: Array  # [d], what was taken from the log-weights
    row: Array  # [N], weights of the siblings of one arc


@inner(returns_arrays=True)
def new_chart(n):
    """A chart for up to n words."""
    size = n + 1
    square = (size, size)
    return Chart(
        np.empty(square), np.empty(square), np.empty(square), np.empty(square), np.empty(square),
        np.empty(size), np.empty(size),
    )  # fmt: skip


@inner(returns_arrays=True)
def scores_of(scores, siblings, lengths, single_root, b):
    """The scores of element b of a batch; those of siblings may be [0 n n n]."""
    second = siblings[b] if siblings.shape[0] > 0 else siblings.reshape((0, 0, 0))
    return Scores(scores[b], second, lengths[b], single_root)


@inner(fastmath=FAST)
def weigh(scores, chart, kind):
    """Fills the weights of arcs and their shifts; whether every word may have a head."""
    arcs, siblings, length = scores.arcs, scores.siblings, scores.length
    weight, shift = chart.weight, chart.shift
    room = ROOM if kind == REAL else 0.0
    for d in range(1, length + 1):
        shift[d] = arcs[0, d - 1]
    for h in range(1, length + 1):
        for first, end in ((1, h), (h + 1, length + 1)):
            for d in range(first, end):
                shift[d] = max(shift[d], arcs[h, d - 1])
    if siblings.shape[0] > 0:
        for h in range(1, length + 1):
            for d in range(1, length + 1):
                for k in range(min(h, d) + 1, max(h, d)):
                    shift[d] = max(shift[d], arcs[h, d - 1] + siblings[h - 1, d - 1, k - 1])
    for d in range(1, length + 1):
        if shift[d] == -np.inf:
            return False
        shift[d] += room
    for h in range(length + 1):
        for first, end in ((1, h), (h + 1, length + 1)):
            for d in range(first, end):
                x = arcs[h, d - 1] - shift[d]
                weight[h, d] = exp_below(x) if kind == REAL else x
        weight[h, 0] = 0.0 if kind == REAL else -np.inf
    return True


@inner(fastmath=FAST)
def weigh_siblings(scores, chart, kind, h, d):
    """Fills the row with the weights of the dependents k of h between it and d, as `weight`."""
    arcs, siblings, row = scores.arcs, scores.siblings, chart.row
    if h == 0:
        for k in range(1, d):
            row[k] = chart.weight[0, d]
        return
    base = arcs[h, d - 1] - chart.shift[d]
    for k in range(min(h, d) + 1, max(h, d)):
        x = base + siblings[h - 1, d - 1, k - 1]
        row[k] = exp_below(x) if kind == REAL else x


@inner(fastmath=FAST)
def joined(a, b, count, kind):
    """The sum over k < count of a[k] b[k]."""
    if kind == REAL:
        total = 0.0
        for k in range(count):
            total += a[k] * b[k]
        return total
    top = -np.inf
    for k in range(count):
        top = max(top, a[k] + b[k])
    if kind == BEST or top == -np.inf:
        return top
    total = 0.0
    for k in range(count):
        total += exp_below(a[k] + b[k] - top)
    return top + math.log(total)


@inner
def term(x, y, total):
    """exp(x + y - total). Not `FAST`, so that it is rounded alike wherever it is inlined."""
    return exp_below(x + y - total)


@inner(fastmath=FAST)
def scale_of(a, b, total, count, kind):
    """What the terms of a sum of products are multiplied with to be shares; 0 if nothing counts.

    The terms are a[k] b[k], of logarithms exp(a[k] + b[k] - total). The logarithms of large
    numbers are not exact enough for these to add up to 1.
    """
    if kind == REAL:
        return 0.0 if total < TINY else 1.0 / total
    if total == -np.inf:
        return 0.0
    whole = 0.0
    for k in range(count):
        whole += term(a[k], b[k], total)
    return 1.0 / whole


@inner(fastmath=FAST)
def chained(scores, chart, kind, h, d):
    """arc(h, d) with siblings."""
    low, high = min(h, d), max(h, d)
    half = chart.left[d, h + 1] if h < d else chart.right[d, h - 1]
    if kind == REAL:
        total = chart.weight[h, d] * half
    else:
        total = chart.weight[h, d] + half
    if (h == 0 and scores.single_root) or high == low + 1:
        return total
    weigh_siblings(scores, chart, kind, h, d)
    arc, gap, row = chart.arc[h], chart.gap[d], chart.row
    if kind == REAL:
        for k in range(low + 1, high):
            total += arc[k] * gap[k] * row[k]
        return total
    top = total
    for k in range(low + 1, high):
        row[k] += arc[k] + gap[k]
        top = max(top, row[k])
    if kind == BEST or top == -np.inf:
        return top
    total = exp_below(total - top)
    for k in range(low + 1, high):
        total += exp_below(row[k] - top)
    return top + math.log(total)


@inner(fastmath=FAST)
def fill(scores, chart, kind):
    """Fills the chart from its weights."""
    right, left, gap, arc, weight = chart.right, chart.left, chart.gap, chart.arc, chart.weight
    zero, one = (0.0, 1.0) if kind == REAL else (-np.inf, 0.0)
    second = scores.siblings.shape[0] > 0
    size = scores.length + 1
    for i in range(size - 1, -1, -1):
        right[i, i], left[i, i] = one, one
        for j in range(i + 1, size):
            count = 1 if i == 0 and scores.single_root else j - i
            both = joined(right[i, i:], left[j, i + 1 :], count, kind)
            gap[i, j], gap[j, i] = both, both
            if second:
                arc[i, j] = chained(scores, chart, kind, i, j)
                arc[j, i] = chained(scores, chart, kind, j, i) if i > 0 else zero
            elif kind == REAL:
                arc[i, j], arc[j, i] = both * weight[i, j], both * weight[j, i]
            else:
                arc[i, j], arc[j, i] = both + weight[i, j], both + weight[j, i]
            half = joined(arc[i, i + 1 :], right[j, i + 1 :], j - i, kind)
            right[i, j], right[j, i] = half, half
            half = joined(left[i, i:], arc[j, i:], j - i, kind) if i > 0 else zero
            left[i, j], left[j, i] = half, half


@inner
def fits(total, length):
    """Whether underflow cannot matter to a real Z.

    Weights are at most 1/e, and n words have fewer than 6.75^n trees, so no inside or outside value
    is above exp(0.91 n). Whatever underflows, or is below 1e-290, adds at most that much to Z.
    """
    return length <= DEPENDENCY_WORDS and total > 0 and math.log(total) > DEPENDENCY_LEAST + length


@inner
def inside(scores, chart):
    """Fills the chart; returns (log Z, the kind of its numbers): real ones if they fit, or logs."""
    last = scores.length
    if scores.length <= DEPENDENCY_WORDS:
        if not weigh(scores, chart, REAL):
            return -np.inf, REAL
        fill(scores, chart, REAL)
        total = chart.right[0, last]
        if fits(total, scores.length):
            return math.log(total) + chart.shift[1 : last + 1].sum(), REAL
    if not weigh(scores, chart, LOGS):
        return -np.inf, LOGS
    fill(scores, chart, LOGS)
    return chart.right[0, last] + chart.shift[1 : last + 1].sum(), LOGS
