"""Charts of sparse grammars in log space: sums that fit no scale, and best trees.

As in `scaled.py`, with logarithms for values, -inf for 0, and no exponents. With `best`, sums
are maxima. The outside pass sends probabilities, not gradients, down the chart, so that nothing
can overflow.

rules [rows r], unary [rows u]: a row for each cell, or one for all. words: (offsets, symbols,
values [entries]), the `spans` of SentenceArrays, and how far below the largest of its span a symbol
is dropped.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.sparse.cpu.scaled import bar, barred, left_base, right_base, row_of


@inner
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


@inner
def combine(lefts, a, rights, b, count, best):
    """log of the sum of exp(lefts[a + t] + rights[b + t]), or the largest."""
    top = largest_sum(lefts, a, rights, b, count)
    if best or top == -np.inf:
        return top
    total = 0.0
    for t in range(count):
        total += math.exp(lefts[a + t] + rights[b + t] - top)
    return top + math.log(total)


@inner
def include(x, y, best):
    """log(exp(x) + exp(y)), or the larger."""
    top, other = max(x, y), min(x, y)
    if best or other == -np.inf:
        return top
    return top + math.log1p(math.exp(other - top))


@compiled
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


@inner
def settle(chart, places, i, j, beam, totals, after):
    """Writes a span's values into the chart."""
    lefts, rights, left_ends, right_starts, active, active_counts, below = chart
    n, s = below.shape[0], totals.shape[0]
    left, right = left_base(i, n, s) + j - i, right_base(j, s) + i
    top = -np.inf
    for a in range(s):
        top = max(top, after[a])
        if places[a] >= 0:
            below[i, j, places[a]] = totals[a]
    for a in range(s):
        if after[a] == -np.inf or after[a] < top + beam:
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


@inner
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


@compiled
def inside(grammar, rules, unary, words, start, n, unary_symbols, best):
    """The chart of the sentence at positions start..start+n-1."""
    s = grammar[0].shape[0] - 1
    unary_head, unary_child, places = grammar[4:]
    offsets, symbols, values, first_cells, arc_offsets, arc_symbols, allowed, beam = words
    chart = new_chart(n, s, unary_symbols)
    totals, after = np.empty(s), np.empty(s)
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width - 1
            cell = first_cells[start] + i * n + j
            if barred(allowed, cell):
                continue
            for a in range(s):
                totals[a] = -np.inf
            if width == 1:
                for e in range(offsets[start + i], offsets[start + i + 1]):
                    a = symbols[e]
                    totals[a] = include(totals[a], values[e], best)
            else:
                gather(grammar, rules[row_of(rules, cell)], chart, i, j, best, totals)
            if arc_offsets.shape[0] > 0:
                for x in range(arc_offsets[cell], arc_offsets[cell + 1]):
                    a = arc_symbols[x]
                    totals[a] = include(totals[a], values[symbols.shape[0] + x], best)
            bar(allowed, cell, totals, -np.inf)
            for a in range(s):
                after[a] = totals[a]
            row = row_of(unary, cell)
            for u in range(unary_head.shape[0]):
                a = unary_head[u]
                value = unary[row, u] + totals[unary_child[u]]
                after[a] = include(after[a], value, best)
            bar(allowed, cell, after, -np.inf)
            settle(chart, places, i, j, beam, totals, after)
    return chart


@inner
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


@inner
def report(unary_head, unary_child, unary, values, totals, alphas, after, back):
    """Fills a span's values after the unary rules and the gradients by those before them, as logs.

    values are those in the chart; after the unary rules, unlike there, are all symbols that chains
    of unary rules may pass through: also those that are dropped or not allowed. The span's scale is
    such that the largest value is 1.
    """
    top = -np.inf
    for a in range(values.shape[0]):
        after[a] = totals[a]
        top = max(top, values[a])
        back[a] = math.log(alphas[a]) - values[a] if alphas[a] > 0 else -np.inf
    for u in range(unary_head.shape[0]):
        a, child = unary_head[u], unary_child[u]
        after[a] = include(after[a], unary[u] + totals[child], False)
        if alphas[a] > 0:
            back[child] = include(back[child], math.log(alphas[a]) - values[a] + unary[u], False)
    for a in range(values.shape[0]):
        after[a] -= top
        back[a] += top


