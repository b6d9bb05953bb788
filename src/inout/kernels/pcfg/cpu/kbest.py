"""The k best trees of weighted grammars, lazily from the best scores of `decode.py`.

Potentials and trees as there. Trees come in the order of `math/cpu/heap.py`; the number of an edge
is (k * s + B) * s + C, for the split k and the symbols of the children.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu import heap
from inout.kernels.pcfg.cpu.decode import best_edge, best_scores, join, room_for
from inout.kernels.pcfg.cpu.logspace import children_of

# Typed: with plain numbers as arguments numba would compile another version.
LEFT, RIGHT = np.int64(0), np.int64(1)
ZERO = np.int64(0)


@inner
def push(stack, depth, i, j, a, more):
    """Writes a span, its symbol and one more number onto a stack; returns its new depth."""
    stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = i, j, a, more
    return depth + 1


@inner
def parts_of(edge, s):
    """(k, B, C) of an edge."""
    return edge // (s * s), edge // s % s, edge % s


@inner
def open_item(chart, items, nodes, used, i, j, a, kept, edges):
    """Makes candidates of the best edges of symbol a over i..j: how many nodes there are then.

    Of all but its very best edge, as many as there is room for in `kept`.
    """
    rules, words, starts, ends = chart
    nt, s = rules.shape[0], rules.shape[1]
    item = items[i, j, a]
    best = nodes.edges[item[heap.FIRST]]
    count, limit = np.int64(0), kept.shape[0]
    for k in range(i, j):
        b_lo, b_hi, c_lo, c_hi = children_of(i, k, j, nt, s)
        for p in range(b_lo, b_hi):
            left = words[i, p - nt] if k == i else starts[i, p, k]
            if left == -np.inf:
                continue
            for q in range(c_lo, c_hi):
                right = words[j, q - nt] if k + 1 == j else ends[j, k + 1, q]
                score = join(rules[a, p, q], left, right, i, k, j)
                least = kept[0] if count == limit else -np.inf
                edge = (k * s + p) * s + q
                if score > least and edge != best:
                    count = heap.keep_best(kept, edges, count, limit, score, edge)
    top = np.int64(0)
    for place in range(count):
        heap.write_node(nodes, used, edges[place], kept[place])
        top = heap.meld(nodes, top, used)
        used += 1
    item[heap.HEAP], item[heap.OPENED] = top, 1
    return used


@inner
def add_candidate(chart, item, nodes, place, i, j, a, position, child):
    """Puts the item's last derivation, with another child at a position, into its heap."""
    rules, words, starts, ends = chart
    nt, s = rules.shape[0], rules.shape[1]
    last = np.int64(item[heap.LAST])
    k, p, q = parts_of(nodes.edges[last], s)
    nodes.edges[place] = nodes.edges[last]
    heap.write_follower(nodes, place, last, position, child)
    left, right = heap.child_at(nodes, place, LEFT), heap.child_at(nodes, place, RIGHT)
    left_score, right_score = nodes.weights[left], nodes.weights[right]
    if left == 0:
        left_score = words[i, p - nt] if k == i else starts[i, p, k]
    if right == 0:
        right_score = words[j, q - nt] if k + 1 == j else ends[j, k + 1, q]
    nodes.weights[place] = join(rules[a, p, q], left_score, right_score, i, k, j)
    item[heap.HEAP] = heap.meld(nodes, np.int64(item[heap.HEAP]), place)


@inner
def find_next(chart, items, nodes, used, stack, kept, edges):
    """Finds the derivation after the last known one of the symbol and span in stack[0].

    (The nodes, how many there are.) A candidate that follows has the next derivation of one child,
    at the last changed position or right of it. A child's next derivation is found first, where it
    is not known: then the child's last one is part of the tree written last, so that its own
    children have nodes.
    """
    s = chart.rules.shape[1]
    depth = np.int64(1)
    stack[0, 3] = 0
    while depth > 0:
        nodes = heap.with_room(nodes, used, kept.shape[0] + 2, heap.MOST_NODES)
        i, j, a, step = stack[depth - 1]
        item = items[i, j, a]
        if item[heap.OPENED] == 0:
            used = open_item(chart, items, nodes, used, i, j, a, kept, edges)
        last = np.int64(item[heap.LAST])
        k, p, q = parts_of(nodes.edges[last], s)
        links = nodes.links[last]
        changed_right = links[heap.CHILD] > 0 and links[heap.POSITION] == RIGHT
        while step < 2:
            # The right child at step 0, the left one at step 1; words have no other derivation.
            position = 1 - step
            child, follower = heap.child_at(nodes, last, position), heap.NONE
            if position == RIGHT and k + 1 < j:
                follower = np.int64(nodes.links[child or items[k + 1, j, q, heap.FIRST], heap.NEXT])
            elif position == LEFT and i < k and not changed_right:
                follower = np.int64(nodes.links[child or items[i, k, p, heap.FIRST], heap.NEXT])
            if follower == 0:
                break
            if follower > 0:
                add_candidate(chart, item, nodes, used, i, j, a, position, follower)
                used += 1
            step += 1
        stack[depth - 1, 3] = step
        if step == 0:
            depth = push(stack, depth, k + 1, j, q, ZERO)
        elif step == 1:
            depth = push(stack, depth, i, k, p, ZERO)
        else:
            heap.take_next(item, nodes)
            depth -= 1
    return nodes, used


