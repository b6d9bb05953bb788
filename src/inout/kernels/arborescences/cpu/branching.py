"""The maximum arborescence of a dense graph: Chu & Liu, Edmonds, in Tarjan's O(n²) form.

A path grows backwards from a word, each time by the best arc into its end. Where it bites itself
the cycle becomes one node: an arc into it costs what it throws out of the cycle. Nodes are numbered
as they arise (0 the root, then the words, then the cycles); a cycle takes the place of one of its
nodes in the matrix of arcs.

Weights are pairs, compared lexicographically: minus the number of arcs from the root, if it must
have one dependent, and the score. So the best tree has as few of these as any, without a large
constant that would cost digits (Zmigrod, Vieira & Cotterell 2020 forbid the other root arcs
instead). Among equals, the first head wins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner

Array = NDArray[Any]

NEW, OPEN, DONE, GONE = 0, 1, 2, 3  # states of a place: untouched, on the path, in the tree, merged


class Graph(NamedTuple):
    """Room for one search among n words."""

    scores: Array  # [n+1 n+1], dependent and head: -inf if there is no arc
    roots: Array  # [n+1 n+1], minus the number of root arcs
    heads: Array  # [n+1 n+1], the words that an arc between cycles connects
    words: Array  # [n+1 n+1]
    arcs: Array  # [2n+2 2], head and word of the arc into each node
    parents: Array  # [2n+2], the cycle that a node is part of, or -1
    places: Array  # [5 n+1]: state, node, path, members of a cycle; root count of the arc chosen
    costs: Array  # [n+1], score of the arc chosen


@inner
def new_graph(n):
    """Room for n words."""
    size = n + 1
    return Graph(
        np.empty((size, size)),
        np.empty((size, size), np.int64),
        np.empty((size, size), np.int64),
        np.empty((size, size), np.int64),
        np.empty((2 * size, 2), np.int64),
        np.empty(2 * size, np.int64),
        np.empty((5, size), np.int64),
        np.empty(size),
    )


@inner
def load(graph, scores, n, single):
    """Writes the arcs of `scores` [n+1 n]."""
    for d in range(1, n + 1):
        for h in range(n + 1):
            graph.scores[d, h] = scores[h, d - 1] if h != d else -np.inf
            graph.roots[d, h] = -1 if single and h == 0 else 0
            graph.heads[d, h], graph.words[d, h] = h, d
    for node in range(2 * n + 2):
        graph.parents[node] = -1
    for place in range(n + 1):
        graph.places[0, place] = NEW if place else DONE
        graph.places[1, place] = place


@inner
def best_into(graph, place, n):
    """The place of the best arc into a place, -1 if there is none."""
    state, scores, roots = graph.places[0], graph.scores[place], graph.roots[place]
    best = -1
    for h in range(n + 1):
        if state[h] == GONE or h == place or scores[h] == -np.inf:
            continue
        more = best >= 0 and roots[h] == roots[best] and scores[h] > scores[best]
        if more or best < 0 or roots[h] > roots[best]:
            best = h
    return best


@inner
def better(graph, d, h, roots, score):
    """Whether a weight is better than that of the arc (h, d)."""
    old = graph.scores[d, h]
    if score == -np.inf or old == -np.inf:
        return score > old
    return roots > graph.roots[d, h] or (roots == graph.roots[d, h] and score > old)


@inner
def take(graph, d, h, from_d, from_h, roots, score):
    """Makes the arc (h, d) the one from_h to from_d, with this weight."""
    graph.scores[d, h], graph.roots[d, h] = score, roots
    graph.heads[d, h] = graph.heads[from_d, from_h]
    graph.words[d, h] = graph.words[from_d, from_h]


@inner
def contract(graph, count, node, n):
    """Merges the `count` places of a cycle, in places[3], into the first of them."""
    state, nodes, members = graph.places[0], graph.places[1], graph.places[3]
    chosen, costs, first = graph.places[4], graph.costs, graph.places[3, 0]
    for x in range(count):
        graph.parents[nodes[members[x]]] = node
        state[members[x]] = GONE
    for x in range(count):
        v = members[x]
        for u in range(n + 1):
            if state[u] == GONE:
                continue
            if graph.scores[v, u] > -np.inf:
                score = graph.scores[v, u] - costs[v]
                roots = graph.roots[v, u] - chosen[v]
                if x == 0:
                    graph.scores[v, u], graph.roots[v, u] = score, roots
                elif better(graph, first, u, roots, score):
                    take(graph, first, u, v, u, roots, score)
            if u > 0 and x > 0 and better(graph, u, first, graph.roots[u, v], graph.scores[u, v]):
                take(graph, u, first, u, v, graph.roots[u, v], graph.scores[u, v])
    state[first], nodes[first] = OPEN, node


@inner
def expand(graph, node, n, heads):
    """Undoes the contractions, the last one first: an arc into a cycle replaces one within it."""
    arcs, parents = graph.arcs, graph.parents
    for cycle in range(node - 1, n, -1):
        inner_node = arcs[cycle, 1]
        while parents[inner_node] != cycle:
            inner_node = parents[inner_node]
        arcs[inner_node, 0], arcs[inner_node, 1] = arcs[cycle, 0], arcs[cycle, 1]
    for d in range(n):
        heads[d] = arcs[d + 1, 0]


@inner
def arborescence(graph, n, single, heads):
    """Fills heads [n] with the best tree of a loaded graph; whether there is one."""
    state, nodes, path = graph.places[0], graph.places[1], graph.places[2]
    members, chosen = graph.places[3], graph.places[4]
    node = n + 1
    for start in range(1, n + 1):
        if state[start] != NEW:
            continue
        depth, path[0], state[start] = 1, start, OPEN
        while True:
            v = path[depth - 1]
            u = best_into(graph, v, n)
            if u < 0:
                return False
            chosen[v], graph.costs[v] = graph.roots[v, u], graph.scores[v, u]
            graph.arcs[nodes[v], 0] = graph.heads[v, u]
            graph.arcs[nodes[v], 1] = graph.words[v, u]
            if state[u] == DONE:
                break
            if state[u] == NEW:
                path[depth], state[u] = u, OPEN
                depth += 1
                continue
            count, members[0] = 1, u
            while path[depth - 1] != u:
                depth -= 1
                members[count] = path[depth]
                count += 1
            contract(graph, count, node, n)
            node += 1
        for x in range(depth):
            state[path[x]] = DONE
    expand(graph, node, n, heads)
    dependents = 0
    for d in range(n):
        dependents += 1 if heads[d] == 0 else 0
    return dependents == 1 or not single


@compiled
def best(scores, lengths, single, lo, hi, heads):
    """Fills heads [b n] of the elements lo:hi with the best trees; -1 where there is none."""
    graph = new_graph(scores.shape[2])
    for b in range(lo, hi):
        n = lengths[b]
        load(graph, scores[b], n, single)
        found = arborescence(graph, n, single, heads[b])
        for d in range(n if found else 0, heads.shape[1]):
            heads[b, d] = -1
