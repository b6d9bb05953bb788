"""The k best trees of weighted grammars, lazily from the best scores of `decode.py`.

Potentials and trees as there.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled
from inout.kernels.pcfg.cpu.decode import NONE, best_edge, best_scores, join, room_for
from inout.kernels.pcfg.cpu.logspace import symbols_of

# Columns of a node, one derivation of a symbol over a span: the split and the children's symbols;
# the children's nodes, 0 for a word or a child's best; the symbol's next derivation, 0 while not
# known; links of the heap of candidates.
SPLIT, LEFT, RIGHT, LEFT_NODE, RIGHT_NODE, NEXT, HEAP_CHILD, HEAP_SIBLING = range(8)
# Columns of a symbol over a span: its best and its last known derivation, its heap of candidates,
# and whether all its edges have been looked at.
FIRST, LAST, HEAP, OPENED = range(4)
COLUMNS = 8


@compiled
def push(stack, depth, i, j, a, more):
    """Writes a span, its symbol and one more number onto a stack; returns its new depth."""
    stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = i, j, a, more
    return depth + 1


@compiled
def write_node(tables, place, k, p, q, score):
    """Writes a best derivation of an edge, which is in no list and no heap yet."""
    _, nodes, scores = tables
    nodes[place, SPLIT], nodes[place, LEFT], nodes[place, RIGHT] = k, p, q
    for column in range(LEFT_NODE, COLUMNS):
        nodes[place, column] = 0
    scores[place] = score


@compiled
def edge_of(nodes, node):
    """(k, B, C) of a derivation."""
    edge = nodes[node, SPLIT], nodes[node, LEFT], nodes[node, RIGHT]
    return np.int64(edge[0]), np.int64(edge[1]), np.int64(edge[2])


@compiled
def meld(nodes, scores, x, y):
    """The top of the pairing heap made of the heaps with tops x and y; 0 is the empty heap."""
    if x == 0 or y == 0:
        return x + y
    if scores[y] > scores[x]:
        x, y = y, x
    nodes[y, HEAP_SIBLING] = nodes[x, HEAP_CHILD]
    nodes[x, HEAP_CHILD] = y
    return x


@compiled
def without_top(nodes, scores, top):
    """The top of the pairing heap when its top is taken off: its children by pairs, then all."""
    pairs, node = np.int64(0), np.int64(nodes[top, HEAP_CHILD])
    while node > 0:
        other, rest = np.int64(nodes[node, HEAP_SIBLING]), np.int64(0)
        if other > 0:
            rest = np.int64(nodes[other, HEAP_SIBLING])
        node = meld(nodes, scores, node, other)
        nodes[node, HEAP_SIBLING] = pairs
        pairs, node = node, rest
    while pairs > 0:
        rest = np.int64(nodes[pairs, HEAP_SIBLING])
        node = meld(nodes, scores, node, pairs)
        pairs = rest
    return node


@compiled
def keep_best(kept, edges, count, score, edge):
    """Puts an edge among the best ones, a heap with the worst on top: how many there are now."""
    limit = kept.shape[0]
    if count < limit:
        hole = count
        while hole > 0 and kept[(hole - 1) // 2] > score:
            kept[hole], edges[hole] = kept[(hole - 1) // 2], edges[(hole - 1) // 2]
            hole = (hole - 1) // 2
        count += 1
    else:
        hole = 0
        while 2 * hole + 1 < limit:
            below = 2 * hole + 1
            if below + 1 < limit and kept[below + 1] < kept[below]:
                below += 1
            if kept[below] >= score:
                break
            kept[hole], edges[hole] = kept[below], edges[below]
            hole = below
    kept[hole], edges[hole] = score, edge
    return count


@compiled
def open_item(chart, tables, used, i, j, a, kept, edges):
    """Makes candidates of the best edges of symbol a over i..j: how many nodes there are then.

    Of all but its very best edge, as many as there is room for in `kept`.
    """
    rules, words, starts, ends = chart
    items, nodes, scores = tables
    nt, s = rules.shape[0], rules.shape[1]
    best = edge_of(nodes, np.int64(items[i, j, a, FIRST]))
    count = np.int64(0)
    for k in range(i, j):
        b_lo, b_hi = symbols_of(k - i + 1, nt, s)
        c_lo, c_hi = symbols_of(j - k, nt, s)
        for p in range(b_lo, b_hi):
            left = words[i, p - nt] if k == i else starts[i, p, k]
            if left == -np.inf:
                continue
            for q in range(c_lo, c_hi):
                right = words[j, q - nt] if k + 1 == j else ends[j, k + 1, q]
                score = join(rules[a, p, q], left, right, i, k, j)
                least = kept[0] if count == kept.shape[0] else -np.inf
                if score > least and (k, p, q) != best:
                    count = keep_best(kept, edges, count, score, (k * s + p) * s + q)
    top = np.int64(0)
    for place in range(count):
        k, p, q = edges[place] // (s * s), edges[place] // s % s, edges[place] % s
        write_node(tables, used, k, p, q, kept[place])
        top = meld(nodes, scores, top, used)
        used += 1
    items[i, j, a, HEAP], items[i, j, a, OPENED] = top, 1
    return used


@compiled
def add_candidate(chart, tables, place, i, j, a, last, left, right):
    """Writes derivation `last` of a over i..j with other nodes for its children; into the heap."""
    rules, words, starts, ends = chart
    items, nodes, scores = tables
    nt = rules.shape[0]
    k, p, q = edge_of(nodes, last)
    left_score, right_score = scores[left], scores[right]
    if left == 0:
        left_score = words[i, p - nt] if k == i else starts[i, p, k]
    if right == 0:
        right_score = words[j, q - nt] if k + 1 == j else ends[j, k + 1, q]
    score = join(rules[a, p, q], left_score, right_score, i, k, j)
    write_node(tables, place, k, p, q, score)
    nodes[place, LEFT_NODE], nodes[place, RIGHT_NODE] = left, right
    items[i, j, a, HEAP] = meld(nodes, scores, np.int64(items[i, j, a, HEAP]), place)


@compiled
def with_room(tables, used, more):
    """The tables, copied to longer ones where there is no room for so many more nodes."""
    items, nodes, scores = tables
    if used + more <= nodes.shape[0]:
        return tables
    longer = np.empty((2 * (used + more), nodes.shape[1]), nodes.dtype)
    longer_scores = np.empty(2 * (used + more))
    for place in range(used):
        longer_scores[place] = scores[place]
        for column in range(nodes.shape[1]):
            longer[place, column] = nodes[place, column]
    return items, longer, longer_scores


@compiled
def find_next(chart, tables, used, stack, kept, edges):
    """Finds the derivation after the last known one of the symbol and span in stack[0].

    (The tables, how many nodes there are.) Candidates that follow the last one, with ranks (x, y)
    of its children, are (x, y + 1), and (x + 1, 0) if y = 0: none is met twice. A child's next
    derivation is found first, where it is not known: then the child's last one is part of the
    tree written last, so that its own children have nodes.
    """
    start, depth = np.int64(0), np.int64(1)
    stack[0, 3] = start
    while depth > 0:
        tables = with_room(tables, used, kept.shape[0] + 2)
        items, nodes, scores = tables
        i, j, a, step = stack[depth - 1]
        if items[i, j, a, OPENED] == 0:
            used = open_item(chart, tables, used, i, j, a, kept, edges)
        last = np.int64(items[i, j, a, LAST])
        k, p, q = edge_of(nodes, last)
        left, right = np.int64(nodes[last, LEFT_NODE]), np.int64(nodes[last, RIGHT_NODE])
        while step < 2:
            follower = np.int64(NONE)
            if step == 0 and k + 1 < j:
                follower = np.int64(nodes[right, NEXT])
            elif step == 1 and i < k and (k + 1 == j or right == items[k + 1, j, q, FIRST]):
                follower = np.int64(nodes[left, NEXT])
            if follower == 0:
                break
            if follower > 0 and step == 0:
                add_candidate(chart, tables, used, i, j, a, last, left, follower)
                used += 1
            elif follower > 0:
                add_candidate(chart, tables, used, i, j, a, last, follower, right)
                used += 1
            step += 1
        stack[depth - 1, 3] = step
        if step < 2:
            if step == 0:
                depth = push(stack, depth, k + 1, j, q, start)
            else:
                depth = push(stack, depth, i, k, p, start)
        else:
            top = np.int64(items[i, j, a, HEAP])
            nodes[last, NEXT] = top if top > 0 else NONE
            if top > 0:
                items[i, j, a, HEAP] = without_top(nodes, scores, top)
                items[i, j, a, LAST] = top
            depth -= 1
    return tables, used


@compiled
def write_tree(chart, tables, used, stack, event):
    """Writes the derivation in stack[0] into event [n n]: how many nodes there are then.

    A row of the stack is a span, its symbol and where its node is noted, as a place in `nodes`;
    where none is, the best derivation gets one.
    """
    items, nodes, scores = tables
    event[:] = -1
    depth = np.int64(1)
    while depth > 0:
        depth -= 1
        i, j, a, link = stack[depth]
        event[i, j] = a
        if i == j:
            continue
        parent, column = link // COLUMNS, link % COLUMNS
        place = np.int64(nodes[parent, column])
        if place == 0:
            place = np.int64(items[i, j, a, FIRST])
        if place == 0:
            k, p, q = best_edge(chart, i, j, a)
            place = used
            used += 1
            write_node(tables, place, k, p, q, chart[2][i, a, j])
            items[i, j, a, FIRST] = place
            items[i, j, a, LAST] = place
        nodes[parent, column] = place
        k, p, q = edge_of(nodes, place)
        depth = push(stack, depth, k + 1, j, q, place * COLUMNS + RIGHT_NODE)
        depth = push(stack, depth, i, k, p, place * COLUMNS + LEFT_NODE)
    return used


@compiled
def kbest(root, rules, words, lengths, lo, hi, limit, events, scores):
    """Fills events [k b n n] and scores [k b] in decreasing order; -1 and -inf where fewer.

    Lazily from the top down (Huang & Chiang 2005, algorithm 3): the edges of a symbol over a span
    are looked at only when its second derivation is wanted. After the best scores (O(n³ nt² + n²
    nt³ + n nt pt s)) O(n s²) for each span of each tree.
    """
    nt, n = rules.shape[1], words.shape[1]
    scratch = room_for(nt, n, words.shape[2])
    items = np.empty((n, n, nt, 4), np.int32)
    stack = np.zeros((n + 2, 4), np.int64)
    kept, edges = np.empty(limit), np.empty(limit, np.int64)
    heads, tops = np.zeros(nt, np.int64), np.empty(nt)
    for b in range(lo, hi):
        own = rules[b if rules.shape[0] > 1 else 0]
        starts, ends = best_scores(
            own, words[b], lengths[b], b == lo or rules.shape[0] > 1, scratch
        )
        chart = own, words[b], starts, ends
        # Node 0 is none; its links are written while trees are walked.
        tables = items, np.zeros((4 * n + 4, COLUMNS), np.int32), np.zeros(4 * n + 4)
        used = np.int64(1)  # of plain 1 numba would compile versions of its own
        items[:] = 0
        last = lengths[b] - 1
        for a in range(nt):
            heads[a], tops[a] = 0, root[b, a] + starts[0, a, last]
        for rank in range(limit):
            best = 0
            for a in range(nt):
                if tops[a] > tops[best]:
                    best = a
            scores[rank, b] = tops[best]
            if tops[best] == -np.inf:
                events[rank, b] = -1
                continue
            tables = with_room(tables, used, n)
            tables[1][0, NEXT] = heads[best]
            stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, last, best, NEXT
            used = write_tree(chart, tables, used, stack, events[rank, b])
            left = limit - 1 - rank
            if left > 0:
                before = np.int64(tables[1][0, NEXT])
                stack[0, 0], stack[0, 1], stack[0, 2] = 0, last, best
                tables, used = find_next(chart, tables, used, stack, kept[:left], edges[:left])
                heads[best] = np.int64(tables[1][before, NEXT])
                tops[best] = -np.inf
                if heads[best] > 0:
                    tops[best] = root[b, best] + tables[2][heads[best]]
