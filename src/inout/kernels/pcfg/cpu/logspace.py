"""Charts of single elements in float64 log space: the fallback of `scaled.py`.

One chart [n n s] for all symbols: the preterminals nt..s-1 at width 1, the nonterminals
0..nt-1 above it. Handles every mixture of magnitudes and -inf. Sums over splits come first, as a
matrix of pairs of symbols, then the rules. For most heads the products of pairs and rules, each
relative to its largest, are within the range of numbers, so that O(n³ nt² + n² nt s) calls of exp
are enough, in loops over rows that become vector instructions; the others (`GRAMMAR_REACH`) need
O(n² nt² s) more.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.limits import GRAMMAR_REACH
from inout.kernels.math.cpu.exponential import FAST, exp_below

# For impossible pairs instead of -inf: -inf less this is -inf, where -inf less -inf is NaN.
LOWEST = np.finfo(np.float64).min

Array = NDArray[Any]


class ScaledRules(NamedTuple):
    """The rules of one element, also relative to the best of their head."""

    logs: Array  # [nt s s]
    weights: Array  # [nt s s], relative to the best of their head
    tops: Array  # [nt], the logarithm of that


class Pairs(NamedTuple):
    """The children of one span, B on the left and C on the right, summed over splits."""

    logs: Array  # [s s], at least LOWEST, and only for B and C that can be
    scaled: Array  # [s s], relative to the best
    tops: Array  # [s s], the log of the best split, at least LOWEST
    totals: Array  # [nt nt], the sum over splits relative to that
    row: Array  # [s], scratch memory


@inner
def children_of(i, k, j, nt, s):
    """The ranges of the symbols that the spans i..k and k+1..j can have."""
    b_lo, b_hi = (nt, s) if i == k else (0, nt)
    c_lo, c_hi = (nt, s) if k + 1 == j else (0, nt)
    return b_lo, b_hi, c_lo, c_hi


@inner
def partners(width, p, nt, s):
    """The right children that a left child p can have in a span of this width are below this."""
    if width == 2:
        return s if p >= nt else 0
    return nt if p >= nt else s


@inner
def set_row(left, right, row, tops):
    """row = tops = left + right, for a left child and all right ones."""
    for q in range(row.shape[0]):
        value = left + right[q]
        row[q] = tops[q] = value if value > LOWEST else LOWEST


@inner
def raise_row(left, right, row):
    """row = max(row, left + right)."""
    for q in range(row.shape[0]):
        value = left + right[q]
        row[q] = value if value > row[q] else row[q]


@inner(fastmath=FAST)
def add_exp(left, right, top, row):
    """row += exp(left + right - top)."""
    for q in range(row.shape[0]):
        row[q] += exp_below(left + right[q] - top[q])


@inner
def empty_pairs(nt, s):
    """Room for the pairs of a span."""
    logs, scaled, tops = np.empty((s, s)), np.empty((s, s)), np.empty((s, s))
    return Pairs(logs, scaled, tops, np.empty((nt, nt)), np.empty(s))


@inner
def sum_splits(chart, i, j, made):
    """Fills the logs of pairs: of the sum over k of chart[i, k, B] chart[k + 1, j, C].

    A word on one side leaves one split.
    """
    s, pairs, tops = chart.shape[2], made.logs, made.tops
    nt = made.totals.shape[0]
    if j == i + 1:
        for p in range(nt, s):
            pairs[p, :nt] = LOWEST
            set_row(chart[i, i, p], chart[j, j, nt:], pairs[p, nt:], tops[p, nt:])
        return
    for p in range(nt, s):
        set_row(chart[i, i, p], chart[i + 1, j, :nt], pairs[p, :nt], tops[p, :nt])
    for p in range(nt):
        set_row(chart[i, j - 1, p], chart[j, j, nt:], pairs[p, nt:], tops[p, nt:])
    for p in range(nt):
        row, top = made.totals[p], tops[p, :nt]
        row[:] = 0
        top[:] = LOWEST
        for k in range(i + 1, j - 1):
            if chart[i, k, p] > -np.inf:
                raise_row(chart[i, k, p], chart[k + 1, j, :nt], top)
        for k in range(i + 1, j - 1):
            if chart[i, k, p] > -np.inf:
                add_exp(chart[i, k, p], chart[k + 1, j, :nt], top, row)
        for q in range(nt):
            pairs[p, q] = top[q] + math.log(row[q]) if row[q] > 0 else LOWEST
            row[q] = row[q] if row[q] > 0 else 1.0


@inner
def raise_sums(x, y, row):
    """row = max(row, x + y)."""
    for q in range(x.shape[0]):
        value = x[q] + y[q]
        row[q] = value if value > row[q] else row[q]


@inner(fastmath=FAST)
def sum_exp(x, y, top):
    """The sum of exp(x + y - top)."""
    total = 0.0
    for q in range(x.shape[0]):
        total += exp_below(x[q] + y[q] - top)
    return total


@inner(fastmath=FAST)
def scale_row(x, top, row):
    """row = exp(x - top)."""
    for q in range(x.shape[0]):
        row[q] = exp_below(x[q] - top)


@inner(fastmath=FAST)
def dot(x, y):
    """Scalar product."""
    total = 0.0
    for q in range(x.shape[0]):
        total += x[q] * y[q]
    return total


@inner
def largest(row):
    """The largest entry, at least LOWEST."""
    top = LOWEST
    for q in range(row.shape[0]):
        top = max(top, row[q])
    return top


@inner
def scale_rules(rules):
    """Rules [nt s s] with their weights relative to the best of their head."""
    nt, s = rules.shape[0], rules.shape[1]
    weights, tops, row = np.empty((nt, s, s)), np.empty(nt), np.empty(s)
    for a in range(nt):
        row[:] = LOWEST
        for p in range(s):
            raise_row(0.0, rules[a, p], row)
        tops[a] = largest(row)
        for p in range(s):
            scale_row(rules[a, p], tops[a], weights[a, p])
    return ScaledRules(rules, weights, tops)


@inner
def fill_pairs(chart, i, j, made):
    """Fills the pairs of the span i..j; returns the log of the best."""
    sum_splits(chart, i, j, made)
    pairs, scaled, row = made.logs, made.scaled, made.row
    nt, s, width = made.totals.shape[0], pairs.shape[0], j - i + 1
    row[:] = LOWEST
    for p in range(s):
        end = partners(width, p, nt, s)
        raise_row(0.0, pairs[p, :end], row[:end])
    top = max(largest(row), LOWEST / 2)  # so that impossible pairs become 0 even if all are
    for p in range(s):
        end = partners(width, p, nt, s)
        scale_row(pairs[p, :end], top, scaled[p, :end])
    return top


@inner
def apply_rules(rules, pairs, pair_top, width, total):
    """total[A] = log of the sum over B, C of rules[A, B, C] pairs[B, C]."""
    nt, s, row = rules.logs.shape[0], rules.logs.shape[1], pairs.row
    for a in range(nt):
        top, mass = rules.tops[a] + pair_top, 0.0
        for p in range(s):
            end = partners(width, p, nt, s)
            mass += dot(rules.weights[a, p, :end], pairs.scaled[p, :end])
        if mass < math.exp(-GRAMMAR_REACH):
            row[:] = LOWEST
            for p in range(s):
                end = partners(width, p, nt, s)
                raise_sums(rules.logs[a, p, :end], pairs.logs[p, :end], row[:end])
            # A rule does not change LOWEST, except to -inf.
            top, mass = largest(row), 0.0
            if top > LOWEST:
                for p in range(s):
                    end = partners(width, p, nt, s)
                    mass += sum_exp(rules.logs[a, p, :end], pairs.logs[p, :end], top)
        total[a] = top + math.log(mass) if mass > 0 else -np.inf


@inner(fastmath=FAST)
def set_probabilities(rules, a, pairs, pair_top, head, width, given):
    """given[B, C] = exp(rules + pairs - head), the probabilities of rules given their head a.

    They are made to sum to 1, as those of `chain.cpu.logspace.marginals`.
    """
    nt, s, total = rules.logs.shape[0], given.shape[0], 0.0
    gap = rules.tops[a] + pair_top - head
    factor = math.exp(gap) if gap < GRAMMAR_REACH else 0.0
    for p in range(s):
        end = partners(width, p, nt, s)
        if factor > 0:
            for q in range(end):
                given[p, q] = factor * rules.weights[a, p, q] * pairs.scaled[p, q]
                total += given[p, q]
        else:
            for q in range(end):
                given[p, q] = exp_below(rules.logs[a, p, q] + pairs.logs[p, q] - head)
                total += given[p, q]
    for p in range(s):
        end = partners(width, p, nt, s)
        for q in range(end):
            given[p, q] /= total


@compiled
def inside(root, rules, words, length, chart):
    """Fills chart [n n s] of one element and returns log Z. root [nt], words [n pt]."""
    nt, s = rules.shape[0], rules.shape[1]
    chart[:] = -np.inf
    pairs, scaled_rules = empty_pairs(nt, s), scale_rules(rules)
    for i in range(length):
        for p in range(nt, s):
            chart[i, i, p] = words[i, p - nt]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            j = i + width - 1
            pair_top = fill_pairs(chart, i, j, pairs)
            apply_rules(scaled_rules, pairs, pair_top, width, chart[i, j, :nt])
    top = -np.inf
    if length < 2:
        return top
    whole = chart[0, length - 1, :nt]
    for a in range(nt):
        top = max(top, root[a] + whole[a])
    return top + math.log(sum_exp(root, whole, top)) if top > -np.inf else top


@inner(fastmath=FAST)
def add_shares(mass, given, nt, width, counts, shares):
    """counts and shares += mass given."""
    s = given.shape[0]
    for p in range(s):
        end = partners(width, p, nt, s)
        for q in range(end):
            share = mass * given[p, q]
            counts[p, q] += share
            shares[p, q] += share


@inner(fastmath=FAST)
def send_down(left, right, tops, shares, masses):
    """Adds to the right children's masses their parts of the shares; returns the left child's.

    The shares are those of the best splits, whose logarithms are `tops`.
    """
    total = 0.0
    for q in range(right.shape[0]):
        share = shares[q] * exp_below(left + right[q] - tops[q])
        masses[q] += share
        total += share
    return total


@inner
def per_split(totals, shares):
    """shares of pairs /= their sums over splits, in units of the best: what a best split gets."""
    for p in range(totals.shape[0]):
        for q in range(totals.shape[0]):
            shares[p, q] /= totals[p, q]


@inner
def root_masses(root, row, log_z, masses):
    """masses[A] = the probability of the root symbol A, given the chart's last row [s]."""
    total = 0.0
    for a in range(root.shape[0]):
        masses[a] = math.exp(root[a] + row[a] - log_z)
        total += masses[a]
    for a in range(root.shape[0]):
        masses[a] /= total