@inner
def write_tree(chart, items, nodes, used, stack, event):
    """Writes the derivation in stack[0] into event [n n]: how many nodes there are then.

    A row of the stack is a span, its symbol and its node, 0 for the best, which gets one here.
    """
    s = chart.rules.shape[1]
    event[:] = -1
    depth = np.int64(1)
    while depth > 0:
        depth -= 1
        i, j, a, node = stack[depth]
        event[i, j] = a
        if i == j:
            continue
        item = items[i, j, a]
        if node == 0 and item[heap.FIRST] == 0:
            k, p, q = best_edge(chart, i, j, a)
            heap.write_node(nodes, used, (k * s + p) * s + q, chart.starts[i, a, j])
            item[heap.FIRST], item[heap.LAST] = used, used
            used += 1
        if node == 0:
            node = np.int64(item[heap.FIRST])
        k, p, q = parts_of(nodes.edges[node], s)
        depth = push(stack, depth, k + 1, j, q, heap.child_at(nodes, node, RIGHT))
        depth = push(stack, depth, i, k, p, heap.child_at(nodes, node, LEFT))
    return used


@compiled
def kbest(root, rules, words, lengths, lo, hi, limit, events, scores):
    """Fills events [k b n n] and scores [k b] in decreasing order; -1 and -inf if fewer.

    Lazily from the top down (Huang & Chiang 2005, algorithm 3): the edges of a symbol over a span
    are visited only when its second derivation is needed. After the best scores (O(n³ nt² + n²
    nt³ + n nt pt s)) O(n s²) for each span of each tree.
    """
    nt, n = rules.shape[1], words.shape[1]
    scratch = room_for(nt, n, words.shape[2])
    items = np.empty((n, n, nt, heap.ITEM_COLUMNS), np.int32)
    stack = np.zeros((n + 2, 4), np.int64)
    kept, edges = np.empty(limit), np.empty(limit, np.int64)
    heads, tops = np.zeros(nt, np.int64), np.empty(nt)
    for b in range(lo, hi):
        own = rules[b if rules.shape[0] > 1 else 0]
        chart = best_scores(own, words[b], lengths[b], b == lo or rules.shape[0] > 1, scratch)
        nodes = heap.empty_nodes(4 * n + 4)
        used = np.int64(1)  # with a plain 1 numba would compile another version
        items[:] = 0
        last = lengths[b] - 1
        for a in range(nt):
            heads[a], tops[a] = 0, root[b, a] + chart.starts[0, a, last]
        for rank in range(limit):
            best = 0
            for a in range(nt):
                if tops[a] > tops[best]:
                    best = a
            scores[rank, b] = tops[best]
            if tops[best] == -np.inf:
                events[rank, b] = -1
                continue
            nodes = heap.with_room(nodes, used, n, heap.MOST_NODES)
            push(stack, ZERO, ZERO, last, best, heads[best])
            used = write_tree(chart, items, nodes, used, stack, events[rank, b])
            left = limit - 1 - rank
            if left > 0:
                before = heads[best] or np.int64(items[0, last, best, heap.FIRST])
                push(stack, ZERO, ZERO, last, best, ZERO)
                nodes, used = find_next(
                    chart, items, nodes, used, stack, kept[:left], edges[:left]
                )  # fmt: skip
                heads[best] = np.int64(nodes.links[before, heap.NEXT])
                tops[best] = -np.inf
                if heads[best] > 0:
                    tops[best] = root[b, best] + nodes.weights[heads[best]]
