"""Numbers of trees modulo a prime below 2**31: inside passes in integers.

Charts as in `logspace.py`, with remainders for values; one that is 0 adds nothing,
whether or not the number is. words: (offsets, symbols, values, first_cells, arc_offsets,
arc_symbols, allowed). All weights are remainders, int64.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.sparse.cpu.scaled import bar, barred, left_base, right_base
from inout.kernels.sparse.cpu.viterbi import entry_ranges, row_over


@inner
def product(lefts, a, rights, b, count, prime):
    """The sum over t < count of lefts[a + t] rights[b + t]."""
    # Above any product of remainders; twice as much still fits.
    bound = prime << 31
    total = np.int64(0)
    for t in range(count):
        total += lefts[a + t] * rights[b + t]
        if total >= bound:
            total -= bound
    return total % prime


@inner
def gather(grammar, rules, chart, i, j, prime, totals):
    """Adds to totals [symbols] what all splits of i..j give."""
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    lefts, rights, left_ends, right_starts, active, active_counts = chart
    n, s = left_ends.shape[0], totals.shape[0]
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
            value = product(lefts, row + lo, rights, b, hi - lo + 1, prime)
            if value > 0:
                for r in range(rule_offsets[q], rule_offsets[q + 1]):
                    a = rule_head[r]
                    totals[a] = (totals[a] + rules[r] * value) % prime


@inner
def settle(chart, i, j, after):
    """Writes a span's values into the chart."""
    lefts, rights, left_ends, right_starts, active, active_counts = chart
    n, s = left_ends.shape[0], after.shape[0]
    left, right = left_base(i, n, s) + j - i, right_base(j, s) + i
    for a in range(s):
        if after[a] == 0:
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
def new_chart(n, s):
    """(lefts, rights, left_ends, right_starts, active, their number), all empty."""
    size = s * ((n * (n + 1)) // 2)
    left_ends, right_starts = np.empty((n, s, 2), np.int32), np.empty((n, s, 2), np.int32)
    for i in range(n):
        for a in range(s):
            left_ends[i, a, 0], left_ends[i, a, 1] = n + 1, -1
            right_starts[i, a, 0], right_starts[i, a, 1] = n + 1, -1
    return (
        np.zeros(size, np.int64), np.zeros(size, np.int64), left_ends, right_starts,
        np.empty((n, s), np.int32), np.zeros(n, np.int64),
    )  # fmt: skip


@compiled
def remainder(grammar, rules, unary, words, start, n, root, prime):
    """The number of trees of the sentence at positions start..start+n-1, modulo the prime."""
    s = grammar[0].shape[0] - 1
    unary_head, unary_child = grammar[4], grammar[5]
    symbols, values, first_cells, arc_symbols, allowed = words[1:4] + words[5:]
    chart = new_chart(n, s)
    totals, after = np.empty(s, np.int64), np.empty(s, np.int64)
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width - 1
            cell = first_cells[start] + i * n + j
            if barred(allowed, cell):
                continue
            for a in range(s):
                totals[a] = 0
            row = row_over(rules, words, start, n, i, j)
            gather(grammar, rules[row], chart, i, j, prime, totals)
            first, end, first_arc, end_arc = entry_ranges(words, start, n, i, j)
            for e in range(first, end):
                totals[symbols[e]] = (totals[symbols[e]] + values[e]) % prime
            for x in range(first_arc, end_arc):
                a = arc_symbols[x]
                totals[a] = (totals[a] + values[symbols.shape[0] + x]) % prime
            bar(allowed, cell, totals, 0)
            for a in range(s):
                after[a] = totals[a]
            row = row_over(unary, words, start, n, i, j)
            for u in range(unary_head.shape[0]):
                value = totals[unary_child[u]]
                if value > 0:
                    a = unary_head[u]
                    after[a] = (after[a] + unary[row, u] * value) % prime
            bar(allowed, cell, after, 0)
            settle(chart, i, j, after)
    return chart[0][root * n + n - 1]