@compiled
def outside(root, rules, length, chart, log_z, masses, rule_counts):
    """Fills masses [n n s], the posteriors of symbols over spans, and rule_counts [nt s s].

    Downwards, by conditional probabilities: exp(rule + pair - chart) of a rule given its head,
    then exp(left + right - pair) of a split given the children's symbols.
    """
    nt, s = rules.shape[0], rules.shape[1]
    masses[:] = 0
    rule_counts[:] = 0
    if log_z == -np.inf:
        return
    pairs, scaled_rules = empty_pairs(nt, s), scale_rules(rules)
    shares, given = np.empty((s, s)), np.empty((s, s))
    root_masses(root, chart[0, length - 1], log_z, masses[0, length - 1])
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            j = i + width - 1
            pair_top = fill_pairs(chart, i, j, pairs)
            shares[:] = 0
            for a in range(nt):
                if masses[i, j, a] > 0:
                    head = chart[i, j, a]
                    set_probabilities(scaled_rules, a, pairs, pair_top, head, width, given)
                    add_shares(masses[i, j, a], given, nt, width, rule_counts[a], shares)
            if width > 3:
                per_split(pairs.totals, shares)
            for k in range(i, j):
                b_lo, b_hi, lo, hi = children_of(i, k, j, nt, s)
                for p in range(b_lo, b_hi):
                    if chart[i, k, p] > -np.inf:
                        masses[i, k, p] += send_down(
                            chart[i, k, p], chart[k + 1, j, lo:hi], pairs.tops[p, lo:hi],
                            shares[p, lo:hi], masses[k + 1, j, lo:hi],
                        )  # fmt: skip


