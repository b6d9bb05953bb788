"""Marginals of arcs and siblings, and their derivatives, from the inside values.

Going down from Z, an item's probability is divided among the ways to make it, in proportion to
their weights: no outside pass, and nothing to underflow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.dependencies.cpu import chart as charts
from inout.kernels.dependencies.cpu.chart import REAL, TINY, Array
from inout.kernels.math.cpu.exponential import FAST, exp_below


class Numbers(NamedTuple):
    """A number for each item of one sentence, [N N].

    What comes from above along rows is added to [i, j] or to [j, i]: an item has both.
    """

    right: Array
    left: Array
    gap: Array
    arc: Array


@inner(returns_arrays=True)
def new_numbers(n):
    """Room for up to n words."""
    square = (n + 1, n + 1)
    return Numbers(np.empty(square), np.empty(square), np.empty(square), np.empty(square))


@inner
def clear(numbers, size):
    """Sets the numbers of the first positions to 0."""
    for table in numbers:
        for i in range(size):
            for j in range(size):
                table[i, j] = 0.0


# Arithmetic is not `FAST` where tables are written: by their addresses the compiled loop decides
# at run time whether to use vector instructions, and both ways must round alike.


@inner(fastmath=FAST)
def added(x, first, end):
    """The sum of x[first:end]."""
    total = 0.0
    for k in range(first, end):
        total += x[k]
    return total


@inner
def divide(a, b, total, count, kind, chance, of_a, of_b):
    """Adds the chance of each term k < count of a sum of products to those of its factors."""
    scale = chance * charts.scale_of(a, b, total, count, kind) if chance > 0 else 0.0
    if scale == 0:
        return
    for k in range(count):
        share = scale * a[k] * b[k] if kind == REAL else scale * charts.term(a[k], b[k], total)
        of_a[k] += share
        of_b[k] += share


@inner
def chain_shares(scores, chart, kind, h, d, shares):
    """Shares of the terms of arc(h, d) with siblings: returns the first, fills shares[k]."""
    low, high = min(h, d), max(h, d)
    arc, gap, row, total = chart.arc[h], chart.gap[d], chart.row, chart.arc[h, d]
    half = chart.left[d, h + 1] if h < d else chart.right[d, h - 1]
    for k in range(low + 1, high):
        shares[k] = 0.0
    if (kind == REAL and total < TINY) or total == -np.inf:
        return 0.0
    if kind == REAL:
        first = chart.weight[h, d] * half / total
    else:
        first = exp_below(chart.weight[h, d] + half - total)
    if not (h == 0 and scores.single_root):
        charts.weigh_siblings(scores, chart, kind, h, d)
        for k in range(low + 1, high):
            if kind == REAL:
                shares[k] = arc[k] * gap[k] * row[k] / total
            else:
                shares[k] = exp_below(arc[k] + gap[k] + row[k] - total)
    whole = first + added(shares, low + 1, high)
    for k in range(low + 1, high):
        shares[k] /= whole
    return first / whole


@inner
def divide_chain(scores, chart, kind, h, d, chances, shares, siblings):
    """`divide` for arc(h, d) with siblings; the chances of these go to siblings [n n n]."""
    chance = chances.arc[h, d]
    if chance == 0:
        return
    first = chain_shares(scores, chart, kind, h, d, shares)
    if h < d:
        chances.left[d, h + 1] += chance * first
    else:
        chances.right[d, h - 1] += chance * first
    of_arc, of_gap = chances.arc[h], chances.gap[d]
    for k in range(min(h, d) + 1, max(h, d)):
        share = chance * shares[k]
        of_arc[k] += share
        of_gap[k] += share
        if h > 0:
            siblings[h - 1, d - 1, k - 1] = share


@inner
def go_down(scores, chart, kind, chances, shares, siblings):
    """Fills the chances of all items, and of siblings."""
    right, left, gap, arc = chart.right, chart.left, chart.gap, chart.arc
    second = scores.siblings.shape[0] > 0
    size = scores.length + 1
    clear(chances, size)
    chances.right[0, size - 1] = 1.0
    for i in range(size):
        for j in range(size - 1, i, -1):
            divide(
                arc[i, i + 1 :], right[j, i + 1 :], right[i, j], j - i, kind,
                chances.right[i, j] + chances.right[j, i],
                chances.arc[i, i + 1 :], chances.right[j, i + 1 :],
            )  # fmt: skip
            if i > 0:
                divide(
                    left[i, i:], arc[j, i:], left[i, j], j - i, kind,
                    chances.left[i, j] + chances.left[j, i],
                    chances.left[i, i:], chances.arc[j, i:],
                )  # fmt: skip
            chance = chances.arc[i, j] + chances.arc[j, i]
            if second:
                divide_chain(scores, chart, kind, i, j, chances, shares, siblings)
                divide_chain(scores, chart, kind, j, i, chances, shares, siblings)
                chance = chances.gap[i, j] + chances.gap[j, i]
            divide(
                right[i, i:], left[j, i + 1 :], gap[i, j],
                1 if i == 0 and scores.single_root else j - i, kind, chance,
                chances.right[i, i:], chances.left[j, i + 1 :],
            )  # fmt: skip


@inner
def write(numbers, scores, scale, out):
    """Fills out [n+1 n] with the numbers of the arcs, times the scale."""
    out[:] = 0.0
    for h in range(scores.length + 1):
        for d in range(1, scores.length + 1):
            if h != d:
                out[h, d - 1] = scale * numbers.arc[h, d]


@compiled
def marginals(scores, siblings, lengths, single_root, lo, hi, log_z, out, of_siblings):
    """Fills log_z [b] and, unless out is empty, the probabilities of arcs and of siblings.

    These are in the shapes of the scores.
    """
    n = scores.shape[2]
    chart, chances, shares = charts.new_chart(n), new_numbers(n), np.empty(n + 1)
    for b in range(lo, hi):
        own = charts.scores_of(scores, siblings, lengths, single_root, b)
        log_z[b], kind = charts.inside(own, chart)
        if out.size == 0:
            continue
        pairs = charts.scores_of(scores, of_siblings, lengths, single_root, b).siblings
        pairs[:] = 0.0
        if log_z[b] == -np.inf:
            out[b] = 0.0
            continue
        go_down(own, chart, kind, chances, shares, pairs)
        write(chances, own, 1.0, out[b])
