"""Charts of sums in log space, computed in scaled arithmetic if that loses nothing."""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import inner
from inout.kernels.limits import SPARSE_RAISED, SPARSE_SLACK
from inout.kernels.sparse.arrays import Problem, Scaled
from inout.kernels.sparse.cpu.chart import left_base, right_base, row_of
from inout.kernels.sparse.cpu.inside import inside, log_value

LOG2 = math.log(2.0)


@inner
def log_or_nothing(value, exponent):
    """log(value * 2**exponent), -inf where value is 0."""
    return math.log(value) + exponent * LOG2 if value > 0 else -np.inf


@inner
def to_logs(chart, unary_exponents, first_cell):
    """Makes a scaled chart one in log space; exponents [1 or cells]."""
    lefts, rights, exps, below = chart.lefts, chart.rights, chart.exps, chart.below
    n, s = chart.left_ends.shape[0], chart.left_ends.shape[1]
    for i in range(n):
        for a in range(s):
            row = left_base(i, n, s) + a * (n - i) - i
            for j in range(i, n):
                lefts[row + j] = log_or_nothing(lefts[row + j], exps[i, j])
    for j in range(n):
        for a in range(s):
            row = right_base(j, s) + a * (j + 1)
            for i in range(j + 1):
                rights[row + i] = log_or_nothing(rights[row + i], exps[i, j])
    for i in range(n):
        for j in range(n):
            exponent = exps[i, j] - unary_exponents[row_of(unary_exponents, first_cell + i * n + j)]
            for x in range(below.shape[2]):
                below[i, j, x] = log_or_nothing(below[i, j, x], exponent)


@inner
def summed_chart(scaled, logs, start, n):
    """The chart in log space of the sentence at positions start..start+n-1.

    scaled and logs are the same problem in both arithmetics.
    """
    grammar, numbers, weights, words = scaled
    chart, low = inside(scaled, start, n)
    if low:
        lost = True
        # With a beam, a raised value might push others out: it would give no bound.
        if numbers.beam == 0:
            raised = Problem(grammar, Scaled(numbers.beam, SPARSE_RAISED), weights, words)
            upper, _ = inside(raised, start, n)
            bound = log_value(numbers, upper, grammar.root, n - 1)
            lost = bound > log_value(numbers, chart, grammar.root, n - 1) + SPARSE_SLACK
        if lost:
            chart, low = inside(logs, start, n)
            return chart
    to_logs(chart, weights.unary_exponents, words.first_cells[start])
    return chart
