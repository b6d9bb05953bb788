"""Best trees and labels of factored models: a table's entries are needed, a block at a time.

The best of the sums over a latent value cannot be found from the factors alone. Blocks of heads or
of previous labels come from outside, as logarithms; only their maxima are kept.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.stack import push_children

NONE = -1


@inner
def raise_pairs(left, right, pairs):
    """pairs[B, C] = max(pairs[B, C], left[B] + right[C])."""
    for p in range(left.shape[0]):
        for q in range(right.shape[0]):
            score = left[p] + right[q]
            pairs[p, q] = score if score > pairs[p, q] else pairs[p, q]


@inner
def raise_best(rule, pairs, p_lo, p_hi, q_lo, q_hi, best, place):
    """The best of best and rule[B, C] + pairs[B, C], and its place B s + C; the first if equal."""
    s = rule.shape[1]
    for p in range(p_lo, p_hi):
        for q in range(q_lo, q_hi):
            score = rule[p, q] + pairs[p, q]
            if score > best:
                best, place = score, p * s + q
    return best, place


@compiled
def best_pairs(scores, words, lengths, width, pairs, lo, hi):
    """Fills pairs [b n s s]: for spans of a width from i on, the best split for each B, C.

    scores [b n n nt] are those of nonterminals over shorter spans.
    """
    nt = scores.shape[3]
    for b in range(lo, hi):
        for i in range(lengths[b] - width + 1):
            j = i + width - 1
            table = pairs[b, i]
            table[:] = -np.inf
            for k in range(i, j):
                left = words[b, i] if k == i else scores[b, i, k]
                right = words[b, j] if k + 1 == j else scores[b, k + 1, j]
                rows = table[nt:] if k == i else table[:nt]
                raise_pairs(left, right, rows[:, nt:] if k + 1 == j else rows[:, :nt])


@compiled
def best_heads(rules, first, pairs, lengths, width, scores, places, lo, hi):
    """Fills scores and places [b n n nt] of the heads from `first` on, whose rules these are.

    rules [1|b heads s s]; a place is B s + C.
    """
    nt, s = scores.shape[3], rules.shape[2]
    for b in range(lo, hi):
        block = rules[b if rules.shape[0] > 1 else 0]
        for i in range(lengths[b] - width + 1):
            j, table = i + width - 1, pairs[b, i]
            for a in range(block.shape[0]):
                best, place = -np.inf, NONE
                if width == 2:
                    best, place = raise_best(block[a], table, nt, s, nt, s, best, place)
                else:
                    best, place = raise_best(block[a], table, 0, nt, 0, nt, best, place)
                    best, place = raise_best(block[a], table, 0, nt, nt, s, best, place)
                    best, place = raise_best(block[a], table, nt, s, 0, nt, best, place)
                scores[b, i, j, first + a] = best
                places[b, i, j, first + a] = place


@inner
def best_split(scores, words, i, j, p, q):
    """The split with the best score for children p and q; the first if equal."""
    nt = scores.shape[2]
    best, choice = -np.inf, i
    for k in range(i, j):
        if (k == i) == (p >= nt) and (k + 1 == j) == (q >= nt):
            left = words[i, p - nt] if k == i else scores[i, k, p]
            right = words[j, q - nt] if k + 1 == j else scores[k + 1, j, q]
            if left + right > best:
                best, choice = left + right, k
    return choice


@compiled
def best_trees(root, words, lengths, scores, places, size, events, lo, hi):
    """Fills events [b n n] from the scores and places of `best_heads`; `size` is s."""
    n, nt = words.shape[1], scores.shape[3]
    stack = np.empty((n + 1, 3), np.int64)
    for b in range(lo, hi):
        events[b] = NONE
        last, best, depth = lengths[b] - 1, -np.inf, 0
        if last < 1:
            continue
        stack[0, 0], stack[0, 1] = 0, last
        for a in range(nt):
            if root[b, a] + scores[b, 0, last, a] > best:
                best, stack[0, 2], depth = root[b, a] + scores[b, 0, last, a], a, 1
        while depth > 0:
            depth -= 1
            i, j, a = stack[depth]
            events[b, i, j] = a
            if i < j:
                p, q = places[b, i, j, a] // size, places[b, i, j, a] % size
                k = best_split(scores[b], words[b], i, j, p, q)
                depth = push_children(stack, depth, i, k, j, p, q)


@compiled
def best_step(block, first, lengths, t, scores, pointers, lo, hi):
    """Raises scores [b n s] at position t by the previous labels from `first` on.

    Their transitions are block [1|b labels s]; pointers [b n s] say which label was the best, the
    smallest if several are.
    """
    for b in range(lo, hi):
        if t >= lengths[b]:
            continue
        rows = block[b if block.shape[0] > 1 else 0]
        for i in range(rows.shape[0]):
            before = scores[b, t - 1, first + i]
            for j in range(rows.shape[1]):
                score = before + rows[i, j]
                if score > scores[b, t, j]:
                    scores[b, t, j] = score
                    pointers[b, t, j] = first + i


@compiled
def best_labels(scores, pointers, lengths, labels, lo, hi):
    """Fills labels [b n] from the scores and pointers of `best_step`; 0 if none are possible."""
    for b in range(lo, hi):
        labels[b] = 0
        label, last = 0, lengths[b] - 1
        for j in range(scores.shape[2] if last >= 0 else 0):
            if scores[b, last, j] > scores[b, last, label]:
                label = j
        if last < 0 or scores[b, last, label] == -np.inf:
            continue
        for t in range(last, -1, -1):
            labels[b, t] = label
            label = pointers[b, t, label]