@inner(fastmath=FAST)
def add_means(left, right, tops, left_mean, right_means, row):
    """row += exp(left + right - tops) (left_mean + right_means)."""
    for q in range(right.shape[0]):
        row[q] += exp_below(left + right[q] - tops[q]) * (left_mean + right_means[q])


@inner
def mean_over_splits(chart, means, nt, i, j, pairs, pair_means):
    """Fills pair_means [s s]: E[U below | children B, C of i..j], where U below means `means`."""
    s = chart.shape[2]
    pair_means[:] = 0
    for k in range(i, j):
        b_lo, b_hi, lo, hi = children_of(i, k, j, nt, s)
        for p in range(b_lo, b_hi):
            if chart[i, k, p] > -np.inf:
                add_means(
                    chart[i, k, p], chart[k + 1, j, lo:hi], pairs.tops[p, lo:hi],
                    means[i, k, p], means[k + 1, j, lo:hi], pair_means[p, lo:hi],
                )  # fmt: skip
    if j - i > 2:
        per_split(pairs.totals, pair_means)


@inner(fastmath=FAST)
def mean_of_rules(given, changes, means, nt, width):
    """The sum of given (changes + means), where that is possible."""
    s, total = given.shape[0], 0.0
    for p in range(s):
        end = partners(width, p, nt, s)
        for q in range(end):
            total += given[p, q] * (changes[p, q] + means[p, q]) if given[p, q] > 0 else 0.0
    return total


