"""Exact samples of arborescences from the elimination of words, in log space: O(n²) each.

Words come back in the opposite order. Say a tree over the words that are left has been drawn. Its
arc (i, j) stands for all paths from i to j through words that have gone: it goes through k with the
share of w(i, k) / pivot(k) * w(k, j) in its weight, and is an arc of the graph with that of its
own weight. As k comes back, the arcs through it make their words dependents of k. The head of k is
then drawn by its shares among those that still hang on the root: by Cayley's formula for forests
all ways in which the cut words could hang on each other add up to just that.

Unlike the walks of Wilson (1996), this takes no longer where cycles are heavy; unlike the algorithm
of Colbourn, Myrvold & Neufeld (1996) it subtracts nothing. One dependent of the root is no
special case.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.draws import add_up_logs, draw, next_uniform, stream
from inout.kernels.math.cpu.exponential import exp_below


@inner
def exchange(table, n, k, order):
    """Exchanges the words at the places 0 and k of the order."""
    for j in range(n):
        table[1, j], table[k + 1, j] = table[k + 1, j], table[1, j]
    for i in range(n + 1):
        table[i, 0], table[i, k] = table[i, k], table[i, 0]
    order[0], order[k] = order[k], order[0]


@inner
def log_total(table, first, end, k):
    """log of the sum of exp(table[first:end, k])."""
    top = -np.inf
    for i in range(first, end):
        top = max(top, table[i, k])
    if top == -np.inf:
        return top
    sums = 0.0
    for i in range(first, end):
        sums += exp_below(table[i, k] - top)
    return top + np.log(sums)


@inner
def eliminate_word(table, k, pivot):
    """Takes word k out of the graph: makes its column shares, and gives its dependents new arcs."""
    for i in range(k + 1):
        share = table[i, k] - pivot
        table[i, k] = share
        if share == -np.inf:
            continue
        for j in range(k):
            x, y = table[i, j], share + table[k + 1, j]
            top = max(x, y)
            if i != j + 1 and top > -np.inf:
                table[i, j] = top + np.log1p(exp_below(min(x, y) - top))


@inner
def eliminate_logs(scores, n, single, table, order):
    """Fills table [n+1 n] with logs of shares and weights, and the order; whether there is a tree.

    As `elimination.eliminate`. A word that has no head left but the root, which may have one
    dependent only, is exchanged for the one that is eliminated last.
    """
    for i in range(n + 1):
        for j in range(n):
            table[i, j] = scores[i, j] if i != j + 1 else -np.inf
    for j in range(n):
        order[j] = j
    first = 1 if single else 0
    for k in range(n - 1, 0, -1):
        pivot = log_total(table, first, k + 1, k)
        if single and pivot == -np.inf:
            exchange(table, n, k, order)
            pivot = log_total(table, first, k + 1, k)
        if pivot == -np.inf:
            return False
        eliminate_word(table, k, pivot)
    return table[0, 0] > -np.inf


@inner
def own_score(scores, order, i, j):
    """The score of the arc from row i to place j, as the graph has it."""
    return scores[order[i - 1] + 1 if i > 0 else 0, order[j]]


@inner
def way_of(scores, table, order, n, last, i, j, state, logs):
    """(the random state, the place of the word through which arc (i, j) goes, n if none).

    All words up to `last` are back.
    """
    for k in range(last + 1, n):
        logs[k] = table[i, k] + table[k + 1, j]
    logs[n] = own_score(scores, order, i, j)
    add_up_logs(logs, last + 1, n + 1)
    state, uniform = next_uniform(state)
    return state, draw(logs, last + 1, n + 1, uniform)


@inner
def hang_on_root(heads, ways, k, linked):
    """Fills linked [k] with whether a word hangs on the root once the arcs through k are cut."""
    for j in range(k):
        linked[j] = -1
    for start in range(k):
        j = start
        while linked[j] < 0 and ways[j] != k and heads[j] > 0:
            j = heads[j] - 1
        found = linked[j] if linked[j] >= 0 else (0 if ways[j] == k else 1)
        j = start
        while linked[j] < 0:
            linked[j] = found
            if ways[j] == k or heads[j] == 0:
                break
            j = heads[j] - 1


@inner
def head_of(table, k, single, linked, state, logs):
    """(the random state, a head for word k among those that hang on the root)."""
    alone = True
    for i in range(k):
        logs[i + 1] = table[i + 1, k] if linked[i] else -np.inf
        alone = alone and not linked[i]
    logs[0] = table[0, k]
    if single:
        if alone:
            return state, np.int64(0)
        logs[0] = -np.inf
    add_up_logs(logs, 0, k + 1)
    state, uniform = next_uniform(state)
    return state, np.int64(draw(logs, 0, k + 1, uniform))


@inner
def one_tree(scores, table, order, n, single, state, room, logs):
    """Draws a tree: its heads in room[0] by places of the order."""
    heads, ways, linked = room[0], room[1], room[2]
    heads[0] = 0
    state, ways[0] = way_of(scores, table, order, n, 0, 0, 0, state, logs)
    for k in range(1, n):
        hang_on_root(heads, ways, k, linked)
        state, heads[k] = head_of(table, k, single, linked, state, logs)
        for j in range(k):
            if ways[j] == k:
                heads[j] = k + 1
                state, ways[j] = way_of(scores, table, order, n, k, k + 1, j, state, logs)
        state, ways[k] = way_of(scores, table, order, n, k, heads[k], k, state, logs)


@compiled
def sample(scores, lengths, single, seed, lo, hi, heads):
    """Fills heads [b m n] of the elements lo:hi; -1 in the padding and where there is no tree.

    Sample m of element b has a random stream of its own, a function of the seed and both numbers.
    """
    size, count = scores.shape[2], heads.shape[1]
    table, order = np.empty((size + 1, size)), np.empty(size, np.int64)
    room, logs = np.empty((3, size), np.int64), np.empty(size + 1)
    for b in range(lo, hi):
        n = lengths[b]
        heads[b] = -1
        if n == 0 or not eliminate_logs(scores[b], n, single, table, order):
            continue
        for m in range(count):
            state = stream(seed, b * count + m)
            one_tree(scores[b], table, order, n, single, state, room, logs)
            for j in range(n):
                i = room[0, j]
                heads[b, m, order[j]] = order[i - 1] + 1 if i > 0 else 0
