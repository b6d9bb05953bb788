"""The outside pass of sparse grammars, sentence by sentence: expected counts and posteriors.

Scaled numbers propagate gradients of log Z down the chart. Logs propagate probabilities, so that
nothing can overflow.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.exponential import FAST, log_sum
from inout.kernels.math.cpu.operations import operation
from inout.kernels.sparse.arrays import Logs, Scaled
from inout.kernels.sparse.cpu.arithmetic import keep_of, power, set_factors, zero
from inout.kernels.sparse.cpu.chart import bar, common_splits, left_base, right_base, row_of
from inout.kernels.sparse.cpu.inside import inside, log_value

Floats = NDArray[np.float64]
LOG2 = math.log(2.0)


class Counts(NamedTuple):
    """Expected counts, which are the gradients of log Z by the log-weights, and log Z [b]."""

    log_z: Floats
    binary: Floats  # [rows r]
    unary: Floats  # [rows u]
    words: Floats  # [entries]


class Outer(NamedTuple):
    """What is known of symbols over spans, all [n n symbols], or of size 0 if not wanted.

    Scaled: values are in the scale of the chart, gradients in one smaller by the exponent of the
    unary rules. Logs: these two are logarithms, in a scale in which a span's largest value is 1.
    The logarithms of these scales are the units [n n].
    """

    above: Floats  # posteriors after the unary rules
    below: Floats  # and before them
    after: Floats  # values after the unary rules
    back: Floats  # gradients by the values before them
    units: Floats


class Span(NamedTuple):
    """Scratch [symbols] for one span."""

    values: Floats  # after the unary rules
    totals: Floats  # before them; scaled ones only of symbols of unary rules
    alphas: Floats  # what has come down to the values
    back: Floats  # and to the totals
    factors: Floats  # [n], of the splits


class Grads(NamedTuple):
    """What is on its way down, laid out as the chart's rows."""

    lefts: Floats
    rights: Floats


class Pair(NamedTuple):
    """Where two rows begin to meet, in lefts, in rights and among the splits, and how far."""

    left: int
    right: int
    first: int
    size: int


@operation(Scaled)
def seed(numbers, factor, value):
    """What comes down to the root, of this value, for the gradient of factor * log Z."""
    return factor / value


@seed.on(Logs)
def _(numbers, factor, value):
    return factor


@operation(Scaled)
def passed(numbers, alpha, weight, below, above):
    """What a unary rule passes on of alpha, from a symbol of value `above` to one of `below`."""
    return weight * alpha


@passed.on(Logs)
def _(numbers, alpha, weight, below, above):
    return alpha * math.exp(weight + below - above)


@operation(Scaled)
def counted(numbers, passed, below):
    """How often the rule that has passed this on is used."""
    return passed * below


@counted.on(Logs)
def _(numbers, passed, below):
    return passed


@operation(Scaled)
def back_shift(numbers, exps, unary_exponents, row, i, j):
    """The exponent of a span's values before the unary rules."""
    return exps[i, j] - unary_exponents[row]


@back_shift.on(Logs)
def _(numbers, exps, unary_exponents, row, i, j):
    return 0


@operation(Scaled)
def split_factors(numbers, exps, rule_exponents, row, i, j, shift, factors):
    """Sets the factors of the splits of a span, given that exponent."""
    set_factors(exps, i, j, shift - rule_exponents[row], factors)


@split_factors.on(Logs)
def _(numbers, exps, rule_exponents, row, i, j, shift, factors):
    pass


@operation(Scaled)
def entry_scale(numbers, exponents, place, shift):
    """The scale of the entries of a place, given that exponent."""
    return power(exponents[place] - shift)


@entry_scale.on(Logs)
def _(numbers, exponents, place, shift):
    return 1.0


@operation(Scaled)
def entry_count(numbers, back, value, total, scale):
    """How often an entry is used that is part of a total."""
    return back * value * scale


@entry_count.on(Logs)
def _(numbers, back, value, total, scale):
    return back * math.exp(value - total)


@operation(Scaled)
def wanted(numbers, rule, back):
    """What a rule sends down to its pair of rows; not 0 if there is something."""
    return rule * back


@wanted.on(Logs)
def _(numbers, rule, back):
    return abs(back) if rule > -np.inf else 0.0


@operation(Scaled)
def spread_rows(numbers, pair, lefts, rights, factors, gradient, grad_lefts, grad_rights):
    """Sends down what the rules of a pair have in common; returns the product of its rows."""
    return back_through(lefts, rights, pair, factors, gradient, grad_lefts, grad_rights)


@spread_rows.on(Logs)
def _(numbers, pair, lefts, rights, factors, gradient, grad_lefts, grad_rights):
    return 0.0


@operation(Scaled)
def spread_rule(
    numbers, count, rule, back, total, value, pair, lefts, rights, grad_lefts, grad_rights
):  # fmt: skip
    """Sends down what only one rule does; returns its count with that of this pair added."""
    return count + rule * back * value


