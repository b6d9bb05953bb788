"""Inside, marginals, their derivative, Viterbi and sampling of trees with one score per span.

A span's value is a mantissa in [1, 2) times a power of two with an exponent of its own, so no sum
can overflow, underflow or call exp: exact for every range of scores. Going down, marginals are
products of conditional probabilities of the splits, so there is no outside pass.

Scores [b n n], of which those with i <= j < length count; every kernel does the elements lo:hi
only, so that threads can share a batch. Lengths of at least 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.draws import add_up, add_up_logs, draw, next_uniform, stream
from inout.kernels.math.cpu.exponential import FAST

LN2 = math.log(2)

Array = NDArray[Any]


class Chart(NamedTuple):
    """Inside values of spans, mantissa * 2**exponent; of one element without the dimension b."""

    mantissas: Array  # [b n n], 0 where nothing is possible
    exponents: Array  # [b n n]


@inner(returns_arrays=True)
def chart_of(chart, b):
    """The chart of element b."""
    return Chart(chart.mantissas[b], chart.exponents[b])


@inner
def power_of_two(exponent):
    """2**exponent for exponent <= 0, as 0 below the smallest normal number."""
    bits = np.int64(max(exponent, -1023) + 1023) << np.int64(52)
    return np.int64(bits).view(np.float64)


@inner
def normalised(value, exponent):
    """(mantissa in [1, 2), exponent) of value * 2**exponent, value > 0 and normal."""
    extra = np.int64(np.int64(np.float64(value).view(np.int64) >> np.int64(52)) - np.int64(1023))
    # Half of the power at a time: 2**-extra itself may be out of range.
    half = extra // 2
    return value * 2.0 ** (-half) * 2.0 ** (half - extra), exponent + extra


@inner(fastmath=FAST)
def split_sum(chart, i, j, weights):
    """(sum over k of beta(i, k) beta(k + 1, j), its exponent); the terms in weights[k - i]."""
    mantissas, exponents = chart
    top, found = np.int64(0), False
    for k in range(i, j):
        if mantissas[i, k] > 0 and mantissas[k + 1, j] > 0:
            exponent = exponents[i, k] + exponents[k + 1, j]
            top = max(top, exponent) if found else exponent
            found = True
    total = 0.0
    for k in range(i, j):
        term = mantissas[i, k] * mantissas[k + 1, j]
        if term > 0:
            term *= power_of_two(exponents[i, k] + exponents[k + 1, j] - top)
        weights[k - i] = term
        total += term
    return total, top


@compiled
def inside(scores, lengths, lo, hi, chart, log_z):
    """Fills the chart and log_z [b]."""
    weights = np.empty(scores.shape[1])
    for b in range(lo, hi):
        length, own = lengths[b], chart_of(chart, b)
        for width in range(1, length + 1):
            for i in range(length - width + 1):
                j = i + width - 1
                score = float(scores[b, i, j])
                total, exponent = 1.0, np.int64(0)
                if width > 1 and score > -np.inf:
                    total, exponent = split_sum(own, i, j, weights)
                own.mantissas[i, j], own.exponents[i, j] = 0.0, 0
                if score > -np.inf and total > 0:
                    power = np.int64(math.floor(score / LN2))
                    own.mantissas[i, j], own.exponents[i, j] = normalised(
                        total * math.exp(score - power * LN2), exponent + power
                    )
        last = length - 1
        log_z[b] = -np.inf
        if own.mantissas[0, last] > 0:
            log_z[b] = math.log(own.mantissas[0, last]) + own.exponents[0, last] * LN2


@compiled
def marginals(lengths, lo, hi, chart, roots, out):
    """Fills out [b n n] with roots[b] * P(span i..j is in the tree)."""
    weights = np.empty(out.shape[1])
    for b in range(lo, hi):
        out[b] = 0
        length, own = lengths[b], chart_of(chart, b)
        if own.mantissas[0, length - 1] > 0:
            out[b, 0, length - 1] = roots[b]
        for width in range(length, 1, -1):
            for i in range(length - width + 1):
                j = i + width - 1
                if out[b, i, j] == 0:
                    continue
                total, _ = split_sum(own, i, j, weights)
                for k in range(i, j):
                    share = out[b, i, j] * (weights[k - i] / total)
                    out[b, i, k] += share
                    out[b, k + 1, j] += share


@compiled
def tangents(lengths, lo, hi, chart, roots, u, expected, out):
    """Fills out [b n n] with roots[b] * Cov[span, U] and expected [b] with E[U].

    U is the sum of u [b n n] over the spans of the tree. Upwards mean(i, j) = E[U below i..j],
    downwards the derivatives of the marginals: a split's probability q changes by
    q (E[U below | split] - E[U below]).
    """
    n = u.shape[1]
    weights = np.empty(n)
    mean, probability = np.empty((n, n)), np.empty((n, n))
    for b in range(lo, hi):
        length, own = lengths[b], chart_of(chart, b)
        out[b] = 0
        expected[b] = 0
        if not own.mantissas[0, length - 1] > 0:
            continue
        for width in range(1, length + 1):
            for i in range(length - width + 1):
                j = i + width - 1
                probability[i, j] = 0
                mean[i, j] = 0
                if not own.mantissas[i, j] > 0:
                    continue
                mean[i, j] = u[b, i, j]
                if width > 1:
                    total, _ = split_sum(own, i, j, weights)
                    for k in range(i, j):
                        mean[i, j] += weights[k - i] / total * (mean[i, k] + mean[k + 1, j])
        expected[b] = mean[0, length - 1]
        probability[0, length - 1] = 1
        for width in range(length, 1, -1):
            for i in range(length - width + 1):
                j = i + width - 1
                p, change = probability[i, j], out[b, i, j]
                if p == 0 and change == 0:
                    continue
                total, _ = split_sum(own, i, j, weights)
                below = mean[i, j] - u[b, i, j]
                for k in range(i, j):
                    share = weights[k - i] / total
                    given = mean[i, k] + mean[k + 1, j]
                    delta = share * (change + p * (given - below))
                    probability[i, k] += p * share
                    probability[k + 1, j] += p * share
                    out[b, i, k] += delta
                    out[b, k + 1, j] += delta
        for i in range(length):
            for j in range(i, length):
                out[b, i, j] *= roots[b]


@compiled
def viterbi(scores, lengths, lo, hi, chosen, best):
    """Fills chosen [b n n] with the spans of the best tree and best [b] with its score.

    Ties go to the first split. No span is chosen if no tree is possible.
    """
    n = scores.shape[1]
    value, pointer = np.empty((n, n)), np.empty((n, n), np.int64)
    stack = np.empty((n + 1, 2), np.int64)
    for b in range(lo, hi):
        length = lengths[b]
        for width in range(1, length + 1):
            for i in range(length - width + 1):
                j = i + width - 1
                top, place = (0.0 if width == 1 else -np.inf), i
                for k in range(i, j):
                    score = value[i, k] + value[k + 1, j]
                    if score > top:
                        top, place = score, k
                value[i, j] = top + scores[b, i, j]
                pointer[i, j] = place
        chosen[b] = False
        best[b] = value[0, length - 1]
        depth = 0
        if best[b] > -np.inf:
            stack[0, 0], stack[0, 1] = 0, length - 1
            depth = 1
        while depth > 0:
            depth -= 1
            i, j = stack[depth, 0], stack[depth, 1]
            chosen[b, i, j] = True
            if i < j:
                k = pointer[i, j]
                stack[depth, 0], stack[depth, 1] = k + 1, j
                stack[depth + 1, 0], stack[depth + 1, 1] = i, k
                depth += 2


@compiled
def sample(potentials, length, chart, seed, first, labels):
    """Fills labels [m n n] with samples of one element: a label for each span, -1 elsewhere.

    `potentials` [n n s] are the log-weights of the labels. Sample i has a random stream of its
    own, a function of (seed, first + i) alone.
    """
    n, size = potentials.shape[0], potentials.shape[2]
    weights = np.empty(max(n, size))
    stack = np.empty((n + 1, 2), np.int64)
    for m in range(labels.shape[0]):
        state = stream(seed, first + m)
        labels[m] = -1
        depth = 0
        if length > 0 and chart.mantissas[0, length - 1] > 0:
            stack[0, 0], stack[0, 1] = 0, length - 1
            depth = 1
        while depth > 0:
            depth -= 1
            i, j = stack[depth, 0], stack[depth, 1]
            for a in range(size):
                weights[a] = potentials[i, j, a]
            add_up_logs(weights, 0, size)
            state, uniform = next_uniform(state)
            labels[m, i, j] = draw(weights, 0, size, uniform)
            if i < j:
                split_sum(chart, i, j, weights)
                add_up(weights, 0, j - i)
                state, uniform = next_uniform(state)
                k = i + draw(weights, 0, j - i, uniform)
                stack[depth, 0], stack[depth, 1] = k + 1, j
                stack[depth + 1, 0], stack[depth + 1, 1] = i, k
                depth += 2


@compiled
def check_tree(present, length, splits):
    """Fills splits [n n] for the spans of a binary tree over 0..length-1; whether it is one.

    `present` [n n] tells which spans are there; anything outside i <= j < length must be absent
    from it. Splits of width-1 spans are their position.
    """
    n = present.shape[0]
    spans = 0
    for i in range(n):
        for j in range(n):
            if present[i, j]:
                spans += 1
                if not (i <= j and j < length):
                    return False
    if length == 0:
        return spans == 0
    if spans != 2 * length - 1 or not present[0, length - 1]:
        return False
    stack = np.empty((length + 1, 2), np.int64)
    stack[0, 0], stack[0, 1] = 0, length - 1
    depth, visited = 1, 0
    while depth > 0:
        depth -= 1
        i, j = stack[depth, 0], stack[depth, 1]
        visited += 1
        if i == j:
            splits[i, j] = i
            continue
        place = -1
        for k in range(i, j):
            if present[i, k] and present[k + 1, j]:
                place = k
                break
        if place < 0:
            return False
        splits[i, j] = place
        stack[depth, 0], stack[depth, 1] = place + 1, j
        stack[depth + 1, 0], stack[depth + 1, 1] = i, place
        depth += 2
    return visited == spans
