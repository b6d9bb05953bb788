"""Charts of single elements in float64 log space: the fallback of `cky.cpu`.

One chart [n n s] for all symbols: the preterminals nt..s-1 stand at width 1, the nonterminals
0..nt-1 above it. Handles every mixture of magnitudes and -inf. Sums over splits come first, as a
matrix of pairs of symbols, then the rules: O(n³ nt² + n² nt s²) calls of exp.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def symbols_of(width, nt, s):
    """The range of the symbols that a span of this width can have."""
    return (nt, s) if width == 1 else (0, nt)


@njit(cache=True, nogil=True)
def sum_splits(chart, nt, i, j, pairs):
    """Fills pairs [s s] with the log of the sum over k of chart[i, k, B] chart[k + 1, j, C]."""
    s = chart.shape[2]
    tops = np.full((s, s), -np.inf)
    pairs[:] = 0
    for k in range(i, j):
        b_lo, b_hi = symbols_of(k - i + 1, nt, s)
        c_lo, c_hi = symbols_of(j - k, nt, s)
        for p in range(b_lo, b_hi):
            if chart[i, k, p] > -np.inf:
                for q in range(c_lo, c_hi):
                    tops[p, q] = max(tops[p, q], chart[i, k, p] + chart[k + 1, j, q])
    for k in range(i, j):
        b_lo, b_hi = symbols_of(k - i + 1, nt, s)
        c_lo, c_hi = symbols_of(j - k, nt, s)
        for p in range(b_lo, b_hi):
            if chart[i, k, p] > -np.inf:
                for q in range(c_lo, c_hi):
                    if chart[k + 1, j, q] > -np.inf:
                        pairs[p, q] += math.exp(chart[i, k, p] + chart[k + 1, j, q] - tops[p, q])
    for p in range(s):
        for q in range(s):
            pairs[p, q] = tops[p, q] + math.log(pairs[p, q]) if pairs[p, q] > 0 else -np.inf


@njit(cache=True, nogil=True)
def apply_rules(rules, pairs, total):
    """total[A] = log of the sum over B, C of rules[A, B, C] pairs[B, C]."""
    s = pairs.shape[0]
    for a in range(rules.shape[0]):
        top = -np.inf
        for p in range(s):
            for q in range(s):
                top = max(top, rules[a, p, q] + pairs[p, q])
        total[a] = -np.inf
        if top > -np.inf:
            mass = 0.0
            for p in range(s):
                for q in range(s):
                    if pairs[p, q] > -np.inf:
                        mass += math.exp(rules[a, p, q] + pairs[p, q] - top)
            total[a] = top + math.log(mass)


@njit(cache=True, nogil=True)
def inside(root, rules, words, length, chart):
    """Fills chart [n n s] of one element and returns log Z. root [nt], words [n pt]."""
    nt, s = rules.shape[0], rules.shape[1]
    chart[:] = -np.inf
    pairs = np.empty((s, s))
    for i in range(length):
        for p in range(nt, s):
            chart[i, i, p] = words[i, p - nt]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            j = i + width - 1
            sum_splits(chart, nt, i, j, pairs)
            apply_rules(rules, pairs, chart[i, j, :nt])
    top = -np.inf
    if length < 2:
        return top
    for a in range(nt):
        top = max(top, root[a] + chart[0, length - 1, a])
    if top == -np.inf:
        return top
    mass = 0.0
    for a in range(nt):
        mass += math.exp(root[a] + chart[0, length - 1, a] - top)
    return top + math.log(mass)


@njit(cache=True, nogil=True)
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
    pairs, shares = np.empty((s, s)), np.empty((s, s))
    for a in range(nt):
        masses[0, length - 1, a] = math.exp(root[a] + chart[0, length - 1, a] - log_z)
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            j = i + width - 1
            sum_splits(chart, nt, i, j, pairs)
            shares[:] = 0
            for a in range(nt):
                mass = masses[i, j, a]
                if mass > 0:
                    for p in range(s):
                        for q in range(s):
                            if pairs[p, q] > -np.inf:
                                share = mass * math.exp(
                                    rules[a, p, q] + pairs[p, q] - chart[i, j, a]
                                )
                                rule_counts[a, p, q] += share
                                shares[p, q] += share
            for k in range(i, j):
                b_lo, b_hi = symbols_of(k - i + 1, nt, s)
                c_lo, c_hi = symbols_of(j - k, nt, s)
                for p in range(b_lo, b_hi):
                    for q in range(c_lo, c_hi):
                        if shares[p, q] > 0:
                            share = shares[p, q] * math.exp(
                                chart[i, k, p] + chart[k + 1, j, q] - pairs[p, q]
                            )
                            masses[i, k, p] += share
                            masses[k + 1, j, q] += share


@njit(cache=True, nogil=True)
def mean_over_splits(chart, means, nt, i, j, pairs, pair_means):
    """Fills pair_means [s s]: E[U below | children B, C of i..j], where U below means `means`."""
    s = chart.shape[2]
    pair_means[:] = 0
    for k in range(i, j):
        b_lo, b_hi = symbols_of(k - i + 1, nt, s)
        c_lo, c_hi = symbols_of(j - k, nt, s)
        for p in range(b_lo, b_hi):
            for q in range(c_lo, c_hi):
                if pairs[p, q] > -np.inf:
                    share = math.exp(chart[i, k, p] + chart[k + 1, j, q] - pairs[p, q])
                    pair_means[p, q] += share * (means[i, k, p] + means[k + 1, j, q])


@njit(cache=True, nogil=True)
def tangent(
    root,
    rules,
    length,
    chart,
    log_z,
    u_root,
    u_rules,
    u_words,
    root_out,
    rules_out,
    changes,
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
    pairs, pair_means = np.empty((s, s)), np.empty((s, s))
    shares, share_changes = np.empty((s, s)), np.empty((s, s))
    for i in range(length):
        for p in range(nt, s):
            if chart[i, i, p] > -np.inf:
                means[i, i, p] = u_words[i, p - nt]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            j = i + width - 1
            sum_splits(chart, nt, i, j, pairs)
            mean_over_splits(chart, means, nt, i, j, pairs, pair_means)
            for a in range(nt):
                if chart[i, j, a] > -np.inf:
                    for p in range(s):
                        for q in range(s):
                            share = math.exp(rules[a, p, q] + pairs[p, q] - chart[i, j, a])
                            if share > 0:
                                means[i, j, a] += share * (u_rules[a, p, q] + pair_means[p, q])
    expected = 0.0
    last = length - 1
    for a in range(nt):
        masses[0, last, a] = math.exp(root[a] + chart[0, last, a] - log_z)
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
            sum_splits(chart, nt, i, j, pairs)
            mean_over_splits(chart, means, nt, i, j, pairs, pair_means)
            shares[:] = 0
            share_changes[:] = 0
            for a in range(nt):
                mass, change = masses[i, j, a], changes[i, j, a]
                if mass > 0:
                    for p in range(s):
                        for q in range(s):
                            share = math.exp(rules[a, p, q] + pairs[p, q] - chart[i, j, a])
                            if share > 0:
                                given = u_rules[a, p, q] + pair_means[p, q] - means[i, j, a]
                                shares[p, q] += mass * share
                                share_changes[p, q] += share * (change + mass * given)
                                rules_out[a, p, q] += share * (change + mass * given)
            for k in range(i, j):
                b_lo, b_hi = symbols_of(k - i + 1, nt, s)
                c_lo, c_hi = symbols_of(j - k, nt, s)
                for p in range(b_lo, b_hi):
                    for q in range(c_lo, c_hi):
                        if shares[p, q] > 0:
                            share = math.exp(chart[i, k, p] + chart[k + 1, j, q] - pairs[p, q])
                            given = means[i, k, p] + means[k + 1, j, q] - pair_means[p, q]
                            change = share * (share_changes[p, q] + shares[p, q] * given)
                            masses[i, k, p] += share * shares[p, q]
                            masses[k + 1, j, q] += share * shares[p, q]
                            changes[i, k, p] += change
                            changes[k + 1, j, q] += change
    return expected
