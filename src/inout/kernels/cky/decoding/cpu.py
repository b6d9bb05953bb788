"""Viterbi, k-best and top-down sampling of the trees of weighted grammars.

root [b nt], rules [bs nt s s] (bs is b or 1) and words [b n pt] in float64, as logarithms; trees
are written as symbols of spans [n n], -1 where there is no span. Charts as in `logspace`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from inout.kernels.cky.logspace.cpu import symbols_of
from inout.kernels.sampling.cpu import GAMMA, SHIFT_53, UNIT_53, mix

# No NaN arises: -inf is the only infinity, and it is never subtracted.
MAXIMA = {"nnan", "nsz"}


@njit(cache=True, nogil=True, fastmath=MAXIMA)
def raise_to(row, left, right):
    """row = max(row, left + right), elementwise."""
    for q in range(row.shape[0]):
        row[q] = max(row[q], left + right[q])


@njit(cache=True, nogil=True, fastmath=MAXIMA)
def best_sum(x, y, top):
    """max(top, largest x + y), in 8 lanes: a single running maximum would not be vectorised."""
    whole = x.shape[0] // 8 * 8
    lanes = np.full(8, top)
    for first in range(0, whole, 8):
        for lane in range(8):
            value = x[first + lane] + y[first + lane]
            lanes[lane] = value if value > lanes[lane] else lanes[lane]
    for lane in range(8):
        top = max(top, lanes[lane])
    for q in range(whole, x.shape[0]):
        top = max(top, x[q] + y[q])
    return top


@njit(cache=True, nogil=True)
def best_pairs(chart, nt, i, j, pairs):
    """pairs[B, C] = the best chart[i, k, B] + chart[k + 1, j, C] over all splits."""
    s = chart.shape[2]
    pairs[:] = -np.inf
    for k in range(i, j):
        b_lo, b_hi = symbols_of(k - i + 1, nt, s)
        c_lo, c_hi = symbols_of(j - k, nt, s)
        for p in range(b_lo, b_hi):
            if chart[i, k, p] > -np.inf:
                raise_to(pairs[p, c_lo:c_hi], chart[i, k, p], chart[k + 1, j, c_lo:c_hi])


@njit(cache=True, nogil=True)
def best_split(rules, chart, nt, a, i, j):
    """(k, B, C) of the best way to make symbol a over i..j; ties go to the first."""
    s = chart.shape[2]
    top, best = -np.inf, (-1, -1, -1)
    for k in range(i, j):
        b_lo, b_hi = symbols_of(k - i + 1, nt, s)
        c_lo, c_hi = symbols_of(j - k, nt, s)
        for p in range(b_lo, b_hi):
            for q in range(c_lo, c_hi):
                score = rules[a, p, q] + (chart[i, k, p] + chart[k + 1, j, q])
                if score > top:
                    top, best = score, (k, p, q)
    return best


@njit(cache=True, nogil=True)
def viterbi(root, rules, words, lengths, lo, hi, events, scores):
    """Fills events [b n n] and scores [b]. Back-pointers are found again on the way down."""
    nt, s = rules.shape[1], rules.shape[2]
    n = words.shape[1]
    chart, pairs = np.empty((n, n, s)), np.empty((s, s))
    stack = np.empty((n + 1, 3), np.int64)
    for b in range(lo, hi):
        own = rules[b if rules.shape[0] > 1 else 0]
        length = lengths[b]
        chart[:] = -np.inf
        for i in range(length):
            for p in range(nt, s):
                chart[i, i, p] = words[b, i, p - nt]
        for width in range(2, length + 1):
            for i in range(length - width + 1):
                j = i + width - 1
                best_pairs(chart, nt, i, j, pairs)
                first = nt if width == 2 else 0
                for a in range(nt):
                    top = -np.inf
                    for p in range(first, s):
                        # Two preterminals make a span of two words only.
                        last = nt if p >= nt and width > 2 else s
                        top = best_sum(own[a, p, first:last], pairs[p, first:last], top)
                    chart[i, j, a] = top
        events[b] = -1
        scores[b] = -np.inf
        depth = 0
        if length > 1:
            best = 0
            for a in range(nt):
                score = root[b, a] + chart[0, length - 1, a]
                if score > scores[b]:
                    scores[b], best = score, a
            if scores[b] > -np.inf:
                stack[0, 0], stack[0, 1], stack[0, 2] = 0, length - 1, best
                depth = 1
        while depth > 0:
            depth -= 1
            i, j, a = stack[depth, 0], stack[depth, 1], stack[depth, 2]
            events[b, i, j] = a
            if i < j:
                k, p, q = best_split(own, chart, nt, a, i, j)
                stack[depth, 0], stack[depth, 1], stack[depth, 2] = k + 1, j, q
                stack[depth + 1, 0], stack[depth + 1, 1], stack[depth + 1, 2] = i, k, p
                depth += 2


@njit(cache=True, nogil=True)
def best_edges(rules, lists, counts, nt, a, i, j, edges, scores):
    """The best edges (k, B, C) of symbol a over i..j by their best derivation, best first.

    Fills edges [k 3] and scores [k]; returns how many there are. Ties: the earlier edge.
    """
    s, found, limit = lists.shape[2], 0, scores.shape[0]
    for k in range(i, j):
        b_lo, b_hi = symbols_of(k - i + 1, nt, s)
        c_lo, c_hi = symbols_of(j - k, nt, s)
        for p in range(b_lo, b_hi):
            if counts[i, k, p] == 0:
                continue
            for q in range(c_lo, c_hi):
                if counts[k + 1, j, q] == 0:
                    continue
                score = rules[a, p, q] + (lists[i, k, p, 0] + lists[k + 1, j, q, 0])
                if score == -np.inf or (found == limit and score <= scores[limit - 1]):
                    continue
                place = min(found, limit - 1)
                while place > 0 and scores[place - 1] < score:
                    scores[place] = scores[place - 1]
                    for c in range(3):
                        edges[place, c] = edges[place - 1, c]
                    place -= 1
                scores[place] = score
                edges[place, 0], edges[place, 1], edges[place, 2] = k, p, q
                found = min(found + 1, limit)
    return found


@njit(cache=True, nogil=True)
def merge_edges(rules, lists, counts, a, i, j, edges, scores, found, out, origins):
    """The k best derivations of symbol a over i..j, from its best edges; how many there are.

    The frontier holds (edge, rank left, rank right); from (x, y) follow (x, y + 1), and (x + 1, 0)
    if y = 0, so that none is met twice.
    """
    limit = out.shape[0]
    frontier = np.empty((3 * limit + 3, 3), np.int64)
    values = np.empty(3 * limit + 3)
    size = found
    for e in range(found):
        frontier[e, 0], frontier[e, 1], frontier[e, 2] = e, 0, 0
        values[e] = scores[e]
    done = 0
    while done < limit and size > 0:
        best = 0
        for f in range(1, size):
            if values[f] > values[best]:
                best = f
        e, x, y = frontier[best, 0], frontier[best, 1], frontier[best, 2]
        k, p, q = edges[e, 0], edges[e, 1], edges[e, 2]
        out[done] = values[best]
        origins[done, 0], origins[done, 1], origins[done, 2] = k, p, q
        origins[done, 3], origins[done, 4] = x, y
        done += 1
        size -= 1
        values[best] = values[size]
        for c in range(3):
            frontier[best, c] = frontier[size, c]
        for step in range(2):
            left, right = (x, y + 1) if step == 0 else (x + 1, 0)
            if step == 1 and y > 0:
                continue
            if left < counts[i, k, p] and right < counts[k + 1, j, q]:
                frontier[size, 0], frontier[size, 1], frontier[size, 2] = e, left, right
                values[size] = rules[a, p, q] + (lists[i, k, p, left] + lists[k + 1, j, q, right])
                size += 1
    return done


@njit(cache=True, nogil=True)
def kbest(root, rules, words, lengths, lo, hi, limit, events, scores):
    """Fills events [k b n n] and scores [k b] in decreasing order; -1 and -inf where fewer.

    The k best derivations of every symbol over every span, from the bottom up (Huang & Chiang
    2005, algorithm 2): of its edges only the k best can matter. O(n³ nt³ + n² nt k²).
    """
    nt, s = rules.shape[1], rules.shape[2]
    n = words.shape[1]
    lists, counts = np.empty((n, n, s, limit)), np.zeros((n, n, s), np.int64)
    origins = np.empty((n, n, nt, limit, 5), np.int32)
    edges, edge_scores = np.empty((limit, 3), np.int64), np.empty(limit)
    stack = np.empty((n + 1, 4), np.int64)
    heads = np.empty(nt, np.int64)
    for b in range(lo, hi):
        own = rules[b if rules.shape[0] > 1 else 0]
        length = lengths[b]
        for i in range(length):
            for p in range(nt, s):
                lists[i, i, p, 0] = words[b, i, p - nt]
                counts[i, i, p] = 1 if words[b, i, p - nt] > -np.inf else 0
        for width in range(2, length + 1):
            for i in range(length - width + 1):
                j = i + width - 1
                for a in range(nt):
                    found = best_edges(own, lists, counts, nt, a, i, j, edges, edge_scores)
                    counts[i, j, a] = merge_edges(
                        own, lists, counts, a, i, j, edges, edge_scores, found,
                        lists[i, j, a], origins[i, j, a],
                    )  # fmt: skip
        heads[:] = 0
        for rank in range(limit):
            events[rank, b] = -1
            scores[rank, b] = -np.inf
            best = -1
            if length > 1:
                for a in range(nt):
                    if heads[a] < counts[0, length - 1, a]:
                        score = root[b, a] + lists[0, length - 1, a, heads[a]]
                        if score > scores[rank, b]:
                            scores[rank, b], best = score, a
            if best < 0:
                continue
            stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, length - 1, best, heads[best]
            heads[best] += 1
            depth = 1
            while depth > 0:
                depth -= 1
                i, j, a, place = stack[depth]
                events[rank, b, i, j] = a
                if i < j:
                    k, p, q, left, right = origins[i, j, a, place]
                    stack[depth, 0], stack[depth, 1] = k + 1, j
                    stack[depth, 2], stack[depth, 3] = q, right
                    stack[depth + 1, 0], stack[depth + 1, 1] = i, k
                    stack[depth + 1, 2], stack[depth + 1, 3] = p, left
                    depth += 2


@njit(cache=True, nogil=True)
def draw_split(rules, chart, nt, a, i, j, target):
    """(k, B, C) below symbol a over i..j where the cumulated probability passes `target`."""
    s = chart.shape[2]
    passed, choice = 0.0, (-1, -1, -1)
    for k in range(i, j):
        b_lo, b_hi = symbols_of(k - i + 1, nt, s)
        c_lo, c_hi = symbols_of(j - k, nt, s)
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


@njit(cache=True, nogil=True)
def sample(root, rules, length, chart, log_z, seed, first, events):
    """Fills events [m n n] with samples of one element, given its log chart [n n s].

    Sample i has a random stream of its own, a function of (seed, first + i) alone.
    """
    nt, n = rules.shape[0], chart.shape[0]
    stack = np.empty((n + 1, 3), np.int64)
    for m in range(events.shape[0]):
        state = mix(seed + mix(np.uint64(first + m) * GAMMA))
        events[m] = -1
        if length < 2 or log_z == -np.inf:
            continue
        state = state + GAMMA
        target, passed, chosen = (mix(state) >> SHIFT_53) * UNIT_53, 0.0, -1
        for a in range(nt):
            share = math.exp(root[a] + chart[0, length - 1, a] - log_z)
            if share > 0 and passed <= target:
                chosen = a
                passed += share
        stack[0, 0], stack[0, 1], stack[0, 2] = 0, length - 1, chosen
        depth = 1
        while depth > 0:
            depth -= 1
            i, j, a = stack[depth]
            events[m, i, j] = a
            if i < j:
                state = state + GAMMA
                target = (mix(state) >> SHIFT_53) * UNIT_53
                k, p, q = draw_split(rules, chart, nt, a, i, j, target)
                stack[depth, 0], stack[depth, 1], stack[depth, 2] = k + 1, j, q
                stack[depth + 1, 0], stack[depth + 1, 1], stack[depth + 1, 2] = i, k, p
                depth += 2
