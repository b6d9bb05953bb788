"""The tree with the largest product, or sum, of the posteriors of its anchored rules.

With the logarithm `outer` of the gradient of log Z by a symbol's value below the unary rules, the
posterior of a rule over a span and split is exp(outer + rule + left + right). So for the product
the best is found as a best tree is: by maxima over charts that hold, for each symbol over a span,
its inside value plus the best sum below it. For the sum each posterior has to be made.

problem: (grammar, ways, rules, unary, words, first position, chart), as in `viterbi.py`,
the chart being one of sums. bests: (lefts, rights, below), laid out as in the chart: what the parts
below a symbol add up to, and in case of the product its inside value besides in lefts and rights.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.sparse.cpu.charts import summed_chart
from inout.kernels.sparse.cpu.logspace import gather
from inout.kernels.sparse.cpu.sample import splits_of
from inout.kernels.sparse.cpu.scaled import left_base, right_base
from inout.kernels.sparse.cpu.viterbi import NONE, entry_ranges, row_over, value_below


@inner
def ratio(posterior, value):
    """log(posterior) - value, -inf where there is nothing."""
    return math.log(posterior) - value if posterior > 0 and value > -np.inf else -np.inf


@inner
def part_score(outer, log_weight, product):
    """What a part of posterior exp(outer + log_weight) adds; -inf if it is impossible."""
    score = outer + log_weight
    return score if product or score == -np.inf else math.exp(score)


@inner
def gather_sums(grammar, rules, chart, bests, outers, i, j, totals):
    """Raises totals [symbols] to the best that the splits of i..j give, in case of the sum."""
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    active, active_counts = chart[4], chart[5]
    for x in range(active_counts[i]):
        b = active[i, x]
        for q in range(pair_offsets[b], pair_offsets[b + 1]):
            lo, hi, left, right = splits_of(chart, i, j, b, pair_right[q])
            if lo > hi:
                continue
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                a = rule_head[r]
                if outers[a] > -np.inf and rules[r] > -np.inf:
                    best = best_sum(chart, bests, left, right, hi - lo + 1, outers[a] + rules[r])
                    totals[a] = max(totals[a], best)


@inner
def best_sum(chart, bests, left, right, count, outer):
    """The largest, over some splits, of a rule's posterior plus the bests of both children."""
    best = -np.inf
    for t in range(count):
        rest = bests[0][left + t] + bests[1][right + t]
        if rest > -np.inf:
            best = max(best, rest + math.exp(outer + chart[0][left + t] + chart[1][right + t]))
    return best


@inner
def bests_of_span(problem, bests, i, j, above, outers, totals, product):
    """Fills in the bests of the span i..j; above [symbols] are its posteriors, outers as said."""
    grammar, ways, rules, unary, words, start, chart = problem
    unary_head, unary_child, places = grammar[4], grammar[5], grammar[6]
    lefts, rights, below = bests
    n, s = chart[6].shape[0], places.shape[0]
    left, right = left_base(i, n, s) + j - i, right_base(j, s) + i
    for a in range(s):
        # A posterior that has underflowed makes a part impossible.
        place = left + a * (n - i)
        if chart[0][place] > -np.inf and above[a] > 0:
            lefts[place] = totals[a]
        if places[a] >= 0:
            below[i, j, places[a]] = totals[a]
    row = row_over(unary, words, start, n, i, j)
    for u in range(unary_head.shape[0]):
        a, child = unary_head[u], unary_child[u]
        place = left + a * (n - i)
        outer = ratio(above[a], chart[0][place])
        if outer > -np.inf and totals[child] > -np.inf:
            weight = unary[row, u] + value_below(chart, places, i, j, child)
            score = part_score(outer, weight, product) + totals[child]
            lefts[place] = max(lefts[place], score)
    for a in range(s):
        place = left + a * (n - i)
        if product and lefts[place] > -np.inf:
            lefts[place] += chart[0][place]
        rights[right + a * (j + 1)] = lefts[place]


@inner
def find_bests(problem, above, below, product):
    """bests, given the posteriors [n n symbols] above and below the unary rules."""
    grammar, ways, rules, unary, words, start, chart = problem
    symbols, values, arc_symbols, places = words[1], words[2], words[5], grammar[6]
    n, s = chart[6].shape[0], places.shape[0]
    lefts, rights = np.full(chart[0].shape[0], -np.inf), np.full(chart[1].shape[0], -np.inf)
    bests = lefts, rights, np.full(chart[6].shape, -np.inf)
    # The chart as `gather` wants it, with the bests for values.
    best_chart = lefts, rights, chart[2], chart[3], chart[4], chart[5], chart[6]
    outers, totals = np.empty(s), np.empty(s)
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width - 1
            for a in range(s):
                outers[a] = ratio(below[i, j, a], value_below(chart, places, i, j, a))
                totals[a] = -np.inf
            row = row_over(rules, words, start, n, i, j)
            if product:
                gather(grammar, rules[row], best_chart, i, j, True, totals)
                for a in range(s):
                    totals[a] += outers[a]
            else:
                gather_sums(grammar, rules[row], chart, bests, outers, i, j, totals)
            first, end, first_arc, end_arc = entry_ranges(words, start, n, i, j)
            for e in range(first, end):
                a = symbols[e]
                totals[a] = max(totals[a], part_score(outers[a], values[e], product))
            for x in range(first_arc, end_arc):
                a = arc_symbols[x]
                score = part_score(outers[a], values[symbols.shape[0] + x], product)
                totals[a] = max(totals[a], score)
            bests_of_span(problem, bests, i, j, above[i, j], outers, totals, product)
    return bests


