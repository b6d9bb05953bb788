"""The k best trees of sparse grammars, lazily from a chart of best values.

Huang & Chiang, "Better k-best parsing" (IWPT 2005), algorithm 3. An item is a symbol over a span,
above or below the unary rules. A derivation of one above is made of a unary rule, or none, and one
below (at position 1); a derivation of one below is an entry, or a rule, a split and two from above.
They come in the order of `math/cpu/heap.py`, edges by `edge_number`. The chart is one of maxima.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu import heap
from inout.kernels.sparse.cpu import viterbi
from inout.kernels.sparse.cpu.chart import NONE, splits_of, value_above, value_below

# Typed: with plain numbers as arguments numba would compile another version.
ABOVE, BELOW = np.int64(0), np.int64(1)
ZERO, ONE = np.int64(0), np.int64(1)


class Tables(NamedTuple):
    """What is known of items and derivations."""

    items: NDArray[np.int32]  # [their number, 4], calloc'ed by the caller, mostly never touched
    nodes: heap.Nodes
    used: NDArray[np.int64]  # [1], how many nodes there are


class Scratch(NamedTuple):
    """Room for the items whose next derivation is looked for, and for the best edges of one."""

    stack: NDArray[np.int64]  # [2n+4 5]
    kept: NDArray[np.float64]  # [edges]
    edges: NDArray[np.int64]  # [edges]


class Item(NamedTuple):
    """A symbol over a span, above or below the unary rules; its level is NONE if there is none."""

    i: np.int64
    j: np.int64
    a: np.int64
    level: np.int64


@inner
def item_number(i, j, a, level, s):
    """Where an item is in the table of items."""
    return (((j * (j + 1)) // 2 + i) * s + a) * 2 + level


@inner(forceinline=True)
def place_of(search, item):
    """The row of an item in the table of items."""
    return item_number(item.i, item.j, item.a, item.level, search.chart.left_ends.shape[1])


@inner(forceinline=True)
def edge_number(search, level, rule, split):
    """A number for an edge of an item, in the order in which ties are broken."""
    if level == ABOVE:
        return rule + 1
    n, size = search.chart.left_ends.shape[0], search.problem.words.values.shape[0]
    return rule if split < 0 else size + rule * n + split


@inner(forceinline=True)
def rule_and_split(search, level, edge):
    """The rule or entry and the split of an edge; NONE for no unary rule, and for no split."""
    n, size = search.chart.left_ends.shape[0], search.problem.words.values.shape[0]
    if level == ABOVE:
        return edge - 1, NONE
    if edge < size:
        return edge, NONE
    return (edge - size) // n, (edge - size) % n


@inner(forceinline=True)
def is_full(tables, more):
    """Whether there is no room for this many more nodes."""
    return tables.used[0] + more > tables.nodes.edges.shape[0]


@inner
def new_node(tables, edge, weight):
    """A derivation with the best children, in no list and no heap yet."""
    node = tables.used[0]
    tables.used[0] += 1
    heap.write_node(tables.nodes, node, edge, weight)
    return node


@inner
def make_first(search, tables, item):
    """Makes the node of the best derivation of an item that has one."""
    i, j, a, level = item
    split = NONE
    if level == ABOVE:
        value = value_above(search.chart, i, j, a)
        rule = viterbi.best_unary(search, i, j, a, value)
    else:
        value = value_below(search.chart, search.problem.grammar.unary_place, i, j, a)
        rule = viterbi.best_entry(search, i, j, a, value)
        if rule < 0:
            rule, split = viterbi.best_split(search, i, j, a, value)
    node = new_node(tables, edge_number(search, level, rule, split), value)
    place = place_of(search, item)
    tables.items[place, heap.FIRST], tables.items[place, heap.LAST] = node, node


@inner(forceinline=True)
def first_node(search, tables, item):
    """The best derivation of an item that has one; made where there is no node yet."""
    place = place_of(search, item)
    if tables.items[place, heap.FIRST] == 0:
        make_first(search, tables, item)
    return np.int64(tables.items[place, heap.FIRST])


@inner
def unary_edges(search, item, best, limit, kept, edges):
    """Fills kept and edges with the best edges of an item above, but for `best`: their number."""
    grammar, chart, i, j, a = search.problem.grammar, search.chart, item.i, item.j, item.a
    places, row = grammar.unary_place, viterbi.unary_row(search, i, j)
    unary = search.problem.weights.unary[row]
    count = np.int64(0)
    score = value_below(chart, places, i, j, a)
    if best != 0 and score > -np.inf:
        count = heap.keep_best(kept, edges, count, limit, score, np.int64(0))
    if places[a] < 0:
        return count
    for u in range(unary.shape[0]):
        if grammar.unary_head[u] == a and u + 1 != best:
            score = unary[u] + value_below(chart, places, i, j, grammar.unary_child[u])
            least = kept[0] if count == limit else -np.inf
            if score > least:
                count = heap.keep_best(kept, edges, count, limit, score, np.int64(u + 1))
    return count


@inner
def binary_edges(search, item, best, limit, kept, edges):
    """As `unary_edges`, for an item below."""
    words, ways, chart = search.problem.words, search.ways, search.chart
    i, j, a = item.i, item.j, item.a
    count, entries = np.int64(0), viterbi.entries_over(search, i, j)
    rules = search.problem.weights.binary[viterbi.rules_row(search, i, j)]
    for x in range(viterbi.num_entries(entries)):
        e, symbol = viterbi.entry_at(words, entries, x)
        least = kept[0] if count == limit else -np.inf
        if symbol == a and e != best and words.values[e] > least:
            count = heap.keep_best(kept, edges, count, limit, words.values[e], np.int64(e))
    for x in range(ways.head_offsets[a], ways.head_offsets[a + 1]):
        r = ways.head_rules[x]
        lo, hi, left, right = splits_of(chart, i, j, ways.rule_left[r], ways.rule_right[r])
        for t in range(hi - lo + 1):
            score = rules[r] + (chart.lefts[left + t] + chart.rights[right + t])
            least = kept[0] if count == limit else -np.inf
            if score > least:
                edge = edge_number(search, BELOW, x, lo + t)
                if edge != best:
                    count = heap.keep_best(kept, edges, count, limit, score, np.int64(edge))
    return count


@inner
def open_item(search, tables, item, limit, scratch):
    """Makes candidates of all edges of an item but its very best, or of the `limit` best."""
    place, nodes, kept, edges = place_of(search, item), tables.nodes, scratch.kept, scratch.edges
    best = nodes.edges[tables.items[place, heap.FIRST]]
    if item.level == ABOVE:
        count = unary_edges(search, item, best, limit, kept, edges)
    else:
        count = binary_edges(search, item, best, limit, kept, edges)
    top = np.int64(0)
    for x in range(count):
        top = heap.meld(nodes, top, new_node(tables, edges[x], kept[x]))
    tables.items[place, heap.HEAP], tables.items[place, heap.OPENED] = top, 1


@inner(forceinline=True)
def child_of(search, edge, item, right):
    """The right or left child of an edge of an item."""
    ways = search.ways
    i, j, a, level = item
    rule, k = rule_and_split(search, level, edge)
    if level == ABOVE:
        child = a if rule < 0 else np.int64(search.problem.grammar.unary_child[rule])
        return Item(i, j, child, BELOW if right else NONE)
    if k < 0:
        return Item(i, j, a, NONE)
    r = ways.head_rules[rule]
    if right:
        return Item(k + 1, j, np.int64(ways.rule_right[r]), ABOVE)
    return Item(i, k, np.int64(ways.rule_left[r]), ABOVE)


@inner(forceinline=True)
def add_candidate(search, tables, item, last, position, child):
    """Puts derivation `last` with another child at this position into the heap."""
    ways, chart, nodes = search.ways, search.chart, tables.nodes
    i, j, level = item.i, item.j, item.level
    rule, k = rule_and_split(search, level, nodes.edges[last])
    node = new_node(tables, nodes.edges[last], 0.0)
    heap.write_follower(nodes, node, last, position, child)
    if level == ABOVE:
        score = nodes.weights[child]
        if rule >= 0:
            score = search.problem.weights.unary[viterbi.unary_row(search, i, j), rule] + score
    else:
        r = ways.head_rules[rule]
        left, right = heap.child_at(nodes, node, ZERO), heap.child_at(nodes, node, ONE)
        if left > 0:
            left_score = nodes.weights[left]
        else:
            left_score = value_above(chart, i, k, ways.rule_left[r])
        if right > 0:
            right_score = nodes.weights[right]
        else:
            right_score = value_above(chart, k + 1, j, ways.rule_right[r])
        weight = search.problem.weights.binary[viterbi.rules_row(search, i, j), r]
        score = weight + (left_score + right_score)
    nodes.weights[node] = score
    known = tables.items[place_of(search, item)]
    known[heap.HEAP] = heap.meld(nodes, np.int64(known[heap.HEAP]), node)


@inner
def push(stack, depth, item, more):
    """Writes an item and one more number onto a stack: its new depth."""
    stack[depth, 0], stack[depth, 1], stack[depth, 2] = item.i, item.j, item.a
    stack[depth, 3], stack[depth, 4] = item.level, more
    return depth + 1


@inner
def find_next(search, tables, depth, limit, scratch):
    """Finds the derivation after the last known one of the item in stack[0].

    Returns 0, or the depth of the stack where it needs more room to go on. A candidate that follows
    has the next derivation of one child, at the last changed position or right of it. Each item is
    asked at most once for each tree, so that `limit`, the number of trees that are still wanted,
    bounds the candidates that can be of use.
    """
    nodes, stack = tables.nodes, scratch.stack
    while depth > 0:
        if is_full(tables, limit + 5):
            return depth
        i, j, a, level, step = stack[depth - 1]
        item = Item(i, j, a, level)
        known = tables.items[place_of(search, item)]
        first_node(search, tables, item)
        if known[heap.OPENED] == 0:
            open_item(search, tables, item, limit, scratch)
        last = np.int64(known[heap.LAST])
        links = nodes.links[last]
        changed_right = links[heap.CHILD] > 0 and links[heap.POSITION] == ONE
        while step < 2:
            position = 1 - step
            below = child_of(search, nodes.edges[last], item, position == 1)
            if below.level != NONE and (position == 1 or not changed_right):
                child = heap.child_at(nodes, last, position)
                if child == 0:
                    child = first_node(search, tables, below)
                follower = np.int64(nodes.links[child, heap.NEXT])
                if follower == 0:
                    stack[depth - 1, 4] = step
                    depth = push(stack, depth, below, ZERO)
                    break
                if follower > 0:
                    add_candidate(search, tables, item, last, position, follower)
            step += 1
        if step == 2:
            heap.take_next(known, nodes)
            depth -= 1
    return depth


@inner
def write_tree(search, tables, stack, node, output):
    """Writes a derivation of the item in stack[0] into output [<=2n-1 5]: its size.

    The last number of a row of the stack is the node, 0 for the item's best. There must be room for
    a node for each of the 4n-2 items of a tree.
    """
    ways, nodes = search.ways, tables.nodes
    count, depth = np.int64(0), np.int64(1)
    stack[0, 4] = node
    while depth > 0:
        depth -= 1
        i, j, a, level, node = stack[depth]
        item = Item(i, j, a, level)
        if node == 0:
            node = first_node(search, tables, item)
        rule, split = rule_and_split(search, level, nodes.edges[node])
        if level == ABOVE:
            output[count, 0], output[count, 1], output[count, 2] = i, j + 1, a
            output[count, 3] = rule
        else:
            output[count, 4] = rule if split < 0 else ways.order[ways.head_rules[rule]]
            count += 1
        for position in (ONE, ZERO):
            below = child_of(search, nodes.edges[node], item, position == ONE)
            if below.level != NONE:
                depth = push(stack, depth, below, heap.child_at(nodes, node, position))
    return count


@inner
def root_of(search):
    """The item whose derivations are the trees."""
    n = search.chart.left_ends.shape[0]
    return Item(ZERO, np.int64(n - 1), np.int64(search.problem.grammar.root), ABOVE)


@compiled
def find_trees(search, k, tables, scratch, progress):
    """Goes on until the k best derivations of the root, or all, are found: whether there was room.

    progress [2]: how many are found, and the depth of the stack where the room was not enough. The
    nodes are a list from the root's FIRST by NEXT.
    """
    root, nodes = root_of(search), tables.nodes
    found, depth = progress
    if found == 0 and value_above(search.chart, root.i, root.j, root.a) > -np.inf:
        first_node(search, tables, root)
        found = 1
    while 0 < found < k:
        last = tables.items[place_of(search, root), heap.LAST]
        if depth == 0:
            depth = push(scratch.stack, ZERO, root, ZERO)
        limit = min(k - found, scratch.kept.shape[0])
        depth = find_next(search, tables, depth, limit, scratch)
        if depth > 0:
            progress[0], progress[1] = found, depth
            return False
        if nodes.links[last, heap.NEXT] == NONE:
            break
        found += 1
    progress[0] = found
    return True


@compiled
def write_trees(search, tables, stack, scores, offsets, output, count):
    """Writes the trees from number `count` on: how many are written, as far as there is room.

    Fills scores [m], offsets [m+1] and output [<=m(2n-1) 5].
    """
    root, n = root_of(search), search.chart.left_ends.shape[0]
    node = np.int64(tables.items[place_of(search, root), heap.FIRST])
    for x in range(scores.shape[0]):
        if x >= count:
            if is_full(tables, 4 * n):
                return x
            scores[x] = tables.nodes.weights[node]
            push(stack, ZERO, root, ZERO)
            size = write_tree(search, tables, stack, node, output[offsets[x] :])
            offsets[x + 1] = offsets[x] + size
        node = np.int64(tables.nodes.links[node, heap.NEXT])
    return scores.shape[0]
