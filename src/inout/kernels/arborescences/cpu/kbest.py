"""The k best arborescences with labelled arcs, exactly: Lawler's partition of the trees.

When a tree is taken, the others of its class are divided by the first word at which they differ:
class i has the same arcs into the words before i, and another one into word i. The best of each
class is a maximum arborescence with these arcs fixed, and waits among the candidates. So a class is
a tree, the word from which on it is free, and the arcs that this word may not have. O(k n³ + k² n)
at worst; Camerini, Fratta & Maffioli (1980), Zmigrod, Vieira & Cotterell (2021).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.arborescences.cpu.branching import arborescence, load, new_graph

Array = NDArray[Any]


class Candidates(NamedTuple):
    """The best trees of classes, at most as many as are still wanted."""

    heads: Array  # [m n]
    labels: Array  # [m n]
    scores: Array  # [m], -inf where there is room
    orders: Array  # [m], the order in which they were found, which breaks ties
    words: Array  # [m], the first word that is free
    links: Array  # [m], the last of the arcs that this word may not have, -1 if it may have any


class Forbidden(NamedTuple):
    """Arcs that a word may not have, as lists that classes share."""

    heads: Array  # [l]
    labels: Array  # [l]
    previous: Array  # [l]


@inner
def best_labels(potentials, n, scores, labels):
    """Fills scores and labels [n+1 n] with the best label of each arc."""
    for h in range(n + 1):
        for d in range(n):
            scores[h, d], labels[h, d] = -np.inf, 0
            if h == d + 1:
                continue
            for a in range(potentials.shape[2]):
                if potentials[h, d, a] > scores[h, d]:
                    scores[h, d], labels[h, d] = potentials[h, d, a], a


@inner
def is_forbidden(forbidden, link, head, label):
    """Whether an arc is in the list that begins with `link`."""
    while link >= 0:
        if forbidden.heads[link] == head and forbidden.labels[link] == label:
            return True
        link = forbidden.previous[link]
    return False


@inner
def constrain(graph, potentials, n, heads, word, forbidden, link, chosen):
    """Takes from a loaded graph all arcs into words before `word` but theirs, and forbidden ones.

    `chosen` [n+1] are the best labels of the arcs into `word` that are left.
    """
    for d in range(word):
        for h in range(n + 1):
            if h != heads[d]:
                graph.scores[d + 1, h] = -np.inf
    for h in range(n + 1):
        graph.scores[word + 1, h] = -np.inf
        for a in range(potentials.shape[2]):
            score = potentials[h, word, a]
            better = h != word + 1 and score > graph.scores[word + 1, h]
            if better and not is_forbidden(forbidden, link, h, a):
                graph.scores[word + 1, h], chosen[h] = score, a


@inner
def total(potentials, n, heads, labels):
    """The score of a tree."""
    score = 0.0
    for d in range(n):
        score += potentials[heads[d], d, labels[d]]
    return score


@inner
def precedes(candidates, a, b):
    """Whether candidate a comes before candidate b: the higher score, then the earlier one."""
    scores, orders = candidates.scores, candidates.orders
    return scores[a] > scores[b] or (scores[a] == scores[b] and orders[a] < orders[b])


@inner
def room_for(candidates, limit, score):
    """A place for a candidate among the best `limit`: a free one, or that of the worst; else -1."""
    live, free, worst = 0, -1, -1
    for m in range(candidates.scores.shape[0]):
        if candidates.scores[m] == -np.inf:
            free = m
            continue
        live += 1
        if worst < 0 or precedes(candidates, worst, m):
            worst = m
    if live < limit:
        return free
    return worst if score > candidates.scores[worst] else -1


@inner
def first_of(candidates):
    """The best candidate, -1 if there is none."""
    best = -1
    for m in range(candidates.scores.shape[0]):
        alive = candidates.scores[m] > -np.inf
        if alive and (best < 0 or precedes(candidates, m, best)):
            best = m
    return best


@inner
def write(candidates, m, n, heads, labels, score, order, word, link):
    """Writes candidate m."""
    for d in range(n):
        candidates.heads[m, d], candidates.labels[m, d] = heads[d], labels[d]
    candidates.scores[m], candidates.orders[m] = score, order
    candidates.words[m], candidates.links[m] = word, link


@inner
def search(potentials, n, single, graph, candidates, forbidden, heads, labels, scores):
    """Fills heads and labels [k n] and scores [k] with the best trees of one element."""
    k, size = scores.shape[0], n + 1
    best, of_arcs = np.empty((size, n)), np.empty((size, n), np.int64)
    own, names, chosen = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(size, np.int64)
    best_labels(potentials, n, best, of_arcs)
    for m in range(k):
        candidates.scores[m] = -np.inf
    load(graph, best, n, single)
    if not arborescence(graph, n, single, own):
        return
    for d in range(n):
        names[d] = of_arcs[own[d], d]
    write(candidates, 0, n, own, names, total(potentials, n, own, names), 0, 0, -1)
    order, used = 1, 0
    for rank in range(k):
        m = first_of(candidates)
        if m < 0:
            return
        scores[rank], candidates.scores[m] = candidates.scores[m], -np.inf
        free, link = candidates.words[m], candidates.links[m]
        for d in range(n):
            heads[rank, d], labels[rank, d] = candidates.heads[m, d], candidates.labels[m, d]
        if rank == k - 1:
            return
        for word in range(free, n):
            forbidden.heads[used], forbidden.labels[used] = heads[rank, word], labels[rank, word]
            forbidden.previous[used] = link if word == free else -1
            load(graph, best, n, single)
            constrain(graph, potentials, n, heads[rank], word, forbidden, used, chosen)
            used += 1
            if not arborescence(graph, n, single, own):
                continue
            for d in range(n):
                names[d] = labels[rank, d] if d < word else of_arcs[own[d], d]
            names[word] = chosen[own[word]]
            score = total(potentials, n, own, names)
            place = room_for(candidates, k - 1 - rank, score)
            if place >= 0:
                write(candidates, place, n, own, names, score, order, word, used - 1)
                order += 1


@compiled
def k_best(potentials, lengths, single, lo, hi, heads, labels, scores):
    """Fills heads and labels [b k n] with the best trees of the elements lo:hi, and scores [b k].

    `potentials` [b n+1 n s]. Fewer than k: -1 and -inf.
    """
    size, k = potentials.shape[2], scores.shape[1]
    graph = new_graph(size)
    candidates = Candidates(
        np.empty((k, size), np.int64), np.empty((k, size), np.int64), np.empty(k),
        np.empty(k, np.int64), np.empty(k, np.int64), np.empty(k, np.int64),
    )  # fmt: skip
    room = k * size
    forbidden = Forbidden(
        np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    )
    for b in range(lo, hi):
        heads[b], labels[b], scores[b] = -1, -1, -np.inf
        if lengths[b] > 0:
            search(
                potentials[b], lengths[b], single, graph, candidates, forbidden,
                heads[b], labels[b], scores[b],
            )  # fmt: skip
        elif not single:
            scores[b, 0] = 0.0