@inner
def best_unary(problem, bests, above, i, j, a, below_best, product):
    """The unary rule of a over i..j, or NONE; below_best is the best of a below."""
    grammar, ways, rules, unary, words, start, chart = problem
    unary_head, unary_child, places = grammar[4], grammar[5], grammar[6]
    n, s = chart[6].shape[0], places.shape[0]
    if places[a] < 0:
        return NONE
    best, found = below_best, NONE
    outer = ratio(above[i, j, a], chart[0][left_base(i, n, s) + a * (n - i) + j - i])
    row = row_over(unary, words, start, n, i, j)
    for u in range(unary_head.shape[0]):
        if unary_head[u] == a:
            child = unary_child[u]
            weight = unary[row, u] + value_below(chart, places, i, j, child)
            score = part_score(outer, weight, product) + bests[2][i, j, places[child]]
            if score > best:
                best, found = score, np.int64(u)
    return found


@inner
def best_edge(problem, bests, outer, i, j, a, product):
    """(entry, NONE), or (place of the rule in head_rules, split), of the best of a below."""
    grammar, ways, rules, unary, words, start, chart = problem
    rule_left, rule_right, head_offsets, head_rules = ways
    symbols, values, arc_symbols = words[1], words[2], words[5]
    n = chart[6].shape[0]
    best, found, split = -np.inf, NONE, NONE
    first, end, first_arc, end_arc = entry_ranges(words, start, n, i, j)
    for x in range(first - end, end_arc - first_arc):
        # The words' entries first, then the arcs.
        e = end + x if x < 0 else symbols.shape[0] + first_arc + x
        symbol = symbols[e] if x < 0 else arc_symbols[first_arc + x]
        score = part_score(outer, values[e], product)
        if symbol == a and score > best:
            best, found = score, np.int64(e)
    row = row_over(rules, words, start, n, i, j)
    for x in range(head_offsets[a], head_offsets[a + 1]):
        r = head_rules[x]
        lo, hi, left, right = splits_of(chart, i, j, rule_left[r], rule_right[r])
        for t in range(hi - lo + 1):
            rest = bests[0][left + t] + bests[1][right + t]
            if product:
                score = outer + (rules[row, r] + rest)
            elif rest > -np.inf:
                inner = chart[0][left + t] + chart[1][right + t]
                score = rest + part_score(outer, rules[row, r] + inner, product)
            else:
                score = -np.inf
            if score > best:
                best, found, split = score, np.int64(x), np.int64(lo + t)
    return found, split


@inner
def walk(problem, bests, above, below, root, order, product, nodes):
    """Fills nodes [<=2n-1 5], as in `viterbi`: how many there are."""
    grammar, ways, rules, unary, words, start, chart = problem
    rule_left, rule_right, head_offsets, head_rules = ways
    unary_child, places = grammar[5], grammar[6]
    n = chart[6].shape[0]
    stack = np.empty((n + 1, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, n - 1, root
    depth, count = 1, 0
    while depth > 0:
        depth -= 1
        i, j, a = stack[depth]
        nodes[count, 0], nodes[count, 1], nodes[count, 2], nodes[count, 3] = i, j + 1, a, NONE
        if places[a] >= 0:
            below_best = bests[2][i, j, places[a]]
            u = best_unary(problem, bests, above, i, j, a, below_best, product)
            nodes[count, 3] = u
            if u >= 0:
                a = np.int64(unary_child[u])
        outer = ratio(below[i, j, a], value_below(chart, places, i, j, a))
        found, k = best_edge(problem, bests, outer, i, j, a, product)
        nodes[count, 4] = found
        if k >= 0:
            r = head_rules[found]
            nodes[count, 4] = order[r]
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = k + 1, j, rule_right[r]
            stack[depth + 1, 0], stack[depth + 1, 1] = i, k
            stack[depth + 1, 2] = rule_left[r]
            depth += 2
        count += 1
    return count


@compiled
def max_rule(
    scaled, logs, ways, start, n, root, unary_symbols, order, above, below, product, nodes
):  # fmt: skip
    """(score, -inf without a tree; number of nodes, which are filled in)."""
    grammar, rules, unary, words = logs
    chart = summed_chart(scaled, logs, start, n, root, unary_symbols)
    problem = grammar, ways, rules, unary, words, start, chart
    bests = find_bests(problem, above, below, product)
    top = root * n + n - 1
    if bests[0][top] == -np.inf:
        return -np.inf, 0
    score = bests[0][top] - chart[0][top] if product else bests[0][top]
    return score, walk(problem, bests, above, below, root, order, product, nodes)
