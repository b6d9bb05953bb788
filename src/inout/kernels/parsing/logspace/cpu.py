"""Charts of sparse grammars in log space: sums that fit no scale, and best trees.

As in `parsing.cpu`, with logarithms for values, -inf for 0, and no exponents. With `best`, sums
are maxima. The outside pass sends probabilities, not gradients, down the chart, so that nothing
can overflow.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from inout.kernels.parsing.cpu import left_base, right_base


@njit(cache=True, nogil=True)
def largest_sum(lefts, a, rights, b, count):
    """The largest of lefts[a + t] + rights[b + t]; four at a time, so as not to wait for each."""
    w, x, y, z = -np.inf, -np.inf, -np.inf, -np.inf
    whole = count - count % 4
    for t in range(0, whole, 4):
        w = max(w, lefts[a + t] + rights[b + t])
        x = max(x, lefts[a + t + 1] + rights[b + t + 1])
        y = max(y, lefts[a + t + 2] + rights[b + t + 2])
        z = max(z, lefts[a + t + 3] + rights[b + t + 3])
    for t in range(whole, count):
        w = max(w, lefts[a + t] + rights[b + t])
    return max(max(w, x), max(y, z))


@njit(cache=True, nogil=True)
def combine(lefts, a, rights, b, count, best):
    """log of the sum of exp(lefts[a + t] + rights[b + t]), or the largest."""
    top = largest_sum(lefts, a, rights, b, count)
    if best or top == -np.inf:
        return top
    total = 0.0
    for t in range(count):
        total += math.exp(lefts[a + t] + rights[b + t] - top)
    return top + math.log(total)


@njit(cache=True, nogil=True)
def include(x, y, best):
    """log(exp(x) + exp(y)), or the larger."""
    top, other = max(x, y), min(x, y)
    if best or other == -np.inf:
        return top
    return top + math.log1p(math.exp(other - top))


@njit(cache=True, nogil=True)
def gather(grammar, rules, chart, i, j, best, totals):
    """Includes in totals [symbols] what all splits of i..j give."""
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    lefts, rights, left_ends, right_starts, active, active_counts, below = chart
    n, s = below.shape[0], totals.shape[0]
    lefts_from, rights_from = left_base(i, n, s), right_base(j, s)
    for x in range(active_counts[i]):
        symbol = active[i, x]
        first, last = left_ends[i, symbol, 0], left_ends[i, symbol, 1]
        row = lefts_from + symbol * (n - i) - i
        for q in range(pair_offsets[symbol], pair_offsets[symbol + 1]):
            right = pair_right[q]
            lo = max(first, right_starts[j, right, 0] - 1)
            hi = min(last, right_starts[j, right, 1] - 1)
            if lo > hi:
                continue
            b = rights_from + right * (j + 1) + lo + 1
            value = combine(lefts, row + lo, rights, b, hi - lo + 1, best)
            if value > -np.inf:
                for r in range(rule_offsets[q], rule_offsets[q + 1]):
                    a = rule_head[r]
                    totals[a] = include(totals[a], rules[r] + value, best)


@njit(cache=True, nogil=True)
def settle(chart, places, i, j, totals, after):
    """Writes a span's values into the chart."""
    lefts, rights, left_ends, right_starts, active, active_counts, below = chart
    n, s = below.shape[0], totals.shape[0]
    left, right = left_base(i, n, s) + j - i, right_base(j, s) + i
    for a in range(s):
        if after[a] == -np.inf:
            continue
        lefts[left + a * (n - i)] = after[a]
        rights[right + a * (j + 1)] = after[a]
        if left_ends[i, a, 1] < 0:
            left_ends[i, a, 0] = j
            active[i, active_counts[i]] = a
            active_counts[i] += 1
        left_ends[i, a, 1] = j
        right_starts[j, a, 0] = i
        if right_starts[j, a, 1] < 0:
            right_starts[j, a, 1] = i
        if places[a] >= 0:
            below[i, j, places[a]] = totals[a]


