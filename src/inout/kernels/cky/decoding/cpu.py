"""Viterbi, k-best and top-down sampling of the trees of weighted grammars.

root [b nt], rules [bs nt s s] (bs is b or 1) and words [b n pt] in float64, as logarithms; trees
are written as symbols of spans [n n], -1 where there is no span.

The chart of the best scores is made of products of matrices with max and + in place of + and *,
as in `cky.cpu`: for all spans of one width first the best split for each pair of nonterminals,
then the rules, with words met through matrices made once for each position. It keeps no
back-pointers. A score is always summed up in the same order (`join`), so that the edge with the
best score is found again by looking for that very number.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from inout.kernels.cky.logspace.cpu import symbols_of
from inout.kernels.sampling.cpu import GAMMA, SHIFT_53, UNIT_53, mix

# Columns of a node, one derivation of a symbol over a span: the split and the children's symbols;
# the children's nodes, 0 for a word or a child's best; the symbol's next derivation, 0 while not
# known; links of the heap of candidates.
SPLIT, LEFT, RIGHT, LEFT_NODE, RIGHT_NODE, NEXT, HEAP_CHILD, HEAP_SIBLING = range(8)
# Columns of a symbol over a span: its best and its last known derivation, its heap of candidates,
# and whether all its edges have been looked at.
FIRST, LAST, HEAP, OPENED = range(4)
COLUMNS = 8
NONE = -1


@njit(cache=True, nogil=True)
def larger(x, y):
    """max(x, y) in the form that becomes one instruction: neither is NaN."""
    return x if x > y else y


@njit(cache=True, nogil=True)
def raise_row(x, y, place, out):
    """out[a] = max(out[a], x[k] + y[k, place, a] for all k), of which there are a multiple of 4."""
    for k in range(0, x.shape[0], 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for a in range(out.shape[0]):
            first = larger(x0 + y[k, place, a], x1 + y[k + 1, place, a])
            second = larger(x2 + y[k + 2, place, a], x3 + y[k + 3, place, a])
            out[a] = larger(larger(first, second), out[a])


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def fours(size):
    """The smallest multiple of 4 from `size` on."""
    return (size + 3) // 4 * 4


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def room_for(nt, n, pt):
    """Scratch memory of `best_scores`; what is not written in it there is -inf."""
    size, rows, even = fours(nt), fours(pt), n + n % 2
    words = np.empty((even, rows))
    words[:] = -np.inf
    both, beside = np.empty((size * size, size)), np.empty((2 * size + rows, rows, size))
    both[:] = -np.inf
    beside[:] = -np.inf
    met = np.empty((2 * size + rows, even, size))
    pairs, totals = np.empty((even, size * size)), np.empty((even, size))
    starts, ends = np.empty((n, size, n + 4)), np.empty((n, n + 4, size))
    return both, beside, words, met, pairs, totals, starts, ends


@njit(cache=True, nogil=True)
def best_scores(rules, given_words, length, new_rules, scratch):
    """(starts [n size n+4], ends [n n+4 size]), the best scores of symbols over spans.

    starts[i, A, j] and ends[j, i, A] are the same, for nonterminals over two words or more; -inf
    elsewhere, and there are more places than needed so that 4 splits can be done at a time.
    """
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
    return starts, ends


@njit(cache=True, nogil=True)
def join(rule, left, right, i, k, j):
    """The score of an edge, with the word first as in `best_scores`."""
    if i == k:
        return (rule + left) + right
    if k + 1 == j:
        return (rule + right) + left
    return rule + (left + right)


@njit(cache=True, nogil=True)
def best_edge(chart, i, j, a):
    """The first (k, B, C) with the best score for symbol a over i..j."""
    rules, words, starts, ends = chart
    nt, s = rules.shape[0], rules.shape[1]
    top = starts[i, a, j]
    for k in range(i, j):
        b_lo, b_hi = symbols_of(k - i + 1, nt, s)
        c_lo, c_hi = symbols_of(j - k, nt, s)
        for p in range(b_lo, b_hi):
            left = words[i, p - nt] if k == i else starts[i, p, k]
            for q in range(c_lo, c_hi):
                right = words[j, q - nt] if k + 1 == j else ends[j, k + 1, q]
                if join(rules[a, p, q], left, right, i, k, j) == top:
                    return k, p, q
    return NONE, NONE, NONE


@njit(cache=True, nogil=True)
def viterbi(root, rules, words, lengths, lo, hi, events, scores):
    """Fills events [b n n] and scores [b]."""
    nt, n = rules.shape[1], words.shape[1]
    scratch = room_for(nt, n, words.shape[2])
    stack = np.empty((n + 1, 3), np.int64)
    for b in range(lo, hi):
        own = rules[b if rules.shape[0] > 1 else 0]
        starts, ends = best_scores(
            own, words[b], lengths[b], b == lo or rules.shape[0] > 1, scratch
        )
        chart = own, words[b], starts, ends
        events[b] = -1
        scores[b] = -np.inf
        last = lengths[b] - 1
        for a in range(nt):
            score = root[b, a] + starts[0, a, last]
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
                stack[depth, 0], stack[depth, 1], stack[depth, 2] = k + 1, j, q
                stack[depth + 1, 0], stack[depth + 1, 1], stack[depth + 1, 2] = i, k, p
                depth += 2


@njit(cache=True, nogil=True)
def push(stack, depth, i, j, a, more):
    """Writes a span, its symbol and one more number onto a stack; returns its new depth."""
    stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = i, j, a, more
    return depth + 1


@njit(cache=True, nogil=True)
def write_node(tables, place, k, p, q, score):
    """Writes a best derivation of an edge, which is in no list and no heap yet."""
    _, nodes, scores = tables
    nodes[place, SPLIT], nodes[place, LEFT], nodes[place, RIGHT] = k, p, q
    for column in range(LEFT_NODE, COLUMNS):
        nodes[place, column] = 0
    scores[place] = score


@njit(cache=True, nogil=True)
def edge_of(nodes, node):
    """(k, B, C) of a derivation."""
    edge = nodes[node, SPLIT], nodes[node, LEFT], nodes[node, RIGHT]
    return np.int64(edge[0]), np.int64(edge[1]), np.int64(edge[2])


@njit(cache=True, nogil=True)
def meld(nodes, scores, x, y):
    """The top of the pairing heap made of the heaps with tops x and y; 0 is the empty heap."""
    if x == 0 or y == 0:
        return x + y
    if scores[y] > scores[x]:
        x, y = y, x
    nodes[y, HEAP_SIBLING] = nodes[x, HEAP_CHILD]
    nodes[x, HEAP_CHILD] = y
    return x


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
            follower = NONE
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
