"""The k best trees of sparse grammars, lazily from a chart of best values.

Huang & Chiang, "Better k-best parsing" (IWPT 2005), algorithm 3. An item is a symbol over a span,
above or below the unary rules. A derivation of one above is made of a unary rule, or none, and one
below (at position 1); a derivation of one below is an entry, or a rule, a split and two from above.
They come in the order of `math/cpu/heap.py`, edges by `edge_number`.

problem: (grammar, ways, rules, unary, words, first position, chart), as in `viterbi.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.heap import (  # fmt: skip
    CHILD,
    FIRST,
    HEAP,
    LAST,
    MOST_NODES,
    NEXT,
    OPENED,
    POSITION,
    Nodes,
    child_at,
    empty_nodes,
    keep_best,
    longer_rows,
    longer_vector,
    meld,
    take_next,
    with_room,
    write_follower,
    write_node,
)
from inout.kernels.sparse.cpu.logspace import inside
from inout.kernels.sparse.cpu.scaled import left_base, right_base
from inout.kernels.sparse.cpu.viterbi import (  # fmt: skip
    NONE,
    best_entry,
    best_split,
    best_unary,
    entry_ranges,
    row_over,
    value_below,
)

# Typed: for plain numbers as arguments numba would compile versions of their own.
ABOVE, BELOW = np.int64(0), np.int64(1)
ZERO, ONE, FEW = np.int64(0), np.int64(1), np.int64(4)


class Tables(NamedTuple):
    """What is known of items and derivations."""

    items: NDArray[np.int32]  # [their number, 4], calloc'ed by the caller, mostly never touched
    nodes: Nodes
    used: NDArray[np.int64]  # [1], how many nodes there are


@inner
def item_number(i, j, a, level, s):
    """Where an item is in the table of items."""
    return (((j * (j + 1)) // 2 + i) * s + a) * 2 + level


@inner
def edge_number(level, rule, split, num_entries, n):
    """A number for an edge of an item, in the order in which ties are broken."""
    if level == ABOVE:
        return rule + 1
    return rule if split < 0 else num_entries + rule * n + split


@inner
def rule_and_split(level, edge, num_entries, n):
    """The rule or entry and the split of an edge; NONE for no unary rule, and for no split."""
    if level == ABOVE:
        return edge - 1, NONE
    if edge < num_entries:
        return edge, NONE
    return (edge - num_entries) // n, (edge - num_entries) % n


@inner
def with_room_for(tables, more):
    """The tables, copied to longer ones where there is no room for so many more nodes."""
    nodes = with_room(tables.nodes, tables.used[0], more, MOST_NODES)
    return Tables(tables.items, nodes, tables.used)


@inner
def new_node(tables, edge, weight):
    """A derivation with the best children, in no list and no heap yet."""
    node = tables.used[0]
    tables.used[0] += 1
    write_node(tables.nodes, node, edge, weight)
    return node


@inner
def first_node(problem, tables, i, j, a, level):
    """The best derivation of an item that has one; made where there is no node yet."""
    grammar, ways, rules, unary, words, start, chart = problem
    n, s = chart[6].shape[0], grammar[6].shape[0]
    item = tables.items[item_number(i, j, a, level, s)]
    if item[FIRST] == 0:
        split = NONE
        if level == ABOVE:
            value = chart[0][left_base(i, n, s) + a * (n - i) + j - i]
            row = row_over(unary, words, start, n, i, j)
            rule = best_unary(grammar, unary, row, chart, i, j, a, value)
        else:
            value = value_below(chart, grammar[6], i, j, a)
            rule = best_entry(words, start, n, i, j, a, value)
            if rule < 0:
                row = row_over(rules, words, start, n, i, j)
                rule, split = best_split(rules, row, ways, chart, i, j, a, value)
        edge = edge_number(level, rule, split, words[2].shape[0], n)
        node = new_node(tables, edge, value)
        item[FIRST], item[LAST] = node, node
    return np.int64(item[FIRST])


@inner
def unary_edges(problem, i, j, a, best, limit, kept, edges):
    """Fills kept and edges with the best edges of an item above, but for `best`: their number."""
    grammar, ways, rules, unary, words, start, chart = problem
    unary_head, unary_child, places = grammar[4], grammar[5], grammar[6]
    row = row_over(unary, words, start, chart[6].shape[0], i, j)
    count = np.int64(0)
    score = value_below(chart, places, i, j, a)
    if best != 0 and score > -np.inf:
        count = keep_best(kept, edges, count, limit, score, np.int64(0))
    if places[a] < 0:
        return count
    for u in range(unary_head.shape[0]):
        if unary_head[u] == a and u + 1 != best:
            score = unary[row, u] + value_below(chart, places, i, j, unary_child[u])
            least = kept[0] if count == limit else -np.inf
            if score > least:
                count = keep_best(kept, edges, count, limit, score, np.int64(u + 1))
    return count


@inner
def binary_edges(problem, i, j, a, best, limit, kept, edges):
    """As `unary_edges`, for an item below."""
    grammar, ways, rules, unary, words, start, chart = problem
    rule_left, rule_right, head_offsets, head_rules = ways
    symbols, values, arc_symbols = words[1], words[2], words[5]
    lefts, rights, left_ends, right_starts = chart[:4]
    n, s = chart[6].shape[0], grammar[6].shape[0]
    count = np.int64(0)
    first, end, first_arc, end_arc = entry_ranges(words, start, n, i, j)
    for x in range(first - end, end_arc - first_arc):
        # The words' entries first, then the arcs.
        e = end + x if x < 0 else symbols.shape[0] + first_arc + x
        symbol = symbols[e] if x < 0 else arc_symbols[first_arc + x]
        least = kept[0] if count == limit else -np.inf
        if symbol == a and e != best and values[e] > least:
            count = keep_best(kept, edges, count, limit, values[e], np.int64(e))
    row = row_over(rules, words, start, n, i, j)
    lefts_from, rights_from = left_base(i, n, s) - i, right_base(j, s) + 1
    for x in range(head_offsets[a], head_offsets[a + 1]):
        r = head_rules[x]
        weight = rules[row, r]
        b, c = rule_left[r], rule_right[r]
        left, right = lefts_from + b * (n - i), rights_from + c * (j + 1)
        lo = max(max(left_ends[i, b, 0], right_starts[j, c, 0] - 1), i)
        hi = min(min(left_ends[i, b, 1], right_starts[j, c, 1] - 1), j - 1)
        for k in range(lo, hi + 1):
            score = weight + (lefts[left + k] + rights[right + k])
            least = kept[0] if count == limit else -np.inf
            if score > least:
                edge = edge_number(BELOW, x, k, values.shape[0], n)
                if edge != best:
                    count = keep_best(kept, edges, count, limit, score, np.int64(edge))
    return count


@inner
def open_item(problem, tables, i, j, a, level, limit, kept, edges):
    """Makes candidates of all edges of an item but its very best, or of the `limit` best."""
    item = tables.items[item_number(i, j, a, level, problem[0][6].shape[0])]
    nodes = tables.nodes
    best = nodes.edges[item[FIRST]]
    if level == ABOVE:
        count = unary_edges(problem, i, j, a, best, limit, kept, edges)
    else:
        count = binary_edges(problem, i, j, a, best, limit, kept, edges)
    top = np.int64(0)
    for x in range(count):
        top = meld(nodes, top, new_node(tables, edges[x], kept[x]))
    item[HEAP], item[OPENED] = top, 1


@inner
def child_of(problem, edge, i, j, a, level, right):
    """(span, symbol, level) of the right or left child of an edge; level NONE without."""
    grammar, ways, words = problem[0], problem[1], problem[4]
    rule, k = rule_and_split(level, edge, words[2].shape[0], problem[6][6].shape[0])
    if level == ABOVE:
        child = a if rule < 0 else np.int64(grammar[5][rule])
        return i, j, child, BELOW if right else NONE
    if k < 0:
        return i, j, a, NONE
    r = ways[3][rule]
    if right:
        return k + 1, j, np.int64(ways[1][r]), ABOVE
    return i, k, np.int64(ways[0][r]), ABOVE


@inner
def add_candidate(problem, tables, i, j, a, level, last, position, child):
    """Puts derivation `last` with another child at this position into the heap."""
    grammar, ways, rules, unary, words, start, chart = problem
    nodes = tables.nodes
    n, s = chart[6].shape[0], grammar[6].shape[0]
    rule, k = rule_and_split(level, nodes.edges[last], words[2].shape[0], n)
    node = new_node(tables, nodes.edges[last], 0.0)
    write_follower(nodes, node, last, position, child)
    if level == ABOVE:
        score = nodes.weights[child]
        if rule >= 0:
            score = unary[row_over(unary, words, start, n, i, j), rule] + score
    else:
        r = ways[3][rule]
        left, right = child_at(nodes, node, ZERO), child_at(nodes, node, ONE)
        if left > 0:
            left_score = nodes.weights[left]
        else:
            left_score = chart[0][left_base(i, n, s) + ways[0][r] * (n - i) + k - i]
        if right > 0:
            right_score = nodes.weights[right]
        else:
            right_score = chart[1][right_base(j, s) + ways[1][r] * (j + 1) + k + 1]
        score = rules[row_over(rules, words, start, n, i, j), r] + (left_score + right_score)
    nodes.weights[node] = score
    item = tables.items[item_number(i, j, a, level, s)]
    item[HEAP] = meld(nodes, np.int64(item[HEAP]), node)


@inner
def push(stack, depth, i, j, a, level, more):
    """Writes a span, its symbol, the level and one more number onto a stack: its new depth."""
    stack[depth, 0], stack[depth, 1], stack[depth, 2] = i, j, a
    stack[depth, 3], stack[depth, 4] = level, more
    return depth + 1


@inner
def find_next(problem, tables, stack, limit, kept, edges):
    """Finds the derivation after the last known one of the item in stack[0]: the tables.

    A candidate that follows has the next derivation of one child, at the last changed position or
    right of it. Each item is asked at most once for each tree, so that `limit`, the number of trees
    that are still wanted, bounds the candidates that can be of use.
    """
    s = problem[0][6].shape[0]
    depth = np.int64(1)
    while depth > 0:
        tables = with_room_for(tables, limit + 5)
        nodes = tables.nodes
        i, j, a, level, step = stack[depth - 1]
        item = tables.items[item_number(i, j, a, level, s)]
        first_node(problem, tables, i, j, a, level)
        if item[OPENED] == 0:
            open_item(problem, tables, i, j, a, level, limit, kept, edges)
        last = np.int64(item[LAST])
        changed_right = nodes.links[last, CHILD] > 0 and nodes.links[last, POSITION] == ONE
        while step < 2:
            position = 1 - step
            p, q, c, child_level = child_of(
                problem, nodes.edges[last], i, j, a, level, position == 1
            )
            if child_level != NONE and (position == 1 or not changed_right):
                child = child_at(nodes, last, position)
                if child == 0:
                    child = first_node(problem, tables, p, q, c, child_level)
                follower = np.int64(nodes.links[child, NEXT])
                if follower == 0:
                    stack[depth - 1, 4] = step
                    depth = push(stack, depth, p, q, c, child_level, ZERO)
                    break
                if follower > 0:
                    add_candidate(problem, tables, i, j, a, level, last, position, follower)
            step += 1
        if step == 2:
            take_next(item, nodes)
            depth -= 1
    return tables


@inner
def write_tree(problem, tables, stack, node, order, output):
    """Writes a derivation of the item in stack[0] into output [<=2n-1 5]: (tables, its size).

    The last number of a row of the stack is the node, 0 for the item's best.
    """
    ways, num_entries, n = problem[1], problem[4][2].shape[0], problem[6][6].shape[0]
    count, depth = np.int64(0), np.int64(1)
    stack[0, 4] = node
    while depth > 0:
        depth -= 1
        tables = with_room_for(tables, FEW)
        nodes = tables.nodes
        i, j, a, level, node = stack[depth]
        if node == 0:
            node = first_node(problem, tables, i, j, a, level)
        rule, split = rule_and_split(level, nodes.edges[node], num_entries, n)
        if level == ABOVE:
            output[count, 0], output[count, 1], output[count, 2] = i, j + 1, a
            output[count, 3] = rule
        else:
            output[count, 4] = rule if split < 0 else order[ways[3][rule]]
            count += 1
        for position in (ONE, ZERO):
            p, q, c, child_level = child_of(
                problem, nodes.edges[node], i, j, a, level, position == ONE
            )
            if child_level != NONE:
                child = child_at(nodes, node, position)
                depth = push(stack, depth, p, q, c, child_level, child)
    return tables, count


@compiled
def kbest(
    grammar, ways, rules, unary, words, start, n, root, unary_symbols, order, items, k, most_edges
):  # fmt: skip
    """(scores [m], offsets [m+1], nodes [offsets[-1] 5]) of the m <= k best trees of a sentence."""
    chart = inside(grammar, rules, unary, words, start, n, unary_symbols, True)
    problem = grammar, ways, rules, unary, words, start, chart
    tables = Tables(items, empty_nodes(8 * n), np.ones(1, np.int64))
    stack = np.zeros((2 * n + 4, 5), np.int64)
    room = min(k, most_edges)
    kept, edges = np.empty(room), np.empty(room, np.int64)
    found_scores, offsets = np.empty(4), np.zeros(5, np.int64)
    output = np.empty((8 * n, 5), np.int64)
    count, node = 0, np.int64(0)
    if chart[0][root * n + n - 1] > -np.inf:
        tables = with_room_for(tables, FEW)
        node = first_node(problem, tables, ZERO, n - 1, root, ABOVE)
    while node > 0 and count < k:
        if count == found_scores.shape[0]:
            room_then = 2 * count + 2
            found_scores = longer_vector(found_scores, room_then)
            offsets = longer_vector(offsets, room_then + 1)
        if offsets[count] + 2 * n > output.shape[0]:
            output = longer_rows(output, 2 * output.shape[0])
        found_scores[count] = tables.nodes.weights[node]
        push(stack, ZERO, ZERO, n - 1, root, ABOVE, ZERO)
        own = output[offsets[count] :]
        tables, size = write_tree(problem, tables, stack, node, order, own)
        offsets[count + 1] = offsets[count] + size
        count += 1
        if count < k:
            push(stack, ZERO, ZERO, n - 1, root, ABOVE, ZERO)
            tables = find_next(problem, tables, stack, min(k - count, room), kept, edges)
            node = np.int64(tables.nodes.links[node, NEXT])
    return found_scores[:count], offsets[: count + 1], output[: offsets[count]]