@spread_rule.on(Logs)
def _(numbers, count, rule, back, total, value, pair, lefts, rights, grad_lefts, grad_rights):
    if back == 0 or rule == -np.inf:
        return count
    a, b, weight = pair.left, pair.right, rule - total
    for t in range(pair.size):
        share = back * math.exp(lefts[a + t] + rights[b + t] + weight)
        count += share
        grad_lefts[a + t] += share
        grad_rights[b + t] += share
    return count


@operation(Scaled)
def report(numbers, grammar, unary, keep, span, i, j, outer):
    """Fills a span's posteriors.

    Values after the unary rules, unlike those in the chart, are of all symbols that chains of unary
    rules may pass through: also of those that are dropped or not allowed.
    """
    places, after = grammar.unary_place, outer.after[i, j]
    for a in range(places.shape[0]):
        outer.above[i, j, a] = outer.below[i, j, a] = span.alphas[a] * span.values[a]
        after[a] = span.values[a]
        if places[a] >= 0:
            outer.below[i, j, a] = span.back[a] * span.totals[a]
            after[a] = keep * span.totals[a]
        outer.back[i, j, a] = span.back[a]
    for u in range(grammar.unary_head.shape[0]):
        child = grammar.unary_child[u]
        after[grammar.unary_head[u]] += unary[u] * span.totals[child]


@report.on(Logs)
def _(numbers, grammar, unary, keep, span, i, j, outer):
    values, totals, alphas = span.values, span.totals, span.alphas
    after, back = outer.after[i, j], outer.back[i, j]
    top = -np.inf
    for a in range(values.shape[0]):
        outer.above[i, j, a], outer.below[i, j, a] = alphas[a], span.back[a]
        after[a] = totals[a]
        top = max(top, values[a])
        back[a] = math.log(alphas[a]) - values[a] if alphas[a] > 0 else -np.inf
    for u in range(grammar.unary_head.shape[0]):
        a, child, weight = grammar.unary_head[u], grammar.unary_child[u], unary[u]
        after[a] = log_sum(after[a], weight + totals[child])
        if alphas[a] > 0:
            back[child] = log_sum(back[child], math.log(alphas[a]) - values[a] + weight)
    outer.units[i, j] = top
    for a in range(values.shape[0]):
        after[a] -= top
        back[a] += top


@inner(fastmath=FAST)
def back_through(lefts, rights, pair, factors, gradient, grad_lefts, grad_rights):
    """Backward of the product of two rows, which is returned as well."""
    a, b, first = pair.left, pair.right, pair.first
    total = 0.0
    for t in range(pair.size):
        weight = gradient * factors[first + t]
        grad_lefts[a + t] += weight * rights[b + t]
        grad_rights[b + t] += weight * lefts[a + t]
        total += lefts[a + t] * rights[b + t] * factors[first + t]
    return total


@inner
def read_span(chart, places, nothing, grads, i, j, span):
    """Fills in a span's values, totals and alphas: whether there is anything to pass on."""
    values, totals, alphas = span.values, span.totals, span.alphas
    n, s = chart.left_ends.shape[0], places.shape[0]
    left, right = left_base(i, n, s) + j - i, right_base(j, s) + i
    found = False
    for a in range(s):
        # The gradient by a value that is 0 would be finite, what it is passed on to not.
        alphas[a] = 0.0
        values[a] = chart.lefts[left + a * (n - i)]
        if values[a] != nothing:
            alphas[a] = grads.lefts[left + a * (n - i)] + grads.rights[right + a * (j + 1)]
            found = found or alphas[a] != 0
    if found:
        for a in range(s):
            totals[a] = chart.below[i, j, places[a]] if places[a] >= 0 else values[a]
    return found


@inner
def back_through_unary(grammar, numbers, unary, keep, span, unary_counts):
    """Fills in a span's back, given its alphas; adds to the counts."""
    unary_head, unary_child, nothing = grammar.unary_head, grammar.unary_child, zero(numbers)
    values, totals, alphas, back = span.values, span.totals, span.alphas, span.back
    for a in range(alphas.shape[0]):
        back[a] = 0.0
        if alphas[a] != 0:
            back[a] = passed(numbers, alphas[a], keep, totals[a], values[a])
    for u in range(unary_head.shape[0]):
        a, child = unary_head[u], unary_child[u]
        if alphas[a] != 0 and unary[u] != nothing:
            here = passed(numbers, alphas[a], unary[u], totals[child], values[a])
            back[child] += here
            unary_counts[u] += counted(numbers, here, totals[child])


