"""Products with the Hessian of log Z: derivatives of the marginals in one direction.

U is the sum of u over the arcs and siblings of a tree. Upwards, an item's mean is E[U below it];
downwards, a term's probability q changes by q (E[U below | the term] - E[U below]). So covariances
are sums of deviations: no difference of large numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.dependencies.cpu import chart as charts
from inout.kernels.dependencies.cpu.chart import REAL, Array
from inout.kernels.dependencies.cpu.marginals import (
    Numbers,
    chain_shares,
    clear,
    new_numbers,
    write,
)
from inout.kernels.math.cpu.exponential import FAST


class State(NamedTuple):
    """What is known of the items of one sentence."""

    means: Numbers  # of items i < j at [i, j] and [j, i]
    chances: Numbers
    changes: Numbers  # of the chances
    shares: Array  # [N], of the terms of one sum


class Factors(NamedTuple):
    """One factor of each term of a sum, as rows of tables; or the tables."""

    values: Array
    means: Array
    chances: Array
    changes: Array


@inner(fastmath=FAST, forceinline=True)
def mean_of(a, b, total, count, kind):
    """E[U below] of a sum of products."""
    scale, mean = charts.scale_of(a.values, b.values, total, count, kind), 0.0
    if scale == 0:
        return mean
    if kind == REAL:  # a loop of its own becomes vector instructions
        for k in range(count):
            mean += a.values[k] * b.values[k] * (a.means[k] + b.means[k])
    else:
        for k in range(count):
            mean += charts.term(a.values[k], b.values[k], total) * (a.means[k] + b.means[k])
    return mean * scale


@inner(forceinline=True)
def add(a, b, k, share, mean, chance, change):
    """Adds the share of a term in the chance and the change of its sum to those of its factors."""
    own = chance * share
    moved = share * change + own * (a.means[k] + b.means[k] - mean)
    a.chances[k] += own
    b.chances[k] += own
    a.changes[k] += moved
    b.changes[k] += moved


@inner(forceinline=True)
def divide(a, b, total, count, kind, mean, chance, change):
    """Adds the chance and the change of a sum of products, with this mean, to its factors'."""
    if chance == 0 and change == 0:
        return
    scale = charts.scale_of(a.values, b.values, total, count, kind)
    if scale == 0:
        return
    if kind == REAL:
        for k in range(count):
            add(a, b, k, a.values[k] * b.values[k] * scale, mean, chance, change)
    else:
        for k in range(count):
            share = charts.term(a.values[k], b.values[k], total) * scale
            add(a, b, k, share, mean, chance, change)


@inner(returns_arrays=True)
def row(table, i, first):
    """The factors in row i of a table, from this column on."""
    values, means, chances, changes = table
    return Factors(values[i, first:], means[i, first:], chances[i, first:], changes[i, first:])


@inner(returns_arrays=True)
def tables_of(chart, state):
    """(right, left, arc): what is known of all items of a kind."""
    means, chances, changes, _ = state
    return (
        Factors(chart.right, means.right, chances.right, changes.right),
        Factors(chart.left, means.left, chances.left, changes.left),
        Factors(chart.arc, means.arc, chances.arc, changes.arc),
    )


@inner(fastmath=FAST)
def sibling_value(u, h, d, k):
    """u of a pair of siblings; those of the root have none."""
    return u.siblings[h - 1, d - 1, k - 1] if h > 0 else 0.0


@inner(fastmath=FAST)
def chain_mean(scores, chart, kind, h, d, state, u):
    """E[U below] of arc(h, d) with siblings, without its own u."""
    means, shares = state.means, state.shares
    first = chain_shares(scores, chart, kind, h, d, shares)
    mean = first * (means.left[d, h + 1] if h < d else means.right[d, h - 1])
    for k in range(min(h, d) + 1, max(h, d)):
        if shares[k] > 0:
            mean += shares[k] * (means.arc[h, k] + means.gap[d, k] + sibling_value(u, h, d, k))
    return mean


@inner
def divide_chain(scores, chart, kind, h, d, state, u, siblings):
    """`divide` for arc(h, d) with siblings, whose changes go to siblings [n n n]."""
    means, chances, changes, shares = state
    chance, change = chances.arc[h, d], changes.arc[h, d]
    if chance == 0 and change == 0:
        return
    first = chain_shares(scores, chart, kind, h, d, shares)
    mean = means.arc[h, d] - u.arcs[h, d - 1]
    below = means.left[d, h + 1] if h < d else means.right[d, h - 1]
    own, moved = chance * first, first * (change + chance * (below - mean))
    if h < d:
        chances.left[d, h + 1] += own
        changes.left[d, h + 1] += moved
    else:
        chances.right[d, h - 1] += own
        changes.right[d, h - 1] += moved
    for k in range(min(h, d) + 1, max(h, d)):
        if shares[k] == 0:
            continue
        below = means.arc[h, k] + means.gap[d, k] + sibling_value(u, h, d, k)
        own, moved = chance * shares[k], shares[k] * (change + chance * (below - mean))
        chances.arc[h, k] += own
        chances.gap[d, k] += own
        changes.arc[h, k] += moved
        changes.gap[d, k] += moved
        if h > 0:
            siblings[h - 1, d - 1, k - 1] = moved


