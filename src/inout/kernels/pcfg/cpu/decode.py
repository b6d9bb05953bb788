"""Viterbi and top-down sampling of the trees of weighted grammars.

root [b nt], rules [bs nt s s] (bs is b or 1) and words [b n pt] in float64, as logarithms; trees
are written as symbols of spans [n n], -1 where there is no span.

The chart of the best scores is made of products of matrices with max and + in place of + and *,
as in `scaled.py`: for all spans of one width first the best split for each pair of nonterminals,
then the rules, with words met through matrices made once for each position. It keeps no
back-pointers. A score is always summed up in the same order (`join`), so that the edge with the
best score is found again by looking for that very number.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.draws import add_up_logs, draw, next_uniform, stream
from inout.kernels.math.cpu.stack import push_children
from inout.kernels.pcfg.cpu.logspace import children_of

NONE = -1


Array = NDArray[Any]


class Chart(NamedTuple):
    """Potentials of one element, and the best scores of symbols over spans.

    starts[i, A, j] and ends[j, i, A] are the same, for nonterminals over two words or more; -inf
    elsewhere, and there are more places than needed so that 4 splits can be done at a time.
    """

    rules: Array  # [nt s s]
    words: Array  # [n pt]
    starts: Array  # [n size n+4]
    ends: Array  # [n n+4 size]


class Room(NamedTuple):
    """Scratch memory of `best_scores`; what is not written in it there is -inf."""

    both: Array  # rules as `cut_rules` has them
    beside: Array
    words: Array
    met: Array  # words met through the rules beside them
    pairs: Array
    totals: Array
    starts: Array  # of the chart
    ends: Array


@inner
def larger(x, y):
    """max(x, y) in the form that becomes one instruction: neither is NaN."""
    return x if x > y else y


@inner
def raise_row(x, y, place, out):
    """out[a] = max(out[a], x[k] + y[k, place, a] for all k), of which there are a multiple of 4."""
    for k in range(0, x.shape[0], 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for a in range(out.shape[0]):
            first = larger(x0 + y[k, place, a], x1 + y[k + 1, place, a])
            second = larger(x2 + y[k + 2, place, a], x3 + y[k + 3, place, a])
            out[a] = larger(larger(first, second), out[a])


@inner
def raise_rows(x, y, out):
    """out[m, a] = max(out[m, a], x[m, k] + y[k, a] for all k).

    Two rows at a time, so that y is read half as often; an even number of rows, and of k a
    multiple of 4.
    """
    for m in range(0, x.shape[0], 2):
        for k in range(0, x.shape[1], 4):
            x0, x1, x2, x3 = x[m, k], x[m, k + 1], x[m, k + 2], x[m, k + 3]
            z0, z1, z2, z3 = x[m + 1, k], x[m + 1, k + 1], x[m + 1, k + 2], x[m + 1, k + 3]
            for a in range(y.shape[1]):
                y0, y1, y2, y3 = y[k, a], y[k + 1, a], y[k + 2, a], y[k + 3, a]
                best = larger(larger(x0 + y0, x1 + y1), larger(x2 + y2, x3 + y3))
                other = larger(larger(z0 + y0, z1 + y1), larger(z2 + y2, z3 + y3))
                out[m, a] = larger(best, out[m, a])
                out[m + 1, a] = larger(other, out[m + 1, a])


@inner
def fours(size):
    """The smallest multiple of 4 from `size` on."""
    return (size + 3) // 4 * 4


@inner
def cut_rules(rules, both, beside):
    """Fills both [size*size size] and beside [2*size+pts pts size], head last, padded with -inf.

    `both` has the rules with two nonterminals, B and C in one index. `beside` has those with a
    word: C first where the left child is one, nonterminals then preterminals, and then B where
    only the right child is one.
    """
    nt, s = rules.shape[0], rules.shape[1]
    size = both.shape[1]
    for p in range(s):
        for q in range(s):
            if p < nt and q < nt:
                for a in range(nt):
                    both[p * size + q, a] = rules[a, p, q]
            elif p >= nt:
                row = q if q < nt else q - nt + size
                for a in range(nt):
                    beside[row, p - nt, a] = rules[a, p, q]
            else:
                row = p + beside.shape[0] - size
                for a in range(nt):
                    beside[row, q - nt, a] = rules[a, p, q]


@inner
def room_for(nt, n, pt):
    """Scratch memory for elements of up to n words."""
    size, rows, even = fours(nt), fours(pt), n + n % 2
    words = np.empty((even, rows))
    words[:] = -np.inf
    both, beside = np.empty((size * size, size)), np.empty((2 * size + rows, rows, size))
    both[:] = -np.inf
    beside[:] = -np.inf
    met = np.empty((2 * size + rows, even, size))
    pairs, totals = np.empty((even, size * size)), np.empty((even, size))
    starts, ends = np.empty((n, size, n + 4)), np.empty((n, n + 4, size))
    return Room(both, beside, words, met, pairs, totals, starts, ends)


@inner(returns_arrays=True)
def best_scores(rules, given_words, length, new_rules, scratch):
    """The chart of one element, in the scratch memory; `new_rules`: not those of the last call."""
    both, beside, words, met, pairs, totals, starts, ends = scratch
    size = both.shape[1]
    if new_rules:
        cut_rules(rules, both, beside)
    for i in range(given_words.shape[0]):
        for p in range(given_words.shape[1]):
            words[i, p] = given_words[i, p]
    starts[:] = -np.inf
    ends[:] = -np.inf
    met[:] = -np.inf
    for row in range(beside.shape[0]):
        raise_rows(words[:, :], beside[row], met[row])
    on_left, both_words, on_right = met[:size], met[size:-size], met[-size:]
    for width in range(2, length + 1):
        count = length - width + 1
        even = count + count % 2
        totals[:even] = -np.inf
        if width > 3:
            pairs[:even] = -np.inf
        for i in range(count):
            j = i + width - 1
            if width == 2:
                raise_row(words[j], both_words, i, totals[i])
                continue
            raise_row(ends[j, i + 1], on_left, i, totals[i])
            raise_row(ends[j - 1, i], on_right, j, totals[i])
            if width > 3:
                last = i + 1 + fours(width - 3)
                left, right = starts[i][:, i + 1 : last], ends[j, i + 2 : last + 1]
                raise_rows(left, right, pairs[i].reshape((size, size)))
        if width > 3:
            raise_rows(pairs[:even, : size * size], both, totals)
        for i in range(count):
            for a in range(size):
                starts[i, a, i + width - 1] = totals[i, a]
                ends[i + width - 1, i, a] = totals[i, a]
    return Chart(rules, given_words, starts, ends)


@inner
def join(rule, left, right, i, k, j):
    """The score of an edge, with the word first as in `best_scores`."""
    if i == k:
        return (rule + left) + right
    if k + 1 == j:
        return (rule + right) + left
    return rule + (left + right)


@inner
def best_edge(chart, i, j, a):
    """The first (k, B, C) with the best score for symbol a over i..j."""
    rules, words, starts, ends = chart
    nt, s = rules.shape[0], rules.shape[1]
    top = starts[i, a, j]
    for k in range(i, j):
        b_lo, b_hi, c_lo, c_hi = children_of(i, k, j, nt, s)
        for p in range(b_lo, b_hi):
            left = words[i, p - nt] if k == i else starts[i, p, k]
            for q in range(c_lo, c_hi):
                right = words[j, q - nt] if k + 1 == j else ends[j, k + 1, q]
                if join(rules[a, p, q], left, right, i, k, j) == top:
                    return k, p, q
    return NONE, NONE, NONE


@inner
def push_root(stack, root, betas, length, shares, uniform):
    """Begins a stack of (first word, last word, symbol) with a whole sentence; its depth, 1."""
    nt = root.shape[0]
    for a in range(nt):
        shares[a] = root[a] + betas[a]
    add_up_logs(shares, 0, nt)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, length - 1, draw(shares, 0, nt, uniform)
    return 1


@compiled
def viterbi(root, rules, words, lengths, lo, hi, events, scores):
    """Fills events [b n n] and scores [b]."""
    nt, n = rules.shape[1], words.shape[1]
    scratch = room_for(nt, n, words.shape[2])
    stack = np.empty((n + 1, 3), np.int64)
    for b in range(lo, hi):
        own = rules[b if rules.shape[0] > 1 else 0]
        chart = best_scores(own, words[b], lengths[b], b == lo or rules.shape[0] > 1, scratch)
        events[b] = -1
        scores[b] = -np.inf
        last = lengths[b] - 1
        for a in range(nt):
            score = root[b, a] + chart.starts[0, a, last]
            if score > scores[b]:
                scores[b], stack[0, 2] = score, a
        stack[0, 0], stack[0, 1] = 0, last
        depth = 1 if scores[b] > -np.inf else 0
        while depth > 0:
            depth -= 1
            i, j, a = stack[depth]
            events[b, i, j] = a
            if i < j:
                k, p, q = best_edge(chart, i, j, a)
                depth = push_children(stack, depth, i, k, j, p, q)


@inner
def draw_split(rules, chart, nt, a, i, j, target):
    """(k, B, C) below symbol a over i..j where the cumulated probability passes `target`."""
    s = chart.shape[2]
    passed, choice = 0.0, (-1, -1, -1)
    for k in range(i, j):
        b_lo, b_hi, c_lo, c_hi = children_of(i, k, j, nt, s)
        for p in range(b_lo, b_hi):
            if chart[i, k, p] == -np.inf:
                continue
            rest = chart[i, k, p] - chart[i, j, a]
            for q in range(c_lo, c_hi):
                share = math.exp(rules[a, p, q] + chart[k + 1, j, q] + rest)
                if share > 0:
                    choice = (k, p, q)
                    passed += share
                    if passed > target:
                        return choice
    return choice  # the last possible one, where rounding left the sum below 1


@compiled
def sample(root, rules, length, chart, log_z, seed, first, events):
    """Fills events [m n n] with samples of one element, given its log chart [n n s].

    Sample i has its own random stream, which depends only on (seed, first + i).
    """
    nt, n = rules.shape[0], chart.shape[0]
    stack, shares = np.empty((n + 1, 3), np.int64), np.empty(nt)
    for m in range(events.shape[0]):
        state = stream(seed, first + m)
        events[m] = -1
        if length < 2 or log_z == -np.inf:
            continue
        state, uniform = next_uniform(state)
        depth = push_root(stack, root, chart[0, length - 1], length, shares, uniform)
        while depth > 0:
            depth -= 1
            i, j, a = stack[depth]
            events[m, i, j] = a
            if i < j:
                state, uniform = next_uniform(state)
                k, p, q = draw_split(rules, chart, nt, a, i, j, uniform)
                depth = push_children(stack, depth, i, k, j, p, q)
