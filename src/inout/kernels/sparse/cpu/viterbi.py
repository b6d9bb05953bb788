"""Best trees, read off a chart of maxima, which keeps no back-pointers.

A value is always summed up in the same order, so what is best is found again by looking for that
very number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.stack import push_children
from inout.kernels.sparse.arrays import Problem, Ways
from inout.kernels.sparse.cpu.chart import NONE, Chart, row_of, splits_of, value_above, value_below


class Search(NamedTuple):
    """A sentence, the chart that its trees are looked for in, and by which rules."""

    problem: Problem
    ways: Ways
    start: int  # the first position
    chart: Chart


class Entries(NamedTuple):
    """Bounds of the numbers of the words' entries of a span, and of its arcs."""

    first: int
    end: int
    first_arc: int
    end_arc: int


@inner
def cell_of(search, i, j):
    """The number of the cell of span i..j."""
    n = search.chart.left_ends.shape[0]
    return search.problem.words.first_cells[search.start] + i * n + j


@inner
def rules_row(search, i, j):
    """The row of the weights of binary rules over i..j."""
    return row_of(search.problem.weights.binary, cell_of(search, i, j))


@inner
def unary_row(search, i, j):
    """The row of the weights of unary rules over i..j."""
    return row_of(search.problem.weights.unary, cell_of(search, i, j))


@inner
def entries_over(search, i, j):
    """The entries of span i..j; arcs are numbered after all words' entries."""
    words, position = search.problem.words, search.start + i
    first, end, first_arc, end_arc = 0, 0, 0, 0
    if i == j:
        first, end = words.offsets[position], words.offsets[position + 1]
    if words.arc_offsets.shape[0] > 0:
        cell, size = cell_of(search, i, j), words.symbols.shape[0]
        first_arc, end_arc = size + words.arc_offsets[cell], size + words.arc_offsets[cell + 1]
    return Entries(first, end, first_arc, end_arc)


@inner
def num_entries(entries):
    """How many there are."""
    return entries.end - entries.first + entries.end_arc - entries.first_arc


@inner
def entry_at(words, entries, x):
    """(number, symbol) of the entry x of a span, arcs last."""
    size = entries.end - entries.first
    if x < size:
        e = entries.first + x
        return e, words.symbols[e]
    e = entries.first_arc + x - size
    return e, words.arc_symbols[e - words.symbols.shape[0]]


@inner
def best_entry(search, i, j, a, value):
    """The entry of symbol a over i..j that is worth `value`, or NONE."""
    words, entries = search.problem.words, entries_over(search, i, j)
    for x in range(num_entries(entries)):
        e, symbol = entry_at(words, entries, x)
        if symbol == a and words.values[e] == value:
            return np.int64(e)
    return NONE


@inner
def best_split(search, i, j, a, value):
    """(place in head_rules of the rule of a over i..j, last word of its left child), so valued."""
    ways, chart = search.ways, search.chart
    rules = search.problem.weights.binary[rules_row(search, i, j)]
    for x in range(ways.head_offsets[a], ways.head_offsets[a + 1]):
        r = ways.head_rules[x]
        if rules[r] == -np.inf:
            continue
        lo, hi, left, right = splits_of(chart, i, j, ways.rule_left[r], ways.rule_right[r])
        for t in range(hi - lo + 1):
            # The very sums of the inside pass, so the best is met exactly.
            if rules[r] + (chart.lefts[left + t] + chart.rights[right + t]) == value:
                return np.int64(x), np.int64(lo + t)
    return NONE, NONE


@inner
def best_unary(search, i, j, a, value):
    """The unary rule at the top of the best tree of a over i..j, NONE if that has none."""
    grammar, chart = search.problem.grammar, search.chart
    places = grammar.unary_place
    if places[a] < 0 or value_below(chart, places, i, j, a) == value:
        return NONE
    unary = search.problem.weights.unary[unary_row(search, i, j)]
    for u in range(unary.shape[0]):
        if grammar.unary_head[u] == a:
            total = value_below(chart, places, i, j, grammar.unary_child[u])
            if unary[u] + total == value:
                return np.int64(u)
    return NONE


@compiled
def viterbi(search, stack, nodes):
    """(score, size) of the best tree, -inf and 0 if there is none; fills nodes [<=2n-1 5].

    A node is start, end, symbol, unary rule, rule or entry. Parents come before children, left
    before right. Ties go to no unary rule, then to entries, then to the first rule, then to the
    first split. `stack` is scratch [n+1 3].
    """
    grammar, ways, chart = search.problem.grammar, search.ways, search.chart
    n = chart.left_ends.shape[0]
    score = value_above(chart, 0, n - 1, grammar.root)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, n - 1, grammar.root
    depth, count = 1 if score > -np.inf else 0, 0
    while depth > 0:
        depth -= 1
        i, j, a = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        value = value_above(chart, i, j, a)
        u = best_unary(search, i, j, a, value)
        nodes[count, 0], nodes[count, 1], nodes[count, 2], nodes[count, 3] = i, j + 1, a, u
        if u >= 0:
            a = np.int64(grammar.unary_child[u])
            value = value_below(chart, grammar.unary_place, i, j, a)
        nodes[count, 4] = best_entry(search, i, j, a, value)
        if nodes[count, 4] < 0:
            x, k = best_split(search, i, j, a, value)
            r = ways.head_rules[x]
            nodes[count, 4] = ways.order[r]
            left, right = ways.rule_left[r], ways.rule_right[r]
            depth = push_children(stack, depth, i, k, j, left, right)
        count += 1
    return score, count