@inner
def go_up(scores, chart, kind, state, u):
    """Fills the means of all items."""
    means, (right, left, arc) = state.means, tables_of(chart, state)
    dead = 0.0 if kind == REAL else -np.inf
    second = scores.siblings.shape[0] > 0
    size = scores.length + 1
    for i in range(size - 1, -1, -1):
        means.right[i, i], means.left[i, i] = 0.0, 0.0
        for j in range(i + 1, size):
            count = 1 if i == 0 and scores.single_root else j - i
            a, b = row(right, i, i), row(left, j, i + 1)
            mean = mean_of(a, b, chart.gap[i, j], count, kind)
            means.gap[i, j], means.gap[j, i] = mean, mean
            for h, d in ((i, j), (j, i)):
                means.arc[h, d] = 0.0
                if d > 0 and chart.arc[h, d] > dead:
                    if second:
                        mean = chain_mean(scores, chart, kind, h, d, state, u)
                    means.arc[h, d] = mean + u.arcs[h, d - 1]
            a, b = row(arc, i, i + 1), row(right, j, i + 1)
            mean = mean_of(a, b, chart.right[i, j], j - i, kind)
            means.right[i, j], means.right[j, i] = mean, mean
            a, b = row(left, i, i), row(arc, j, i)
            mean = mean_of(a, b, chart.left[i, j], j - i, kind)
            means.left[i, j], means.left[j, i] = mean, mean


@inner
def go_down(scores, chart, kind, state, u, siblings):
    """Fills the chances of all items and their changes, and the changes of siblings."""
    means, chances, changes, _ = state
    right, left, arc = tables_of(chart, state)
    second = scores.siblings.shape[0] > 0
    size = scores.length + 1
    clear(chances, size)
    clear(changes, size)
    chances.right[0, size - 1] = 1.0
    for i in range(size):
        for j in range(size - 1, i, -1):
            a, b = row(arc, i, i + 1), row(right, j, i + 1)
            divide(
                a, b, chart.right[i, j], j - i, kind, means.right[i, j],
                chances.right[i, j] + chances.right[j, i],
                changes.right[i, j] + changes.right[j, i],
            )  # fmt: skip
            if i > 0:
                a, b = row(left, i, i), row(arc, j, i)
                divide(
                    a, b, chart.left[i, j], j - i, kind, means.left[i, j],
                    chances.left[i, j] + chances.left[j, i],
                    changes.left[i, j] + changes.left[j, i],
                )  # fmt: skip
            chance = chances.arc[i, j] + chances.arc[j, i]
            change = changes.arc[i, j] + changes.arc[j, i]
            if second:
                divide_chain(scores, chart, kind, i, j, state, u, siblings)
                divide_chain(scores, chart, kind, j, i, state, u, siblings)
                chance = chances.gap[i, j] + chances.gap[j, i]
                change = changes.gap[i, j] + changes.gap[j, i]
            count = 1 if i == 0 and scores.single_root else j - i
            a, b = row(right, i, i), row(left, j, i + 1)
            divide(
                a, b, chart.gap[i, j], count, kind, means.gap[i, j], chance, change
            )  # fmt: skip


@compiled
def tangents(scores, siblings, lengths, single_root, lo, hi, u, expected, out, of_siblings):
    """Fills out [b n+1 n] and of_siblings [b n n n] with Cov[part, U], and expected [b] with E[U].

    `u` are the values of arcs and of siblings, in the shapes of the scores.
    """
    n = scores.shape[2]
    chart = charts.new_chart(n)
    state = State(new_numbers(n), new_numbers(n), new_numbers(n), np.empty(n + 1))
    for b in range(lo, hi):
        own = charts.scores_of(scores, siblings, lengths, single_root, b)
        values = charts.scores_of(u[0], u[1], lengths, single_root, b)
        pairs = charts.scores_of(scores, of_siblings, lengths, single_root, b).siblings
        pairs[:] = 0.0
        out[b] = 0.0
        expected[b] = 0.0
        log_z, kind = charts.inside(own, chart)
        if log_z == -np.inf:
            continue
        go_up(own, chart, kind, state, values)
        expected[b] = state.means.right[0, own.length]
        go_down(own, chart, kind, state, values, pairs)
        write(state.changes, own, 1.0, out[b])
