"""The tree with the largest product, or sum, of the posteriors of its anchored rules.

With the logarithm `outer` of the gradient of log Z by a symbol's value below the unary rules, the
posterior of a rule over a span and split is exp(outer + rule + left + right). So for the product
the best is found as a best tree is: by maxima over charts that hold, for each symbol over a span,
its inside value plus the best sum below it. For the sum each posterior has to be made.

The chart is one of sums, in logs.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.stack import push_children
from inout.kernels.sparse.arrays import Best
from inout.kernels.sparse.cpu import chart as charts
from inout.kernels.sparse.cpu import viterbi
from inout.kernels.sparse.cpu.inside import gather
from inout.kernels.sparse.cpu.logspace import summed_chart


@inner
def ratio(posterior, value):
    """log(posterior) - value, -inf if there is nothing."""
    return math.log(posterior) - value if posterior > 0 and value > -np.inf else -np.inf


@inner
def part_score(outer, log_weight, product):
    """What a part of posterior exp(outer + log_weight) adds; -inf if it is impossible."""
    score = outer + log_weight
    return score if product or score == -np.inf else math.exp(score)


@inner
def gather_sums(search, bests, outers, i, j, totals):
    """Raises totals [symbols] to the best that the splits of i..j give, in case of the sum."""
    grammar, chart = search.problem.grammar, search.chart
    rules = search.problem.weights.binary[viterbi.rules_row(search, i, j)]
    for x in range(chart.active_counts[i]):
        b = chart.active[i, x]
        for q in range(grammar.pair_offsets[b], grammar.pair_offsets[b + 1]):
            lo, hi, left, right = charts.splits_of(chart, i, j, b, grammar.pair_right[q])
            if lo > hi:
                continue
            for r in range(grammar.rule_offsets[q], grammar.rule_offsets[q + 1]):
                a = grammar.rule_head[r]
                if outers[a] > -np.inf and rules[r] > -np.inf:
                    best = best_sum(chart, bests, left, right, hi - lo + 1, outers[a] + rules[r])
                    totals[a] = max(totals[a], best)


@inner
def best_sum(chart, bests, left, right, count, outer):
    """The largest, over some splits, of a rule's posterior plus the bests of both children."""
    best = -np.inf
    for t in range(count):
        rest = bests.lefts[left + t] + bests.rights[right + t]
        if rest > -np.inf:
            weight = outer + chart.lefts[left + t] + chart.rights[right + t]
            best = max(best, rest + math.exp(weight))
    return best


@inner
def bests_of_span(search, bests, i, j, above, totals, product):
    """Fills in the bests of the span i..j, given those below unary rules; above [symbols]."""
    grammar, chart = search.problem.grammar, search.chart
    places, lefts = grammar.unary_place, bests.lefts
    n, s = chart.left_ends.shape[0], places.shape[0]
    left, right = charts.left_base(i, n, s) + j - i, charts.right_base(j, s) + i
    for a in range(s):
        # A posterior that has underflowed makes a part impossible.
        place = left + a * (n - i)
        if chart.lefts[place] > -np.inf and above[a] > 0:
            lefts[place] = totals[a]
        if places[a] >= 0:
            bests.below[i, j, places[a]] = totals[a]
    unary = search.problem.weights.unary[viterbi.unary_row(search, i, j)]
    for u in range(unary.shape[0]):
        a, child = grammar.unary_head[u], grammar.unary_child[u]
        place = left + a * (n - i)
        outer = ratio(above[a], chart.lefts[place])
        if outer > -np.inf and totals[child] > -np.inf:
            weight = unary[u] + charts.value_below(chart, places, i, j, child)
            score = part_score(outer, weight, product) + totals[child]
            lefts[place] = max(lefts[place], score)
    for a in range(s):
        place = left + a * (n - i)
        if product and lefts[place] > -np.inf:
            lefts[place] += chart.lefts[place]
        bests.rights[right + a * (j + 1)] = lefts[place]


@inner
def find_bests(search, posteriors, product):
    """A chart of the bests of all spans: what the parts below a symbol add up to.

    In case of the product lefts and rights have a symbol's inside value besides.
    """
    grammar, numbers, weights, words = search.problem
    chart, places = search.chart, grammar.unary_place
    n, s = chart.left_ends.shape[0], places.shape[0]
    lefts, rights = np.full(chart.lefts.shape, -np.inf), np.full(chart.rights.shape, -np.inf)
    bests = charts.Chart(
        lefts, rights, chart.exps, chart.left_ends, chart.right_starts, chart.active,
        chart.active_counts, np.full(chart.below.shape, -np.inf),
    )  # fmt: skip
    outers, totals, factors, maxima = np.empty(s), np.empty(s), np.empty(n), Best(-np.inf)
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width - 1
            for a in range(s):
                value = charts.value_below(chart, places, i, j, a)
                outers[a] = ratio(posteriors.below[i, j, a], value)
                totals[a] = -np.inf
            if width > 1 and product:
                row = charts.row_of(weights.binary, viterbi.cell_of(search, i, j))
                gather(grammar, maxima, weights.binary[row], bests, factors, i, j, totals)
                for a in range(s):
                    totals[a] += outers[a]
            elif width > 1:
                gather_sums(search, bests, outers, i, j, totals)
            entries = viterbi.entries_over(search, i, j)
            for x in range(viterbi.num_entries(entries)):
                e, a = viterbi.entry_at(words, entries, x)
                totals[a] = max(totals[a], part_score(outers[a], words.values[e], product))
            bests_of_span(search, bests, i, j, posteriors.above[i, j], totals, product)
    return bests


