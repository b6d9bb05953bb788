"""Prefixes under a sparse probabilistic grammar: left corners eliminated, then a chart.

The chart has, for a span i..j and a symbol, the probability that a tree of the symbol begins with
words i..j, in the arithmetic of `scaled.py`.

steps: (targets, sources, factors or their logs, all [k]), the way up through left corners as sums
one after the other: the value of a source times a factor is added to that of a target.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.sparse.cpu import logspace, scaled
from inout.kernels.sparse.cpu.logspace import include
from inout.kernels.sparse.cpu.scaled import (
    NONE,
    SPECK,
    TINY,
    enter_words,
    left_base,
    log_value,
    power,
    right_base,
)

scaled_inside = scaled.inside
log_inside, log_gather = logspace.inside, logspace.gather


@inner
def next_state(done, row_counts, column_counts):
    """The state whose elimination touches the fewest pairs (Markowitz 1957)."""
    best, least = -1, 0
    for e in range(done.shape[0]):
        if not done[e]:
            cost = row_counts[e] * column_counts[e]
            if best < 0 or cost < least:
                best, least = e, cost
    return best


@compiled
def eliminate(matrix, ends, order):
    """Takes the states of a Markov chain out, one by one, so that its paths are added up.

    matrix [m m]: log-probabilities of going from a row to a column; ends [m]: of leaving, so that
    with these all rows sum to 1. Fills order [m] and leaves in the matrix what solves
    x = b + matrix x: the log-factors of state e, for those that were still there when it went, in
    its column, in its row, and for itself. The probability of ever leaving a state for another is
    added up from its parts instead of 1 less that of staying (Grassmann, Taksar & Heyman 1985):
    nothing is ever subtracted, so that all digits are right however small the numbers, in logs
    too.
    """
    m = matrix.shape[0]
    done = np.zeros(m, np.bool_)
    row_counts, column_counts = np.zeros(m, np.int64), np.zeros(m, np.int64)
    for i in range(m):
        for j in range(m):
            if i != j and matrix[i, j] > -np.inf:
                row_counts[i] += 1
                column_counts[j] += 1
    rows, columns = np.empty(m, np.int64), np.empty(m, np.int64)
    for step in range(m):
        e = next_state(done, row_counts, column_counts)
        order[step], done[e] = e, True
        leaves, num_rows, num_columns = ends[e], 0, 0
        for k in range(m):
            if done[k]:
                continue
            if matrix[e, k] > -np.inf:
                leaves = include(leaves, matrix[e, k], False)
                columns[num_columns] = k
                num_columns += 1
                column_counts[k] -= 1
            if matrix[k, e] > -np.inf:
                rows[num_rows] = k
                num_rows += 1
                row_counts[k] -= 1
        matrix[e, e] -= leaves
        for y in range(num_columns):
            matrix[e, columns[y]] -= leaves
        for x in range(num_rows):
            i = rows[x]
            into = matrix[i, e]
            for y in range(num_columns):
                j = columns[y]
                if i != j and matrix[i, j] == -np.inf:
                    row_counts[i] += 1
                    column_counts[j] += 1
                matrix[i, j] = include(matrix[i, j], into + matrix[e, j], False)
            ends[i] = include(ends[i], into + ends[e] - leaves, False)
            matrix[i, e] = into - leaves


@inner
def climb(steps, values):
    """Takes the steps with values [symbols columns], each column on its own."""
    targets, sources, factors = steps
    for k in range(targets.shape[0]):
        target, source, factor = targets[k], sources[k], factors[k]
        for c in range(values.shape[1]):
            value = values[source, c]
            # What is possible stays above 0, as everywhere in the scaled charts.
            values[target, c] += factor * value + (SPECK if value > 0 else 0.0)


@compiled
def log_climb(steps, values):
    """As `climb`, with logs for values [symbols] and factors."""
    targets, sources, factors = steps
    for k in range(targets.shape[0]):
        value = values[sources[k]]
        if value > -np.inf:
            target = targets[k]
            values[target] = include(values[target], value + factors[k], False)


@inner
def set_factors(whole, exps, i, shifts, factors):
    """Fills shifts [n], the exponents of the sums for each end, and factors [n n].

    whole and exps are the exponents of inside values and of prefixes; factors[k, j] is 2**(that of
    the split of i..j after k, less the shift of j). A shift below NONE / 2: nothing ends there.
    """
    n = exps.shape[0]
    for j in range(i + 1, n):
        shifts[j] = 2 * NONE
        for k in range(i, j):
            shifts[j] = max(shifts[j], whole[i, k] + exps[k + 1, j])
        if shifts[j] >= NONE // 2:
            for k in range(i, j):
                factors[k, j] = power(whole[i, k] + exps[k + 1, j] - shifts[j])


@inner
def add_rows(rows, row, factors, value, count, sums, first):
    """sums[first + t] += value * rows[row + t] * factors[first + t], above 0 where possible."""
    for t in range(count):
        other = rows[row + t]
        speck = SPECK if other > 0 else 0.0
        sums[first + t] += value * (other * factors[first + t]) + speck


@inner
def add_sums(sums, first, factor, values, offset):
    """values[t - offset] += factor * sums[t], above 0 where possible, from `first` on."""
    for t in range(first, sums.shape[0]):
        speck = SPECK if sums[t] > 0 else 0.0
        values[t - offset] += factor * sums[t] + speck


@inner
def gather(grammar, rules, chart, rows, present, factors, i, values):
    """Adds to values [symbols ends] what all splits of all spans from i on give.

    chart is that of inside values; rows, as `lefts` there, and present [n symbols] are those of
    prefixes that begin after i. All ends at once, since the left parts of most symbols have few
    ends and what begins after them may go on anyhow.
    """
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    lefts, left_ends, active, active_counts = chart[0], chart[3], chart[5], chart[6]
    n, s = left_ends.shape[0], left_ends.shape[1]
    sums = np.zeros(n)
    for x in range(active_counts[i]):
        symbol = active[i, x]
        left = left_base(i, n, s) + symbol * (n - i) - i
        last = min(left_ends[i, symbol, 1], n - 2)
        for q in range(pair_offsets[symbol], pair_offsets[symbol + 1]):
            right, first = pair_right[q], n
            for k in range(left_ends[i, symbol, 0], last + 1):
                if lefts[left + k] > 0 and present[k + 1, right]:
                    first = min(first, k + 1)
                    count = n - k - 1
                    row = left_base(k + 1, n, s) + right * count
                    add_rows(rows, row, factors[k], lefts[left + k], count, sums, k + 1)
            if first == n:
                continue
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                if rules[r] > 0:
                    add_sums(sums, first, rules[r], values[rule_head[r]], i)
            for t in range(first, n):
                sums[t] = 0


@inner
def settle(rows, present, exps, i, j, shift, raised, values):
    """Writes the values [symbols ends] of span i..j into the chart: whether some were too small."""
    n, s = exps.shape[0], values.shape[0]
    top, low, found = 0.0, False, False
    for a in range(s):
        top = max(top, values[a, j - i])
    if top == 0:
        return False
    exponent = math.frexp(top)[1] if top >= TINY else 0
    scale = math.ldexp(1.0, -exponent)
    for a in range(s):
        whole = values[a, j - i]
        if whole == 0:
            continue
        value = whole * scale
        if value < TINY or whole < TINY:
            low, value = True, raised * max(scale, 1.0)
            if raised == 0:
                continue
        rows[left_base(i, n, s) + a * (n - i) + j - i] = value
        found = present[i, a] = True
    if found:
        exps[i, j] = shift + exponent
    return low


@compiled
def prefixes(
    grammar, weights, words, start, n, root, unary_symbols, steps, raised, begins, sentences
):  # fmt: skip
    """Fills begins [n] and sentences [n]: whether values were too small.

    These are log-probabilities of beginning with the first 1 to n words at positions
    start..start+n-1 and of being them. An inside pass; O(n²) times the steps; O(n³) times the
    rules whose left symbols are found.
    """
    s = grammar[0].shape[0] - 1
    rules, rule_exponents = weights[0], weights[2]
    chart, low = scaled_inside(grammar, weights, words, start, n, unary_symbols, raised)
    rows, exps = np.zeros(chart[0].shape[0]), np.full((n, n), NONE, np.int64)
    present = np.zeros((n, s), np.bool_)
    shifts, factors, totals = np.empty(n, np.int64), np.zeros((n, n)), np.empty(s)
    for i in range(n - 1, -1, -1):
        values = np.zeros((s, n - i))
        set_factors(chart[2], exps, i, shifts, factors)
        gather(grammar, rules[0], chart, rows, present, factors, i, values)
        for j in range(i + 1, n):
            shifts[j] += rule_exponents[0]
        for a in range(s):
            totals[a] = 0
        shifts[i] = enter_words(words, start + i, totals)
        for a in range(s):
            values[a, 0] = totals[a]
        climb(steps, values)
        for j in range(i, n):
            if settle(rows, present, exps, i, j, shifts[j], raised, values):
                low = True
    for j in range(n):
        value = rows[root * n + j]
        begins[j] = math.log(value) + exps[0, j] * math.log(2.0) if value > 0 else -np.inf
        sentences[j] = log_value(chart, root, j)
    return low


@compiled
def log_prefixes(
    grammar, rules, unary, words, start, n, root, unary_symbols, steps, begins, sentences
):  # fmt: skip
    """As `prefixes`, in log space.

    Prefixes have rows as right symbols have in an inside chart, so that the sum over splits is the
    one of the inside pass.
    """
    s = grammar[0].shape[0] - 1
    offsets, symbols, entries = words[:3]
    chart = log_inside(grammar, rules, unary, words, start, n, unary_symbols, False)
    rows = np.full(chart[1].shape[0], -np.inf)
    starts = np.empty((n, s, 2), np.int32)
    for j in range(n):
        for a in range(s):
            starts[j, a, 0], starts[j, a, 1] = n + 1, -1
    mixed = chart[0], rows, chart[2], starts, chart[4], chart[5], chart[6]
    totals = np.empty(s)
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width - 1
            for a in range(s):
                totals[a] = -np.inf
            if width == 1:
                for e in range(offsets[start + i], offsets[start + i + 1]):
                    a = symbols[e]
                    totals[a] = include(totals[a], entries[e], False)
            else:
                log_gather(grammar, rules[0], mixed, i, j, False, totals)
            log_climb(steps, totals)
            for a in range(s):
                if totals[a] > -np.inf:
                    rows[right_base(j, s) + a * (j + 1) + i] = totals[a]
                    starts[j, a, 0] = i
                    if starts[j, a, 1] < 0:
                        starts[j, a, 1] = i
    for j in range(n):
        begins[j] = rows[right_base(j, s) + root * (j + 1)]
        sentences[j] = chart[0][root * n + j]
