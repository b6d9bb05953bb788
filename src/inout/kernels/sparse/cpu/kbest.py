"""The k best trees of sparse grammars, lazily from a chart of best values.

Huang & Chiang, "Better k-best parsing" (IWPT 2005), algorithm 3. An item is a symbol over a span,
above or below the unary rules. A derivation of one above is made of a unary rule, or none, and one
below; a derivation of one below is an entry, or a rule, a split and two from above. They come by
weight, then in the order of `edge_number`, then by the ranks of the children: for any k the same.

problem: (grammar, ways, rules, unary, words, first position, chart), as in `viterbi.py`.
tables: items [their number, 4], calloc'ed by the caller and mostly never touched; nodes and scores
of derivations, of which node 0 is none; used [1], their number.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled
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

# Columns of a node: the unary rule or NONE; the entry, or the place in head_rules of the rule, and
# the split, NONE for entries; nodes of the children, 0 for the best where it has none yet (the only
# child of one above is RIGHT) and their ranks; the item's next derivation, 0 while not known, NONE
# after the last; links of the heap of candidates.
RULE, SPLIT, LEFT, RIGHT, LEFT_RANK, RIGHT_RANK, NEXT, HEAP_CHILD, HEAP_SIBLING = range(9)
COLUMNS = 9
# Columns of an item: its best and its last known derivation, its heap of candidates, and whether
# all its edges have been looked at.
FIRST, LAST, HEAP, OPENED = range(4)
# Typed: for plain numbers as arguments numba would compile versions of their own.
ABOVE, BELOW = np.int64(0), np.int64(1)
ZERO, FEW = np.int64(0), np.int64(4)


@compiled
def item_number(i, j, a, level, s):
    """Where an item is in the table of items."""
    return (((j * (j + 1)) // 2 + i) * s + a) * 2 + level


@compiled
def precedes(nodes, scores, x, y):
    """Whether derivation x of an item comes before y."""
    if scores[x] != scores[y]:
        return scores[x] > scores[y]
    # Entries have no split and come first.
    if (nodes[x, SPLIT] < 0) != (nodes[y, SPLIT] < 0):
        return nodes[x, SPLIT] < 0
    for column in (RULE, SPLIT, LEFT_RANK, RIGHT_RANK):
        if nodes[x, column] != nodes[y, column]:
            return nodes[x, column] < nodes[y, column]
    return False


@compiled
def meld(nodes, scores, x, y):
    """The top of the pairing heap made of the heaps with tops x and y; 0 is the empty heap."""
    if x == 0 or y == 0:
        return x + y
    if precedes(nodes, scores, y, x):
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
def worse(score, edge, other_score, other_edge):
    """Whether an edge comes after another."""
    return score < other_score or (score == other_score and edge > other_edge)


@compiled
def keep_best(kept, edges, count, limit, score, edge):
    """Puts an edge among the best ones, a heap with the worst on top: how many there are now."""
    if count < limit:
        hole = count
        while hole > 0:
            above = (hole - 1) // 2
            if not worse(score, edge, kept[above], edges[above]):
                break
            kept[hole], edges[hole] = kept[above], edges[above]
            hole = above
        count += 1
    else:
        hole = 0
        while 2 * hole + 1 < limit:
            below = 2 * hole + 1
            if below + 1 < limit and worse(
                kept[below + 1], edges[below + 1], kept[below], edges[below]
            ):
                below += 1
            if not worse(kept[below], edges[below], score, edge):
                break
            kept[hole], edges[hole] = kept[below], edges[below]
            hole = below
    kept[hole], edges[hole] = score, edge
    return count


@compiled
def edge_number(level, rule, split, num_entries, n):
    """A number for an edge of an item, in the order in which ties are broken."""
    if level == ABOVE:
        return rule + 1
    return rule if split < 0 else num_entries + rule * n + split


@compiled
def with_room(tables, more):
    """The tables, copied to longer ones where there is no room for so many more nodes."""
    items, nodes, scores, used = tables
    count = used[0]
    if count + more <= nodes.shape[0]:
        return tables
    longer = np.empty((2 * (count + more), COLUMNS), np.int32)
    longer_scores = np.empty(2 * (count + more))
    for node in range(count):
        longer_scores[node] = scores[node]
        for column in range(COLUMNS):
            longer[node, column] = nodes[node, column]
    return items, longer, longer_scores, used


@compiled
def new_node(tables, rule, split, score):
    """A derivation with the best children, in no list and no heap yet."""
    items, nodes, scores, used = tables
    node = used[0]
    used[0] += 1
    for column in range(COLUMNS):
        nodes[node, column] = 0
    nodes[node, RULE], nodes[node, SPLIT], scores[node] = rule, split, score
    return node


@compiled
def first_node(problem, tables, i, j, a, level):
    """The best derivation of an item that has one; made where there is no node yet."""
    grammar, ways, rules, unary, words, start, chart = problem
    items, n, s = tables[0], chart[6].shape[0], grammar[6].shape[0]
    item = item_number(i, j, a, level, s)
    if items[item, FIRST] == 0:
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
        node = new_node(tables, rule, split, value)
        items[item, FIRST], items[item, LAST] = node, node
    return np.int64(items[item, FIRST])


@compiled
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


@compiled
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


@compiled
def open_item(problem, tables, i, j, a, level, limit, kept, edges):
    """Makes candidates of all edges of an item but its very best, or of the `limit` best."""
    words, n, s = problem[4], problem[6][6].shape[0], problem[0][6].shape[0]
    items, nodes, scores, used = tables
    num_entries = words[2].shape[0]
    item = item_number(i, j, a, level, s)
    first = np.int64(items[item, FIRST])
    rule, split = np.int64(nodes[first, RULE]), np.int64(nodes[first, SPLIT])
    best = edge_number(level, rule, split, num_entries, n)
    if level == ABOVE:
        count = unary_edges(problem, i, j, a, best, limit, kept, edges)
    else:
        count = binary_edges(problem, i, j, a, best, limit, kept, edges)
    top = np.int64(0)
    for x in range(count):
        rule, split = edges[x], np.int64(NONE)
        if level == ABOVE:
            rule -= 1
        elif rule >= num_entries:
            rule, split = (rule - num_entries) // n, (rule - num_entries) % n
        top = meld(nodes, scores, top, new_node(tables, rule, split, kept[x]))
    items[item, HEAP], items[item, OPENED] = top, 1


@compiled
def child_of(problem, node, nodes, i, j, a, level, right):
    """(span, symbol, level) of the right or left child of a derivation; level NONE without."""
    grammar, ways = problem[:2]
    rule, k = np.int64(nodes[node, RULE]), np.int64(nodes[node, SPLIT])
    if level == ABOVE:
        child = a if rule < 0 else np.int64(grammar[5][rule])
        return i, j, child, BELOW if right else NONE
    if k < 0:
        return i, j, a, NONE
    r = ways[3][rule]
    if right:
        return k + 1, j, np.int64(ways[1][r]), ABOVE
    return i, k, np.int64(ways[0][r]), ABOVE


@compiled
def add_candidate(problem, tables, i, j, a, level, last, column, child):
    """Derivation `last` with the next derivation of one child, in this column, into the heap."""
    grammar, ways, rules, unary, words, start, chart = problem
    items, nodes, scores, used = tables
    n, s = chart[6].shape[0], grammar[6].shape[0]
    rule, k = np.int64(nodes[last, RULE]), np.int64(nodes[last, SPLIT])
    node = new_node(tables, rule, k, 0.0)
    for x in (LEFT, RIGHT, LEFT_RANK, RIGHT_RANK):
        nodes[node, x] = nodes[last, x]
    nodes[node, column] = child
    nodes[node, column + 2] += 1
    left, right = np.int64(nodes[node, LEFT]), np.int64(nodes[node, RIGHT])
    if level == ABOVE:
        score = scores[right]
        if rule >= 0:
            score = unary[row_over(unary, words, start, n, i, j), rule] + score
    else:
        r = ways[3][rule]
        if left > 0:
            left_score = scores[left]
        else:
            left_score = chart[0][left_base(i, n, s) + ways[0][r] * (n - i) + k - i]
        if right > 0:
            right_score = scores[right]
        else:
            right_score = chart[1][right_base(j, s) + ways[1][r] * (j + 1) + k + 1]
        score = rules[row_over(rules, words, start, n, i, j), r] + (left_score + right_score)
    scores[node] = score
    item = item_number(i, j, a, level, s)
    items[item, HEAP] = meld(nodes, scores, np.int64(items[item, HEAP]), node)


@compiled
def push(stack, depth, i, j, a, level, more):
    """Writes a span, its symbol, the level and one more number onto a stack: its new depth."""
    stack[depth, 0], stack[depth, 1], stack[depth, 2] = i, j, a
    stack[depth, 3], stack[depth, 4] = level, more
    return depth + 1


@compiled
def find_next(problem, tables, stack, limit, kept, edges):
    """Finds the derivation after the last known one of the item in stack[0]: the tables.

    Candidates that follow the last one, with ranks (x, y) of its children, are (x, y + 1), and
    (x + 1, 0) if y = 0: none is met twice. Each item is asked at most once for each tree, so that
    `limit`, the number of trees that are still wanted, bounds the candidates that can be of use.
    """
    s = problem[0][6].shape[0]
    depth = np.int64(1)
    while depth > 0:
        tables = with_room(tables, limit + 5)
        items, nodes, scores, used = tables
        i, j, a, level, step = stack[depth - 1]
        item = item_number(i, j, a, level, s)
        first_node(problem, tables, i, j, a, level)
        if items[item, OPENED] == 0:
            open_item(problem, tables, i, j, a, level, limit, kept, edges)
        last = np.int64(items[item, LAST])
        while step < 2:
            column = RIGHT if step == 0 else LEFT
            p, q, c, child_level = child_of(problem, last, nodes, i, j, a, level, step == 0)
            if child_level != NONE and (step == 0 or nodes[last, RIGHT_RANK] == 0):
                if nodes[last, column] == 0:
                    nodes[last, column] = first_node(problem, tables, p, q, c, child_level)
                follower = np.int64(nodes[nodes[last, column], NEXT])
                if follower == 0:
                    stack[depth - 1, 4] = step
                    depth = push(stack, depth, p, q, c, child_level, ZERO)
                    break
                if follower > 0:
                    add_candidate(problem, tables, i, j, a, level, last, column, follower)
            step += 1
        if step == 2:
            top = np.int64(items[item, HEAP])
            nodes[last, NEXT] = top if top > 0 else NONE
            if top > 0:
                items[item, HEAP] = without_top(nodes, scores, top)
                items[item, LAST] = top
            depth -= 1
    return tables


@compiled
def write_tree(problem, tables, stack, node, order, output):
    """Writes a derivation of the item in stack[0] into output [<=2n-1 5]: (tables, its size).

    The last number of a row of the stack is the node, 0 for the item's best.
    """
    ways = problem[1]
    count, depth = np.int64(0), np.int64(1)
    stack[0, 4] = node
    while depth > 0:
        depth -= 1
        tables = with_room(tables, FEW)
        nodes = tables[1]
        i, j, a, level, node = stack[depth]
        if node == 0:
            node = first_node(problem, tables, i, j, a, level)
        if level == ABOVE:
            output[count, 0], output[count, 1], output[count, 2] = i, j + 1, a
            output[count, 3] = nodes[node, RULE]
        else:
            rule = np.int64(nodes[node, RULE])
            output[count, 4] = rule if nodes[node, SPLIT] < 0 else order[ways[3][rule]]
            count += 1
        for right in (True, False):
            p, q, c, child_level = child_of(problem, node, nodes, i, j, a, level, right)
            if child_level != NONE:
                child = np.int64(nodes[node, RIGHT if right else LEFT])
                depth = push(stack, depth, p, q, c, child_level, child)
    return tables, count


@compiled
def kbest(
    grammar, ways, rules, unary, words, start, n, root, unary_symbols, order, items, k, most_edges
):  # fmt: skip
    """(scores [m], offsets [m+1], nodes [offsets[-1] 5]) of the m <= k best trees of a sentence."""
    chart = inside(grammar, rules, unary, words, start, n, unary_symbols, True)
    problem = grammar, ways, rules, unary, words, start, chart
    tables = items, np.zeros((8 * n, COLUMNS), np.int32), np.zeros(8 * n), np.ones(1, np.int64)
    stack = np.zeros((2 * n + 4, 5), np.int64)
    room = min(k, most_edges)
    kept, edges = np.empty(room), np.empty(room, np.int64)
    found_scores, offsets = np.empty(4), np.zeros(5, np.int64)
    output = np.empty((8 * n, 5), np.int64)
    count, node = 0, np.int64(0)
    if chart[0][root * n + n - 1] > -np.inf:
        tables = with_room(tables, FEW)
        node = first_node(problem, tables, ZERO, n - 1, root, ABOVE)
    while node > 0 and count < k:
        if count == found_scores.shape[0]:
            found_scores, offsets = longer_row(found_scores), longer_row(offsets)
        if offsets[count] + 2 * n > output.shape[0]:
            output = longer_rows(output)
        found_scores[count] = tables[2][node]
        push(stack, ZERO, ZERO, n - 1, root, ABOVE, ZERO)
        own = output[offsets[count] :]
        tables, size = write_tree(problem, tables, stack, node, order, own)
        offsets[count + 1] = offsets[count] + size
        count += 1
        if count < k:
            push(stack, ZERO, ZERO, n - 1, root, ABOVE, ZERO)
            tables = find_next(problem, tables, stack, min(k - count, room), kept, edges)
            node = np.int64(tables[1][node, NEXT])
    return found_scores[:count], offsets[: count + 1], output[: offsets[count]]


@compiled
def longer_row(row):
    """A copy with twice the room, plus one."""
    copy = np.zeros(2 * row.shape[0] + 1, row.dtype)
    for x in range(row.shape[0]):
        copy[x] = row[x]
    return copy


@compiled
def longer_rows(rows):
    """A copy with twice as many rows."""
    copy = np.zeros((2 * rows.shape[0], rows.shape[1]), rows.dtype)
    for x in range(rows.shape[0]):
        for y in range(rows.shape[1]):
            copy[x, y] = rows[x, y]
    return copy