@inner
def count_entries(numbers, words, position, cell, shift, span, word_counts):
    """Adds the counts of a cell's arcs and, where it has a position, of that word's entries."""
    back, totals = span.back, span.totals
    if position >= 0:
        scale = entry_scale(numbers, words.exponents, position, shift)
        for e in range(words.offsets[position], words.offsets[position + 1]):
            a = words.symbols[e]
            if back[a] != 0:
                word_counts[e] += entry_count(numbers, back[a], words.values[e], totals[a], scale)
    if words.arc_offsets.shape[0] > 0:
        scale = entry_scale(numbers, words.arc_exponents, cell, shift)
        for x in range(words.arc_offsets[cell], words.arc_offsets[cell + 1]):
            a, e = words.arc_symbols[x], words.symbols.shape[0] + x
            if back[a] != 0:
                word_counts[e] += entry_count(numbers, back[a], words.values[e], totals[a], scale)


@inner
def spread(grammar, numbers, rules, chart, span, i, j, grads, rule_counts):
    """Sends what has come to a span's totals down to its parts; adds to the counts."""
    rule_offsets, rule_head = grammar.rule_offsets, grammar.rule_head
    back, totals, factors = span.back, span.totals, span.factors
    grad_lefts, grad_rights = grads.lefts, grads.rights
    left_ends = chart.left_ends
    n, s = left_ends.shape[0], left_ends.shape[1]
    lefts_from, rights_from = left_base(i, n, s), right_base(j, s)
    for x in range(chart.active_counts[i]):
        symbol = chart.active[i, x]
        first, last = left_ends[i, symbol, 0], left_ends[i, symbol, 1]
        row = lefts_from + symbol * (n - i) - i
        for q in range(grammar.pair_offsets[symbol], grammar.pair_offsets[symbol + 1]):
            right = grammar.pair_right[q]
            lo, hi = common_splits(first, last, chart.right_starts, j, right)
            if lo > hi:
                continue
            b = rights_from + right * (j + 1) + lo + 1
            pair = Pair(row + lo, b, lo - i, hi - lo + 1)
            gradient = 0.0
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                gradient += wanted(numbers, rules[r], back[rule_head[r]])
            if gradient == 0:
                continue
            value = spread_rows(
                numbers, pair, chart.lefts, chart.rights, factors, gradient, grad_lefts, grad_rights
            )
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                a = rule_head[r]
                rule_counts[r] = spread_rule(
                    numbers, rule_counts[r], rules[r], back[a], totals[a], value, pair, chart.lefts,
                    chart.rights, grad_lefts, grad_rights,
                )  # fmt: skip


@inner
def outside(problem, start, chart, factor, counts, outer):
    """Adds factor times the expected counts of rules and words, given that there is a tree.

    Counts of rules have as many rows as the weights.
    """
    grammar, numbers, weights, words = problem
    places, exps, nothing = grammar.unary_place, chart.exps, zero(numbers)
    n, s = chart.left_ends.shape[0], places.shape[0]
    grads = Grads(np.zeros(chart.lefts.shape[0]), np.zeros(chart.rights.shape[0]))
    span = Span(np.empty(s), np.empty(s), np.empty(s), np.empty(s), np.empty(n))
    top = grammar.root * n + n - 1
    grads.lefts[top] = seed(numbers, factor, chart.lefts[top])
    outer.after.fill(nothing)
    outer.back.fill(nothing)
    for width in range(n, 0, -1):
        for i in range(n - width + 1):
            j = i + width - 1
            if not read_span(chart, places, nothing, grads, i, j, span):
                continue
            cell = words.first_cells[start] + i * n + j
            row = row_of(weights.unary, cell)
            unary, keep = weights.unary[row], keep_of(numbers, weights.keeps, row)
            back_through_unary(grammar, numbers, unary, keep, span, counts.unary[row])
            shift = back_shift(numbers, exps, weights.unary_exponents, row, i, j)
            if outer.back.size > 0:
                outer.units[i, j] = shift * LOG2
                report(numbers, grammar, unary, keep, span, i, j, outer)
            bar(words.allowed, cell, span.back, 0.0)
            position = start + i if width == 1 else -1
            count_entries(numbers, words, position, cell, shift, span, counts.words)
            if width > 1:
                row = row_of(weights.binary, cell)
                split_factors(
                    numbers, exps, weights.binary_exponents, row, i, j, shift, span.factors
                )
                rules, rule_counts = weights.binary[row], counts.binary[row]
                spread(grammar, numbers, rules, chart, span, i, j, grads, rule_counts)


@compiled
def sweep(problem, starts, order, skip_low, factors, low, counts, outer):
    """Fills log Z and low [b] of the sentences in order [..]; adds to their expected counts.

    factors [b] multiply the counts; where 0, or where values were too small and `skip_low`, the
    outside pass is left out.
    """
    log_z = counts.log_z
    for b in order:
        n = starts[b + 1] - starts[b]
        log_z[b], low[b] = -np.inf, False
        if n == 0:
            continue
        chart, low[b] = inside(problem, starts[b], n)
        log_z[b] = log_value(problem.numbers, chart, problem.grammar.root, n - 1)
        if factors[b] != 0 and log_z[b] > -np.inf and not (low[b] and skip_low):
            outside(problem, starts[b], chart, factors[b], counts, outer)
