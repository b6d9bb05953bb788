"""The inside pass of sparse grammars, sentence by sentence, in any arithmetic."""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.operations import operation
from inout.kernels.sparse.arrays import Logs, Scaled
from inout.kernels.sparse.cpu import arithmetic
from inout.kernels.sparse.cpu import chart as charts
from inout.kernels.sparse.cpu.chart import (
    NOTHING,
    bar,
    barred,
    common_splits,
    left_base,
    right_base,
    row_of,
)


@inner
def gather(grammar, numbers, rules, chart, factors, i, j, totals):
    """Includes in totals [symbols] what all splits of i..j give, in the scale of the factors."""
    lefts, rights = chart.lefts, chart.rights
    left_ends = chart.left_ends
    n, s = left_ends.shape[0], left_ends.shape[1]
    lefts_from, rights_from = left_base(i, n, s), right_base(j, s)
    for x in range(chart.active_counts[i]):
        symbol = chart.active[i, x]
        # Places are counted by the split k; the right span starts at k + 1.
        first, last = left_ends[i, symbol, 0], left_ends[i, symbol, 1]
        row = lefts_from + symbol * (n - i) - i
        for q in range(grammar.pair_offsets[symbol], grammar.pair_offsets[symbol + 1]):
            right = grammar.pair_right[q]
            lo, hi = common_splits(first, last, chart.right_starts, j, right)
            if lo > hi:
                continue
            a, b, count = row + lo, rights_from + right * (j + 1) + lo + 1, hi - lo + 1
            value = arithmetic.product(numbers, lefts, a, rights, b, factors, lo - i, count)
            if arithmetic.meet(numbers, value, lefts, a, rights, b, count):
                for r in range(grammar.rule_offsets[q], grammar.rule_offsets[q + 1]):
                    arithmetic.include(numbers, totals, grammar.rule_head[r], rules[r], value)


@inner
def enter_words(numbers, words, position, totals):
    """Adds the entries of a word to totals [symbols]; returns their shift."""
    for e in range(words.offsets[position], words.offsets[position + 1]):
        arithmetic.enter(numbers, totals, words.symbols[e], words.values[e], 1.0)
    return arithmetic.word_scale(numbers, words.exponents, position)


@inner
def enter_arcs(numbers, words, cell, shift, totals):
    """Adds the arcs of a cell to totals of this shift; returns their common one."""
    arc_offsets, arc_symbols, values = words.arc_offsets, words.arc_symbols, words.values
    if arc_offsets.shape[0] > 0:
        shift, factor = arithmetic.arc_scale(numbers, words.arc_exponents, cell, shift, totals)
        for x in range(arc_offsets[cell], arc_offsets[cell + 1]):
            value = values[words.symbols.shape[0] + x]
            arithmetic.enter(numbers, totals, arc_symbols[x], value, factor)
    return shift


@inner
def apply_unary(grammar, numbers, unary, keep, totals, after):
    """after = totals + what the unary rules make of totals, all [symbols]."""
    nothing = arithmetic.zero(numbers)
    for a in range(totals.shape[0]):
        after[a] = arithmetic.kept(numbers, keep, totals[a])
    for u in range(grammar.unary_head.shape[0]):
        value = totals[grammar.unary_child[u]]
        if value != nothing:
            arithmetic.include(numbers, after, grammar.unary_head[u], unary[u], value)


@inner
def settle(numbers, chart, unary_exponents, places, row, i, j, shift, totals, after):
    """Writes a span's values into the chart: whether some were too small.

    What the beam drops is not too small.
    """
    left_ends, right_starts, below = chart.left_ends, chart.right_starts, chart.below
    n, s = left_ends.shape[0], after.shape[0]
    left, right = left_base(i, n, s) + j - i, right_base(j, s) + i
    nothing, low, found = arithmetic.zero(numbers), False, False
    least, scale, exponent = arithmetic.new_scale(numbers, after)
    for a in range(s):
        if after[a] == nothing or after[a] < least:
            continue
        value, small = arithmetic.fitted(numbers, after[a], scale)
        low = low or small
        if value == nothing:
            continue
        found = True
        chart.lefts[left + a * (n - i)] = value
        chart.rights[right + a * (j + 1)] = value
        if left_ends[i, a, 1] < 0:
            left_ends[i, a, 0] = j
            chart.active[i, chart.active_counts[i]] = a
            chart.active_counts[i] += 1
        left_ends[i, a, 1] = j
        right_starts[j, a, 0] = i
        if right_starts[j, a, 1] < 0:
            right_starts[j, a, 1] = i
    if found:
        arithmetic.set_scale(numbers, chart.exps, unary_exponents, row, i, j, shift + exponent)
        if below.shape[2] > 0:
            for a in range(s):
                if places[a] >= 0:
                    below[i, j, places[a]] = totals[a] * scale
    return low


@inner
def inside(problem, start, n):
    """(chart of the sentence at positions start..start+n-1, whether values were too small).

    O(n³) times the pairs of symbols whose rows meet, in scalar products.
    """
    grammar, numbers, weights, words = problem
    rules, unary, exps_of_unary = weights.binary, weights.unary, weights.unary_exponents
    places, nothing = grammar.unary_place, arithmetic.zero(numbers)
    s, first_cell = places.shape[0], words.first_cells[start]
    scales = n if exps_of_unary.shape[0] > 0 else 0
    chart = charts.empty_chart(nothing, n, s, scales, grammar.num_unary_symbols)
    totals, after, factors = np.full(s, nothing), np.full(s, nothing), np.empty(n)
    low = False
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width - 1
            cell = first_cell + i * n + j
            if barred(words.allowed, cell):
                continue
            for a in range(s):
                totals[a] = nothing
            if width == 1:
                shift = enter_words(numbers, words, start + i, totals)
            else:
                row = row_of(rules, cell)
                shift = arithmetic.split_scale(
                    numbers, chart.exps, weights.binary_exponents, row, i, j, factors
                )
                if shift >= NOTHING // 2:
                    gather(grammar, numbers, rules[row], chart, factors, i, j, totals)
            shift = enter_arcs(numbers, words, cell, shift, totals)
            if shift < NOTHING // 2:
                continue
            row = row_of(unary, cell)
            keep = arithmetic.keep_of(numbers, weights.keeps, row)
            bar(words.allowed, cell, totals, nothing)
            apply_unary(grammar, numbers, unary[row], keep, totals, after)
            bar(words.allowed, cell, after, nothing)
            if settle(numbers, chart, exps_of_unary, places, row, i, j, shift, totals, after):
                low = True
    return chart, low


@operation(Scaled)
def log_value(numbers, chart, symbol, j):
    """log of a symbol's value over the first j + 1 words."""
    value = chart.lefts[symbol * chart.exps.shape[0] + j]
    return math.log(value) + chart.exps[0, j] * math.log(2.0) if value > 0 else -np.inf


@log_value.on(Logs)
def _(numbers, chart, symbol, j):
    return chart.lefts[symbol * chart.left_ends.shape[0] + j]


@compiled
def filled_chart(problem, start, n):
    """What `inside` gives, for decoders: none of them has to compile it again."""
    return inside(problem, start, n)


@compiled
def remainder(problem, start, n):
    """The number of trees of the sentence at positions start..start+n-1, modulo the prime."""
    chart, _ = inside(problem, start, n)
    return chart.lefts[problem.grammar.root * n + n - 1]
