"""Prefixes under a sparse probabilistic grammar: left corners eliminated, then a chart.

The chart has, for a span i..j and a symbol, the probability that a tree of the symbol begins with
words i..j, in scaled arithmetic or in logs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.limits import SPARSE_SPECK
from inout.kernels.math.cpu.exponential import log_sum
from inout.kernels.sparse.cpu.arithmetic import fitted, new_scale, power
from inout.kernels.sparse.cpu.chart import NOTHING, Chart, left_base, right_base
from inout.kernels.sparse.cpu.inside import enter_words, gather, inside, log_value


class PrefixChart(NamedTuple):
    """Scaled values of prefixes of spans."""

    rows: NDArray[np.float64]  # as `lefts` of a chart
    exps: NDArray[np.int64]  # [n n]
    present: NDArray[np.bool_]  # [n symbols], whether something begins there


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
                leaves = log_sum(leaves, matrix[e, k])
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
                matrix[i, j] = log_sum(matrix[i, j], into + matrix[e, j])
            ends[i] = log_sum(ends[i], into + ends[e] - leaves)
            matrix[i, e] = into - leaves


@inner
def climb(steps, values):
    """Takes the `Steps`, with factors, with values [symbols columns], each column on its own."""
    for k in range(steps.targets.shape[0]):
        target, source, factor = steps.targets[k], steps.sources[k], steps.factors[k]
        for c in range(values.shape[1]):
            value = values[source, c]
            # What is possible stays above 0, as everywhere in the scaled charts.
            values[target, c] += factor * value + (SPARSE_SPECK if value > 0 else 0.0)


@compiled
def log_climb(steps, values):
    """As `climb`, with logs for values [symbols] and factors."""
    for k in range(steps.targets.shape[0]):
        value = values[steps.sources[k]]
        if value > -np.inf:
            target = steps.targets[k]
            values[target] = log_sum(values[target], value + steps.factors[k])


@inner
def set_factors(whole, exps, i, shifts, factors):
    """Fills shifts [n], the exponents of the sums for each end, and factors [n n].

    whole and exps are the exponents of inside values and of prefixes; factors[k, j] is 2**(that of
    the split of i..j after k, less the shift of j). A shift below NOTHING / 2: nothing ends there.
    """
    n = exps.shape[0]
    for j in range(i + 1, n):
        shifts[j] = 2 * NOTHING
        for k in range(i, j):
            shifts[j] = max(shifts[j], whole[i, k] + exps[k + 1, j])
        if shifts[j] >= NOTHING // 2:
            for k in range(i, j):
                factors[k, j] = power(whole[i, k] + exps[k + 1, j] - shifts[j])


@inner
def add_rows(rows, row, factors, value, count, sums, first):
    """sums[first + t] += value * rows[row + t] * factors[first + t], above 0 where possible."""
    for t in range(count):
        other = rows[row + t]
        speck = SPARSE_SPECK if other > 0 else 0.0
        sums[first + t] += value * (other * factors[first + t]) + speck


@inner
def add_sums(sums, first, factor, values, offset):
    """values[t - offset] += factor * sums[t], above 0 where possible, from `first` on."""
    for t in range(first, sums.shape[0]):
        speck = SPARSE_SPECK if sums[t] > 0 else 0.0
        values[t - offset] += factor * sums[t] + speck


@inner
def gather_ends(grammar, rules, chart, prefixes, factors, i, values):
    """Adds to values [symbols ends] what all splits of all spans from i on give.

    chart is that of inside values; prefixes are those that begin after i. All ends at once, since
    the left parts of most symbols have few ends and what begins after them may go on anyhow.
    """
    lefts, left_ends = chart.lefts, chart.left_ends
    n, s = left_ends.shape[0], left_ends.shape[1]
    sums = np.zeros(n)
    for x in range(chart.active_counts[i]):
        symbol = chart.active[i, x]
        left = left_base(i, n, s) + symbol * (n - i) - i
        last = min(left_ends[i, symbol, 1], n - 2)
        for q in range(grammar.pair_offsets[symbol], grammar.pair_offsets[symbol + 1]):
            right, first = grammar.pair_right[q], n
            for k in range(left_ends[i, symbol, 0], last + 1):
                if lefts[left + k] > 0 and prefixes.present[k + 1, right]:
                    first = min(first, k + 1)
                    count = n - k - 1
                    row = left_base(k + 1, n, s) + right * count
                    add_rows(prefixes.rows, row, factors[k], lefts[left + k], count, sums, k + 1)
            if first == n:
                continue
            for r in range(grammar.rule_offsets[q], grammar.rule_offsets[q + 1]):
                if rules[r] > 0:
                    add_sums(sums, first, rules[r], values[grammar.rule_head[r]], i)
            for t in range(first, n):
                sums[t] = 0


@inner
def settle(numbers, prefixes, i, j, shift, values):
    """Writes the values [symbols] of span i..j into the chart: whether some were too small."""
    n, s = prefixes.present.shape
    low, found = False, False
    _, scale, exponent = new_scale(numbers, values)
    for a in range(s):
        if values[a] > 0:
            value, small = fitted(numbers, values[a], scale)
            low = low or small
            if value > 0:
                prefixes.rows[left_base(i, n, s) + a * (n - i) + j - i] = value
                found = prefixes.present[i, a] = True
    if found:
        prefixes.exps[i, j] = shift + exponent
    return low


@compiled
def prefixes(problem, start, n, steps, begins, sentences):
    """Fills begins [n] and sentences [n]: whether values were too small.

    These are log-probabilities of beginning with the first 1 to n words at positions
    start..start+n-1 and of being them. An inside pass; O(n²) times the steps; O(n³) times the
    rules whose left symbols are found.
    """
    grammar, numbers, weights, words = problem
    root, s = grammar.root, grammar.unary_place.shape[0]
    chart, low = inside(problem, start, n)
    exps = np.full((n, n), NOTHING, np.int64)
    found = PrefixChart(np.zeros(chart.lefts.shape[0]), exps, np.zeros((n, s), np.bool_))
    shifts, factors, totals = np.empty(n, np.int64), np.zeros((n, n)), np.empty(s)
    for i in range(n - 1, -1, -1):
        values = np.zeros((s, n - i))
        set_factors(chart.exps, exps, i, shifts, factors)
        gather_ends(grammar, weights.binary[0], chart, found, factors, i, values)
        for j in range(i + 1, n):
            shifts[j] += weights.binary_exponents[0]
        for a in range(s):
            totals[a] = 0
        shifts[i] = enter_words(numbers, words, start + i, totals)
        for a in range(s):
            values[a, 0] = totals[a]
        climb(steps, values)
        for j in range(i, n):
            for a in range(s):
                totals[a] = values[a, j - i]
            low = settle(numbers, found, i, j, shifts[j], totals) or low
    for j in range(n):
        value = found.rows[root * n + j]
        begins[j] = math.log(value) + exps[0, j] * math.log(2.0) if value > 0 else -np.inf
        sentences[j] = log_value(numbers, chart, root, j)
    return low


@compiled
def log_prefixes(problem, start, n, steps, begins, sentences):
    """As `prefixes`, in log space.

    Prefixes have rows as right symbols have in an inside chart, so that the sum over splits is the
    one of the inside pass.
    """
    grammar, numbers, weights, words = problem
    root, s = grammar.root, grammar.unary_place.shape[0]
    chart, low = inside(problem, start, n)
    rows, starts = np.full(chart.rights.shape, -np.inf), np.empty((n, s, 2), np.int32)
    for j in range(n):
        for a in range(s):
            starts[j, a, 0], starts[j, a, 1] = n + 1, -1
    # Whole spans on the left, prefixes on the right.
    mixed = Chart(
        chart.lefts, rows, chart.exps, chart.left_ends, starts, chart.active,
        chart.active_counts, chart.below,
    )  # fmt: skip
    totals, factors = np.empty(s), np.empty(n)
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width - 1
            for a in range(s):
                totals[a] = -np.inf
            if width == 1:
                enter_words(numbers, words, start + i, totals)
            else:
                gather(grammar, numbers, weights.binary[0], mixed, factors, i, j, totals)
            log_climb(steps, totals)
            for a in range(s):
                if totals[a] > -np.inf:
                    rows[right_base(j, s) + a * (j + 1) + i] = totals[a]
                    starts[j, a, 0] = i
                    if starts[j, a, 1] < 0:
                        starts[j, a, 1] = i
    for j in range(n):
        begins[j] = rows[right_base(j, s) + root * (j + 1)]
        sentences[j] = log_value(numbers, chart, root, j)
