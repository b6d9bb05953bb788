"""Best trees, read off a chart in log space of maxima, which keeps no back-pointers.

A value is always summed up in the same order, so what is best is found again by looking for that
very number. words: (offsets, symbols, values, first_cells, arc_offsets, arc_symbols, allowed,
log_beam), rules and unary [1 or cells, their number], as in `logspace.py`. ways: (left
and right symbols of the rules, offsets and rules of each head).
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.sparse.cpu.logspace import inside
from inout.kernels.sparse.cpu.scaled import left_base, right_base

NONE = np.int64(-1)


@inner
def row_over(weights, words, start, n, i, j):
    """The row of weights [1 or cells, rules] for the span i..j."""
    return words[3][start] + i * n + j if weights.shape[0] > 1 else 0


@inner
def entry_ranges(words, start, n, i, j):
    """Bounds of the words' entries of span i..j, and of its arcs: (first, end, first, end)."""
    offsets, first_cells, arc_offsets = words[0], words[3], words[4]
    first, end, first_arc, end_arc = 0, 0, 0, 0
    if i == j:
        first, end = offsets[start + i], offsets[start + i + 1]
    if arc_offsets.shape[0] > 0:
        cell = first_cells[start] + i * n + j
        first_arc, end_arc = arc_offsets[cell], arc_offsets[cell + 1]
    return first, end, first_arc, end_arc


@inner
def value_below(chart, places, i, j, a):
    """The value of a symbol over a span before the unary rules."""
    lefts, below = chart[0], chart[6]
    if places[a] >= 0:
        return below[i, j, places[a]]
    n = below.shape[0]
    return lefts[left_base(i, n, places.shape[0]) + a * (n - i) + j - i]


@inner
def best_entry(words, start, n, i, j, a, value):
    """The entry of symbol a over i..j that is worth `value`, or NONE."""
    symbols, values, arc_symbols = words[1], words[2], words[5]
    first, end, first_arc, end_arc = entry_ranges(words, start, n, i, j)
    for e in range(first, end):
        if symbols[e] == a and values[e] == value:
            return e
    for x in range(first_arc, end_arc):
        e = symbols.shape[0] + x
        if arc_symbols[x] == a and values[e] == value:
            return e
    return NONE


@inner
def best_split(rules, row, ways, chart, i, j, a, value):
    """(place in head_rules of the rule of a over i..j, last word of its left child), so valued."""
    rule_left, rule_right, head_offsets, head_rules = ways
    lefts, rights, left_ends, right_starts = chart[:4]
    n, s = chart[6].shape[0], head_offsets.shape[0] - 1
    lefts_from, rights_from = left_base(i, n, s) - i, right_base(j, s) + 1
    for x in range(head_offsets[a], head_offsets[a + 1]):
        r = head_rules[x]
        weight = rules[row, r]
        if weight == -np.inf:
            continue
        b, c = rule_left[r], rule_right[r]
        left, right = lefts_from + b * (n - i), rights_from + c * (j + 1)
        lo = max(max(left_ends[i, b, 0], right_starts[j, c, 0] - 1), i)
        hi = min(min(left_ends[i, b, 1], right_starts[j, c, 1] - 1), j - 1)
        for k in range(lo, hi + 1):
            # The very sums of the inside pass, so the best is met exactly.
            if weight + (lefts[left + k] + rights[right + k]) == value:
                return x, k
    return NONE, NONE


@inner
def best_unary(grammar, unary, row, chart, i, j, a, value):
    """The unary rule at the top of the best tree of a over i..j, NONE if that has none."""
    unary_head, unary_child, places = grammar[4], grammar[5], grammar[6]
    if places[a] < 0 or value_below(chart, places, i, j, a) == value:
        return NONE
    for u in range(unary_head.shape[0]):
        if unary_head[u] == a:
            total = value_below(chart, places, i, j, unary_child[u])
            if unary[row, u] + total == value:
                return u
    return NONE


@inner
def walk(problem, start, chart, root, order, nodes):
    """Fills nodes [<=2n-1 5] with the best tree: start, end, symbol, unary rule, rule or entry.

    Returns how many there are. Parents come before children, left before right. Ties go to no
    unary rule, then to entries, then to the first rule, then to the first split.
    """
    grammar, ways, rules, unary, words = problem
    unary_child, places = grammar[5], grammar[6]
    rule_left, rule_right, head_offsets, head_rules = ways
    lefts = chart[0]
    n, s = chart[6].shape[0], places.shape[0]
    stack = np.empty((n + 1, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, n - 1, root
    depth, count = 1, 0
    while depth > 0:
        depth -= 1
        i, j, a = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        value = lefts[left_base(i, n, s) + a * (n - i) + j - i]
        u = best_unary(
            grammar, unary, row_over(unary, words, start, n, i, j), chart, i, j, a, value
        )  # fmt: skip
        nodes[count, 0], nodes[count, 1], nodes[count, 2], nodes[count, 3] = i, j + 1, a, u
        if u >= 0:
            a = unary_child[u]
            value = value_below(chart, places, i, j, a)
        entry = best_entry(words, start, n, i, j, a, value)
        if entry >= 0:
            nodes[count, 4] = entry
        else:
            row = row_over(rules, words, start, n, i, j)
            x, k = best_split(rules, row, ways, chart, i, j, a, value)
            r = head_rules[x]
            nodes[count, 4] = order[r]
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = k + 1, j, rule_right[r]
            stack[depth + 1, 0], stack[depth + 1, 1] = i, k
            stack[depth + 1, 2] = rule_left[r]
            depth += 2
        count += 1
    return count


@compiled
def viterbi(
    grammar, ways, rules, unary, words, starts, sentences, root, unary_symbols, order,
    node_offsets, scores, sizes, nodes,
):  # fmt: skip
    """Fills scores [b] and, where there is a tree, its size [b] and nodes."""
    for x in range(sentences.shape[0]):
        b = sentences[x]
        n = starts[b + 1] - starts[b]
        scores[b], sizes[b] = -np.inf, 0
        if n == 0:
            continue
        chart = inside(grammar, rules, unary, words, starts[b], n, unary_symbols, True)
        scores[b] = chart[0][root * n + n - 1]
        if scores[b] > -np.inf:
            own = nodes[node_offsets[b] : node_offsets[b + 1]]
            problem = grammar, ways, rules, unary, words
            sizes[b] = walk(problem, starts[b], chart, root, order, own)
