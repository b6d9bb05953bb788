"""Charts of sums in log space, made in scaled arithmetic where that loses nothing.

scaled: (grammar, weights, words) of `scaled.py`. logs: (grammar, rules, unary, words) of
`logspace.py`, whose charts these are.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import inner
from inout.kernels.sparse.cpu import scaled as scaled_passes
from inout.kernels.sparse.cpu.logspace import inside as log_inside
from inout.kernels.sparse.cpu.scaled import RAISED, SLACK, left_base, log_value, right_base

LOG2 = math.log(2.0)

scaled_inside = scaled_passes.inside


@inner
def log_or_nothing(value, exponent):
    """log(value * 2**exponent), -inf where value is 0."""
    return math.log(value) + exponent * LOG2 if value > 0 else -np.inf


@inner
def as_logs(chart, unary_exponents, first_cell):
    """A chart in log space, in the memory of the scaled one; exponents [1 or cells]."""
    lefts, rights, exps, left_ends, right_starts, active, active_counts, below = chart
    n, s = exps.shape[0], left_ends.shape[1]
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
            cell = first_cell + i * n + j if unary_exponents.shape[0] > 1 else 0
            exponent = exps[i, j] - unary_exponents[cell]
            for x in range(below.shape[2]):
                below[i, j, x] = log_or_nothing(below[i, j, x], exponent)
    return lefts, rights, left_ends, right_starts, active, active_counts, below


@inner
def summed_chart(scaled, logs, start, n, root, unary_symbols):
    """The chart in log space of the sentence at positions start..start+n-1."""
    grammar, weights, scaled_words = scaled
    chart, low = scaled_inside(grammar, weights, scaled_words, start, n, unary_symbols, 0.0)
    if low:
        lost = True
        # With a beam, a raised value might push others out: it would give no bound.
        if scaled_words[9] == 0:
            upper, _ = scaled_inside(
                grammar, weights, scaled_words, start, n, unary_symbols, RAISED
            )
            lost = log_value(upper, root, n - 1) > log_value(chart, root, n - 1) + SLACK
        if lost:
            _, rules, unary, words = logs
            return log_inside(grammar, rules, unary, words, start, n, unary_symbols, False)
    return as_logs(chart, weights[3], scaled_words[4][start])