@njit(cache=True, nogil=True)
def new_chart(n, s, unary_symbols):
    """(lefts, rights, left_ends, right_starts, active, their number, below), all empty."""
    size = s * ((n * (n + 1)) // 2)
    left_ends, right_starts = np.empty((n, s, 2), np.int32), np.empty((n, s, 2), np.int32)
    for i in range(n):
        for a in range(s):
            left_ends[i, a, 0], left_ends[i, a, 1] = n + 1, -1
            right_starts[i, a, 0], right_starts[i, a, 1] = n + 1, -1
    return (
        np.full(size, -np.inf), np.full(size, -np.inf), left_ends, right_starts,
        np.empty((n, s), np.int32), np.zeros(n, np.int64),
        np.full((n, n, unary_symbols), -np.inf),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def inside(grammar, rules, unary, words, start, n, unary_symbols, best):
    """The chart of the sentence at positions start..start+n-1."""
    s = grammar[0].shape[0] - 1
    unary_head, unary_child, places = grammar[4:]
    offsets, symbols, values = words
    chart = new_chart(n, s, unary_symbols)
    totals, after = np.empty(s), np.empty(s)
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width - 1
            for a in range(s):
                totals[a] = -np.inf
            if width == 1:
                for e in range(offsets[start + i], offsets[start + i + 1]):
                    a = symbols[e]
                    totals[a] = include(totals[a], values[e], best)
            else:
                gather(grammar, rules, chart, i, j, best, totals)
            for a in range(s):
                after[a] = totals[a]
            for u in range(unary_head.shape[0]):
                a = unary_head[u]
                value = unary[u] + totals[unary_child[u]]
                after[a] = include(after[a], value, best)
            settle(chart, places, i, j, totals, after)
    return chart


@njit(cache=True, nogil=True)
def spread(grammar, rules, chart, i, j, totals, back, grad_lefts, grad_rights, rule_counts):
    """Sends the probabilities of a span's symbols down to its parts; adds to the counts."""
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    lefts, rights, left_ends, right_starts, active, active_counts, below = chart
    n, s = below.shape[0], back.shape[0]
    lefts_from, rights_from = left_base(i, n, s), right_base(j, s)
    for x in range(active_counts[i]):
        symbol = active[i, x]
        first, last = left_ends[i, symbol, 0], left_ends[i, symbol, 1]
        row = lefts_from + symbol * (n - i) - i
        for q in range(pair_offsets[symbol], pair_offsets[symbol + 1]):
            right = pair_right[q]
            lo = max(max(first, right_starts[j, right, 0] - 1), i)
            hi = min(min(last, right_starts[j, right, 1] - 1), j - 1)
            if lo > hi:
                continue
            base = rights_from + right * (j + 1) + 1
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                a = rule_head[r]
                if back[a] == 0 or rules[r] == -np.inf:
                    continue
                weight = rules[r] - totals[a]
                for k in range(lo, hi + 1):
                    share = back[a] * math.exp(lefts[row + k] + rights[base + k] + weight)
                    rule_counts[r] += share
                    grad_lefts[row + k] += share
                    grad_rights[base + k] += share


@njit(cache=True, nogil=True)
def outside(
    grammar, rules, unary, words, start, chart, root, factor,
    rule_counts, unary_counts, word_counts, after_posteriors, below_posteriors,
):  # fmt: skip
    """Adds factor times the expected counts of rules and words, given that there is a tree.

    Also fills the posteriors [n n symbols], unless they are of size 0.
    """
    unary_head, unary_child, places = grammar[4:]
    offsets, symbols, values = words
    lefts, rights, left_ends, right_starts, active, active_counts, below = chart
    n, s = below.shape[0], grammar[0].shape[0] - 1
    grad_lefts, grad_rights = np.zeros(lefts.shape[0]), np.zeros(rights.shape[0])
    alphas, back, totals = np.empty(s), np.empty(s), np.empty(s)
    grad_lefts[root * n + n - 1] = factor
    for width in range(n, 0, -1):
        for i in range(n - width + 1):
            j = i + width - 1
            left, right = left_base(i, n, s) + j - i, right_base(j, s) + i
            found = False
            for a in range(s):
                place = left + a * (n - i)
                alphas[a] = grad_lefts[place] + grad_rights[right + a * (j + 1)]
                totals[a] = below[i, j, places[a]] if places[a] >= 0 else lefts[place]
                back[a] = 0.0
                if alphas[a] != 0:
                    found = True
                    back[a] = alphas[a] * math.exp(totals[a] - lefts[place])
            if not found:
                continue
            for u in range(unary_head.shape[0]):
                a, child = unary_head[u], unary_child[u]
                if alphas[a] != 0 and unary[u] > -np.inf:
                    value = unary[u] + totals[child] - lefts[left + a * (n - i)]
                    share = alphas[a] * math.exp(value)
                    unary_counts[u] += share
                    back[child] += share
            if after_posteriors.size > 0:
                for a in range(s):
                    after_posteriors[i, j, a] = alphas[a]
                    below_posteriors[i, j, a] = back[a]
            if width == 1:
                for e in range(offsets[start + i], offsets[start + i + 1]):
                    a = symbols[e]
                    if back[a] != 0:
                        word_counts[e] += back[a] * math.exp(values[e] - totals[a])
            else:
                spread(
                    grammar, rules, chart, i, j, totals, back, grad_lefts, grad_rights,
                    rule_counts,
                )  # fmt: skip


@njit(cache=True, nogil=True)
def sweep(
    grammar, rules, unary, words, starts, order, lo, hi, root, unary_symbols, factors, log_z,
    rule_counts, unary_counts, word_counts, after_posteriors, below_posteriors,
):  # fmt: skip
    """Fills log_z [b] of the sentences order[lo:hi]; adds factors [b] times their counts."""
    for x in range(lo, hi):
        b = order[x]
        n = starts[b + 1] - starts[b]
        log_z[b] = -np.inf
        if n == 0:
            continue
        chart = inside(grammar, rules, unary, words, starts[b], n, unary_symbols, False)
        log_z[b] = chart[0][root * n + n - 1]
        if factors[b] != 0 and log_z[b] > -np.inf:
            outside(
                grammar, rules, unary, words, starts[b], chart, root, factors[b], rule_counts,
                unary_counts, word_counts, after_posteriors, below_posteriors,
            )  # fmt: skip


@njit(cache=True, nogil=True)
def best_split(rules, ways, chart, i, j, a, value):
    """(rule of symbol a over i..j, last word of its left child) that is worth `value`."""
    rule_left, rule_right, head_offsets, head_rules = ways
    lefts, rights = chart[0], chart[1]
    n, s = chart[6].shape[0], head_offsets.shape[0] - 1
    lefts_from, rights_from = left_base(i, n, s) - i, right_base(j, s) + 1
    for x in range(head_offsets[a], head_offsets[a + 1]):
        r = head_rules[x]
        if rules[r] == -np.inf:
            continue
        left = lefts_from + rule_left[r] * (n - i)
        right = rights_from + rule_right[r] * (j + 1)
        for k in range(i, j):
            # The very sums of the inside pass, so the best is met exactly.
            if rules[r] + (lefts[left + k] + rights[right + k]) == value:
                return r, k
    return -1, -1


@njit(cache=True, nogil=True)
def walk(grammar, ways, rules, unary, words, start, chart, root, order, nodes):
    """Fills nodes [2n-1 5] with the best tree: start, end, symbol, unary rule, rule or entry.

    Parents come before children, left before right. Ties go to no unary rule, then to the first
    rule, then to the first split.
    """
    unary_head, unary_child, places = grammar[4:]
    offsets, symbols, values = words
    rule_left, rule_right = ways[0], ways[1]
    lefts, below = chart[0], chart[6]
    n, s = below.shape[0], grammar[0].shape[0] - 1
    stack = np.empty((n + 1, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, n - 1, root
    depth, count = 1, 0
    while depth > 0:
        depth -= 1
        i, j, a = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        value = lefts[left_base(i, n, s) + a * (n - i) + j - i]
        nodes[count, 0], nodes[count, 1], nodes[count, 2] = i, j + 1, a
        nodes[count, 3] = -1
        if places[a] >= 0 and below[i, j, places[a]] != value:
            for u in range(unary_head.shape[0]):
                total = below[i, j, places[unary_child[u]]]
                if unary_head[u] == a and unary[u] + total == value:
                    nodes[count, 3] = u
                    a, value = unary_child[u], total
                    break
        if i == j:
            for e in range(offsets[start + i], offsets[start + i + 1]):
                if symbols[e] == a and values[e] == value:
                    nodes[count, 4] = e
                    break
        else:
            r, k = best_split(rules, ways, chart, i, j, a, value)
            nodes[count, 4] = order[r]
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = k + 1, j, rule_right[r]
            stack[depth + 1, 0], stack[depth + 1, 1] = i, k
            stack[depth + 1, 2] = rule_left[r]
            depth += 2
        count += 1


@njit(cache=True, nogil=True)
def viterbi(
    grammar, ways, rules, unary, words, starts, sentences, lo, hi, root, unary_symbols, order,
    node_offsets, scores, nodes,
):  # fmt: skip
    """Fills scores [b] and, where there is a tree, nodes of the sentences[lo:hi]."""
    for x in range(lo, hi):
        b = sentences[x]
        n = starts[b + 1] - starts[b]
        scores[b] = -np.inf
        if n == 0:
            continue
        chart = inside(grammar, rules, unary, words, starts[b], n, unary_symbols, True)
        scores[b] = chart[0][root * n + n - 1]
        if scores[b] > -np.inf:
            own = nodes[node_offsets[b] : node_offsets[b + 1]]
            walk(grammar, ways, rules, unary, words, starts[b], chart, root, order, own)