@inner
def count_entries(words, position, cell, totals, back, word_counts):
    """Adds the counts of a cell's arcs and, where it has a position, of that word's entries."""
    offsets, symbols, values, first_cells, arc_offsets, arc_symbols = words[:6]
    if position >= 0:
        for e in range(offsets[position], offsets[position + 1]):
            a = symbols[e]
            if back[a] != 0:
                word_counts[e] += back[a] * math.exp(values[e] - totals[a])
    if arc_offsets.shape[0] > 0:
        for x in range(arc_offsets[cell], arc_offsets[cell + 1]):
            a, e = arc_symbols[x], symbols.shape[0] + x
            if back[a] != 0:
                word_counts[e] += back[a] * math.exp(values[e] - totals[a])


@inner
def outside(
    grammar, rules, unary, words, start, chart, root, factor,
    rule_counts, unary_counts, word_counts, posteriors,
):  # fmt: skip
    """Adds factor times the expected counts of rules and words, given that there is a tree.

    Also fills the posteriors [n n symbols] as in `scaled.py`, unless they are of size 0; but
    values after the unary rules and gradients by those before them as logs.
    """
    unary_head, unary_child, places = grammar[4:]
    first_cells = words[3]
    above_all, below_all, after_all, back_all = posteriors
    lefts, rights, left_ends, right_starts, active, active_counts, below = chart
    n, s = below.shape[0], grammar[0].shape[0] - 1
    grad_lefts, grad_rights = np.zeros(lefts.shape[0]), np.zeros(rights.shape[0])
    values, alphas, back, totals = np.empty(s), np.empty(s), np.empty(s), np.empty(s)
    grad_lefts[root * n + n - 1] = factor
    after_all.fill(-np.inf)
    back_all.fill(-np.inf)
    for width in range(n, 0, -1):
        for i in range(n - width + 1):
            j = i + width - 1
            left, right = left_base(i, n, s) + j - i, right_base(j, s) + i
            found = False
            for a in range(s):
                values[a] = lefts[left + a * (n - i)]
                alphas[a] = grad_lefts[left + a * (n - i)] + grad_rights[right + a * (j + 1)]
                totals[a] = below[i, j, places[a]] if places[a] >= 0 else values[a]
                back[a] = 0.0
                if alphas[a] != 0:
                    found = True
                    back[a] = alphas[a] * math.exp(totals[a] - values[a])
            if not found:
                continue
            cell = first_cells[start] + i * n + j
            row = row_of(unary, cell)
            for u in range(unary_head.shape[0]):
                a, child = unary_head[u], unary_child[u]
                if alphas[a] != 0 and unary[row, u] > -np.inf:
                    share = alphas[a] * math.exp(unary[row, u] + totals[child] - values[a])
                    unary_counts[row, u] += share
                    back[child] += share
            if back_all.size > 0:
                for a in range(s):
                    above_all[i, j, a] = alphas[a]
                    below_all[i, j, a] = back[a]
                report(
                    unary_head, unary_child, unary[row], values, totals, alphas,
                    after_all[i, j], back_all[i, j],
                )  # fmt: skip
            count_entries(words, start + i if width == 1 else -1, cell, totals, back, word_counts)
            if width > 1:
                row = row_of(rules, cell)
                spread(
                    grammar, rules[row], chart, i, j, totals, back, grad_lefts, grad_rights,
                    rule_counts[row],
                )  # fmt: skip


@compiled
def sweep(
    grammar, rules, unary, words, starts, order, lo, hi, root, unary_symbols, factors, log_z,
    rule_counts, unary_counts, word_counts, posteriors,
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
                unary_counts, word_counts, posteriors,
            )  # fmt: skip
