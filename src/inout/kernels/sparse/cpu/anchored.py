"""Posteriors of binary rules over spans and splits, in arrays that grow with what is found.

The inside chart is made again; what the outside pass has to say is given as `back` [n n symbols],
the gradients of log Z by the symbols' values before unary rules. Results are numbers [count 4]
(rule in the passes' order, start, last word of the left part or -1, last word), and values [count].
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.sparse.cpu.logspace import combine
from inout.kernels.sparse.cpu.logspace import inside as log_inside
from inout.kernels.sparse.cpu.scaled import (
    NONE,
    bar,
    inside,
    left_base,
    product,
    right_base,
    row_of,
    set_factors,
)

FIRST_SIZE = 1024


@inner
def with_room(numbers, values, count):
    """The arrays, or longer ones with their contents, that have room for another `count` rows."""
    size = values.shape[0]
    longer, more = np.empty((2 * size + count, 4), np.int64), np.empty(2 * size + count)
    for x in range(size):
        more[x] = values[x]
        for y in range(4):
            longer[x, y] = numbers[x, y]
    return longer, more


@inner
def meeting(chart_ends, i, j, symbol, right):
    """(first, last) split of i..j where the left and the right symbol may both be there."""
    left_ends, right_starts = chart_ends
    lo = max(max(left_ends[i, symbol, 0], right_starts[j, right, 0] - 1), i)
    return lo, min(min(left_ends[i, symbol, 1], right_starts[j, right, 1] - 1), j - 1)


@compiled
def collect(grammar, weights, words, n, unary_symbols, back_all, threshold, by_split):
    """(numbers, values) of the first sentence by scaled arithmetic, `back` in its scales."""
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    all_rules, unary, rule_exponents, unary_exponents, keeps = weights
    first_cells, allowed = words[4], words[7]
    chart, low = inside(grammar, weights, words, 0, n, unary_symbols, 0.0)
    lefts, rights, exps, left_ends, right_starts, active, active_counts, below = chart
    s = back_all.shape[2]
    back, factors = np.empty(s), np.empty(n)
    numbers, values, count = np.empty((FIRST_SIZE, 4), np.int64), np.empty(FIRST_SIZE), 0
    for i in range(n):
        for j in range(i + 1, n):
            if exps[i, j] == NONE:
                continue
            cell = first_cells[0] + i * n + j
            for a in range(s):
                back[a] = back_all[i, j, a]
            bar(allowed, cell, back, 0.0)
            rules = all_rules[row_of(all_rules, cell)]
            shift = exps[i, j] - unary_exponents[row_of(unary, cell)]
            set_factors(exps, i, j, shift - rule_exponents[row_of(all_rules, cell)], factors)
            for x in range(active_counts[i]):
                symbol = active[i, x]
                row = left_base(i, n, s) + symbol * (n - i) - i
                for q in range(pair_offsets[symbol], pair_offsets[symbol + 1]):
                    right = pair_right[q]
                    lo, hi = meeting((left_ends, right_starts), i, j, symbol, right)
                    gradient = 0.0
                    for r in range(rule_offsets[q], rule_offsets[q + 1]):
                        gradient = max(gradient, rules[r] * back[rule_head[r]])
                    if lo > hi or gradient == 0:
                        continue
                    base = right_base(j, s) + right * (j + 1) + 1
                    # All splits at once, or one after the other.
                    step = 1 if by_split else hi - lo + 1
                    for k in range(lo, hi + 1, step):
                        value = product(lefts, row + k, rights, base + k, factors, k - i, step)
                        if gradient * value <= threshold:
                            continue
                        more = rule_offsets[q + 1] - rule_offsets[q]
                        if count + more > values.shape[0]:
                            numbers, values = with_room(numbers, values, more)
                        for r in range(rule_offsets[q], rule_offsets[q + 1]):
                            share = rules[r] * back[rule_head[r]] * value
                            if share > threshold:
                                numbers[count, 0], numbers[count, 1] = r, i
                                numbers[count, 2] = k if by_split else -1
                                numbers[count, 3], values[count] = j, share
                                count += 1
    return numbers[:count], values[:count]


@compiled
def collect_logs(grammar, rules, unary, words, n, unary_symbols, back_all, threshold, by_split):
    """(numbers, values) of the first sentence in log space, `back` in logs and span by span.

    The scale of a span is such that its largest value after the unary rules is 1.
    """
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    first_cells, allowed = words[3], words[6]
    chart = log_inside(grammar, rules, unary, words, 0, n, unary_symbols, False)
    lefts, rights, left_ends, right_starts, active, active_counts, below = chart
    s = back_all.shape[2]
    back = np.empty(s)
    numbers, values, count = np.empty((FIRST_SIZE, 4), np.int64), np.empty(FIRST_SIZE), 0
    for i in range(n):
        for j in range(i + 1, n):
            cell = first_cells[0] + i * n + j
            top = -np.inf
            for a in range(s):
                back[a] = back_all[i, j, a]
                top = max(top, lefts[left_base(i, n, s) + a * (n - i) + j - i])
            if top == -np.inf:
                continue
            bar(allowed, cell, back, -np.inf)
            here = row_of(rules, cell)
            for x in range(active_counts[i]):
                symbol = active[i, x]
                row = left_base(i, n, s) + symbol * (n - i) - i
                for q in range(pair_offsets[symbol], pair_offsets[symbol + 1]):
                    right = pair_right[q]
                    lo, hi = meeting((left_ends, right_starts), i, j, symbol, right)
                    if lo > hi:
                        continue
                    base = right_base(j, s) + right * (j + 1) + 1
                    step = 1 if by_split else hi - lo + 1
                    for k in range(lo, hi + 1, step):
                        value = combine(lefts, row + k, rights, base + k, step, False)
                        if value == -np.inf:
                            continue
                        more = rule_offsets[q + 1] - rule_offsets[q]
                        if count + more > values.shape[0]:
                            numbers, values = with_room(numbers, values, more)
                        for r in range(rule_offsets[q], rule_offsets[q + 1]):
                            share = math.exp(rules[here, r] + back[rule_head[r]] + (value - top))
                            if share > threshold:
                                numbers[count, 0], numbers[count, 1] = r, i
                                numbers[count, 2] = k if by_split else -1
                                numbers[count, 3], values[count] = j, share
                                count += 1
    return numbers[:count], values[:count]
