"""Posteriors of binary rules over spans, in arrays that grow with what is found.

The inside chart is made again; what the outside pass has to say is given as `back` [n n symbols],
the gradients of log Z by the symbols' values before unary rules, as in `Outer`. Results are numbers
[count 3] (rule in the passes' order, first word, last word), and values [count].
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.heap import longer_rows, longer_vector
from inout.kernels.math.cpu.operations import operation
from inout.kernels.sparse.arrays import Logs, Scaled
from inout.kernels.sparse.cpu.arithmetic import product, zero
from inout.kernels.sparse.cpu.chart import NOTHING, bar, row_of, splits_of, value_above
from inout.kernels.sparse.cpu.inside import inside
from inout.kernels.sparse.cpu.outside import back_shift, split_factors

FIRST_SIZE = 1024


@operation(Scaled)
def span_top(numbers, chart, i, j):
    """The largest value of a span, in its scale; 0 if it has none."""
    return 0.0 if chart.exps[i, j] == NOTHING else 1.0


@span_top.on(Logs)
def _(numbers, chart, i, j):
    top = -np.inf
    for a in range(chart.left_ends.shape[1]):
        top = max(top, value_above(chart, i, j, a))
    return top


@operation(Scaled)
def posterior(numbers, rule, back, value, top):
    """The posterior of a rule over a span whose splits have this value."""
    return rule * back * value


@posterior.on(Logs)
def _(numbers, rule, back, value, top):
    return math.exp(rule + back + (value - top))


@inner
def any_back(rule_head, rules, start, end, back, nothing):
    """Whether one of the rules start..end-1 has something to say."""
    found = False
    for r in range(start, end):
        found = found or (rules[r] != nothing and back[rule_head[r]] != nothing)
    return found


@compiled
def collect(problem, n, back_all, threshold):
    """(numbers, values) of the first sentence."""
    grammar, numbers, weights, words = problem
    rule_offsets, rule_head, nothing = grammar.rule_offsets, grammar.rule_head, zero(numbers)
    chart, low = inside(problem, 0, n)
    lefts, rights = chart.lefts, chart.rights
    back, factors = np.empty(grammar.unary_place.shape[0]), np.empty(n)
    found, values, count = np.empty((FIRST_SIZE, 3), np.int64), np.empty(FIRST_SIZE), 0
    for i in range(n):
        for j in range(i + 1, n):
            top = span_top(numbers, chart, i, j)
            if top == nothing:
                continue
            cell = words.first_cells[0] + i * n + j
            for a in range(back.shape[0]):
                back[a] = back_all[i, j, a]
            bar(words.allowed, cell, back, nothing)
            row = row_of(weights.unary, cell)
            shift = back_shift(numbers, chart.exps, weights.unary_exponents, row, i, j)
            row = row_of(weights.binary, cell)
            rules = weights.binary[row]
            split_factors(numbers, chart.exps, weights.binary_exponents, row, i, j, shift, factors)
            for x in range(chart.active_counts[i]):
                symbol = chart.active[i, x]
                for q in range(grammar.pair_offsets[symbol], grammar.pair_offsets[symbol + 1]):
                    lo, hi, left, right = splits_of(chart, i, j, symbol, grammar.pair_right[q])
                    start, end = rule_offsets[q], rule_offsets[q + 1]
                    if lo > hi or not any_back(rule_head, rules, start, end, back, nothing):
                        continue
                    size = hi - lo + 1
                    value = product(numbers, lefts, left, rights, right, factors, lo - i, size)
                    if value == nothing:
                        continue
                    if count + end - start > values.shape[0]:
                        room = 2 * count + end - start
                        found, values = longer_rows(found, room), longer_vector(values, room)
                    for r in range(start, end):
                        share = posterior(numbers, rules[r], back[rule_head[r]], value, top)
                        if share > threshold:
                            found[count, 0], found[count, 1], found[count, 2] = r, i, j
                            values[count] = share
                            count += 1
    return found[:count], values[:count]