@inner(fastmath=FAST)
def add_share_changes(
    mass, change, mean, given, changes, means, nt, width, counts, shares, share_changes
):
    """Derivatives of `add_shares`: those of the counts and shares, and the shares themselves."""
    s = given.shape[0]
    for p in range(s):
        end = partners(width, p, nt, s)
        for q in range(end):
            moved = change + mass * (changes[p, q] + means[p, q] - mean)
            moved = given[p, q] * moved if given[p, q] > 0 else 0.0
            shares[p, q] += mass * given[p, q]
            share_changes[p, q] += moved
            counts[p, q] += moved


@inner(fastmath=FAST)
def send_changes_down(
    left, right, tops, left_mean, right_means, pair_means, shares, share_changes, masses, changes
):
    """Derivatives of `send_down`: (the left child's mass, its derivative)."""
    total, total_change = 0.0, 0.0
    for q in range(right.shape[0]):
        share = exp_below(left + right[q] - tops[q])
        given = left_mean + right_means[q] - pair_means[q]
        change = share * (share_changes[q] + shares[q] * given)
        masses[q] += share * shares[q]
        changes[q] += change
        total += share * shares[q]
        total_change += change
    return total, total_change


@compiled
def tangent(
    root, rules, length, chart, log_z, u_root, u_rules, u_words, root_out, rules_out, changes
):
    """Fills the covariances with U of root symbols [nt], rules [nt s s] and spans [n n s]: E[U].

    Upwards means[i, j, A] = E[U below | A over i..j]; downwards the derivatives of `outside`:
    a conditional probability q changes by q (E[U below | its choice] - E[U below]).
    """
    nt, s = rules.shape[0], rules.shape[1]
    n = chart.shape[0]
    root_out[:] = 0
    rules_out[:] = 0
    changes[:] = 0
    if log_z == -np.inf:
        return 0.0
    means, masses = np.zeros((n, n, s)), np.zeros((n, n, s))
    pairs, scaled_rules = empty_pairs(nt, s), scale_rules(rules)
    pair_means, given = np.empty((s, s)), np.empty((s, s))
    shares, share_changes = np.empty((s, s)), np.empty((s, s))
    for i in range(length):
        for p in range(nt, s):
            if chart[i, i, p] > -np.inf:
                means[i, i, p] = u_words[i, p - nt]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            j = i + width - 1
            pair_top = fill_pairs(chart, i, j, pairs)
            mean_over_splits(chart, means, nt, i, j, pairs, pair_means)
            for a in range(nt):
                if chart[i, j, a] > -np.inf:
                    head = chart[i, j, a]
                    set_probabilities(scaled_rules, a, pairs, pair_top, head, width, given)
                    means[i, j, a] = mean_of_rules(given, u_rules[a], pair_means, nt, width)
    expected = 0.0
    last = length - 1
    root_masses(root, chart[0, last], log_z, masses[0, last])
    for a in range(nt):
        if masses[0, last, a] > 0:
            expected += masses[0, last, a] * (u_root[a] + means[0, last, a])
    for a in range(nt):
        if masses[0, last, a] > 0:
            change = masses[0, last, a] * (u_root[a] + means[0, last, a] - expected)
            root_out[a] = change
            changes[0, last, a] = change
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            j = i + width - 1
            pair_top = fill_pairs(chart, i, j, pairs)
            mean_over_splits(chart, means, nt, i, j, pairs, pair_means)
            shares[:] = 0
            share_changes[:] = 0
            for a in range(nt):
                if masses[i, j, a] > 0:
                    head = chart[i, j, a]
                    set_probabilities(scaled_rules, a, pairs, pair_top, head, width, given)
                    add_share_changes(
                        masses[i, j, a], changes[i, j, a], means[i, j, a], given, u_rules[a],
                        pair_means, nt, width, rules_out[a], shares, share_changes,
                    )  # fmt: skip
            if width > 3:
                per_split(pairs.totals, shares)
                per_split(pairs.totals, share_changes)
            for k in range(i, j):
                b_lo, b_hi, lo, hi = children_of(i, k, j, nt, s)
                for p in range(b_lo, b_hi):
                    if chart[i, k, p] > -np.inf:
                        mass, change = send_changes_down(
                            chart[i, k, p], chart[k + 1, j, lo:hi], pairs.tops[p, lo:hi],
                            means[i, k, p], means[k + 1, j, lo:hi], pair_means[p, lo:hi],
                            shares[p, lo:hi], share_changes[p, lo:hi],
                            masses[k + 1, j, lo:hi], changes[k + 1, j, lo:hi],
                        )  # fmt: skip
                        masses[i, k, p] += mass
                        changes[i, k, p] += change
    return expected