@inner
def best_unary(search, bests, posteriors, i, j, a, product):
    """The unary rule of a over i..j, or NONE."""
    grammar, chart = search.problem.grammar, search.chart
    places = grammar.unary_place
    if places[a] < 0:
        return charts.NONE
    best, found = bests.below[i, j, places[a]], charts.NONE
    outer = ratio(posteriors.above[i, j, a], charts.value_above(chart, i, j, a))
    unary = search.problem.weights.unary[viterbi.unary_row(search, i, j)]
    for u in range(unary.shape[0]):
        if grammar.unary_head[u] == a:
            child = grammar.unary_child[u]
            weight = unary[u] + charts.value_below(chart, places, i, j, child)
            score = part_score(outer, weight, product) + bests.below[i, j, places[child]]
            if score > best:
                best, found = score, np.int64(u)
    return found


@inner
def best_edge(search, bests, outer, i, j, a, product):
    """(entry, NONE), or (place of the rule in head_rules, split), of the best of a below."""
    ways, chart, words = search.ways, search.chart, search.problem.words
    best, found, split = -np.inf, charts.NONE, charts.NONE
    entries = viterbi.entries_over(search, i, j)
    for x in range(viterbi.num_entries(entries)):
        e, symbol = viterbi.entry_at(words, entries, x)
        score = part_score(outer, words.values[e], product)
        if symbol == a and score > best:
            best, found = score, np.int64(e)
    rules = search.problem.weights.binary[viterbi.rules_row(search, i, j)]
    for x in range(ways.head_offsets[a], ways.head_offsets[a + 1]):
        r = ways.head_rules[x]
        lo, hi, left, right = charts.splits_of(chart, i, j, ways.rule_left[r], ways.rule_right[r])
        for t in range(hi - lo + 1):
            rest = bests.lefts[left + t] + bests.rights[right + t]
            if product:
                score = outer + (rules[r] + rest)
            elif rest > -np.inf:
                weight = chart.lefts[left + t] + chart.rights[right + t]
                score = rest + part_score(outer, rules[r] + weight, product)
            else:
                score = -np.inf
            if score > best:
                best, found, split = score, np.int64(x), np.int64(lo + t)
    return found, split


@inner
def walk(search, bests, posteriors, product, nodes):
    """Fills nodes [<=2n-1 5], as in `viterbi`: how many there are."""
    grammar, ways, chart = search.problem.grammar, search.ways, search.chart
    n = chart.left_ends.shape[0]
    stack = np.empty((n + 1, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, n - 1, grammar.root
    depth, count = 1, 0
    while depth > 0:
        depth -= 1
        i, j, a = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        u = best_unary(search, bests, posteriors, i, j, a, product)
        nodes[count, 0], nodes[count, 1], nodes[count, 2], nodes[count, 3] = i, j + 1, a, u
        if u >= 0:
            a = np.int64(grammar.unary_child[u])
        value = charts.value_below(chart, grammar.unary_place, i, j, a)
        outer = ratio(posteriors.below[i, j, a], value)
        found, k = best_edge(search, bests, outer, i, j, a, product)
        nodes[count, 4] = found
        if k >= 0:
            r = ways.head_rules[found]
            nodes[count, 4] = ways.order[r]
            left, right = ways.rule_left[r], ways.rule_right[r]
            depth = push_children(stack, depth, i, k, j, left, right)
        count += 1
    return count


@compiled
def max_rule(scaled, logs, ways, n, posteriors, product, nodes):
    """(score, -inf without a tree; number of nodes, which are filled in) of the first sentence.

    posteriors: of symbols over spans, as in `passes.py`.
    """
    chart = summed_chart(scaled, logs, 0, n)
    search = viterbi.Search(logs, ways, 0, chart)
    bests = find_bests(search, posteriors, product)
    top = logs.grammar.root * n + n - 1
    if bests.lefts[top] == -np.inf:
        return -np.inf, 0
    score = bests.lefts[top] - chart.lefts[top] if product else bests.lefts[top]
    return score, walk(search, bests, posteriors, product, nodes)
