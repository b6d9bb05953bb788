"""Trees drawn from the top down, each with the probability that it has given its sentence.

An item is a symbol over a span, above or below the unary rules. It draws its unary rule, or none;
or its entry or rule, and then the split. What it draws from is added up when it is first met and
kept for later samples, as long as there is room.

problem: (grammar, ways, rules, unary, words, first position, chart), as in `viterbi.py`,
the chart being one of sums. memory: (index [items 1], the number of the item's distribution, 0 for
none; bounds [distributions+1 2], where they lie; sums, the running totals; edges, what is drawn,
numbered as in `kbest.py`; used [2], how many distributions and numbers there are).
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.draws import add_up_logs, draw, next_uniform, stream, substream
from inout.kernels.math.cpu.heap import longer_vector
from inout.kernels.sparse.cpu.charts import summed_chart
from inout.kernels.sparse.cpu.kbest import ABOVE, BELOW, item_number
from inout.kernels.sparse.cpu.logspace import combine
from inout.kernels.sparse.cpu.scaled import left_base, right_base
from inout.kernels.sparse.cpu.viterbi import NONE, entry_ranges, row_over, value_below

# The most numbers that distributions may keep, 16 bytes each.
MOST_KEPT = 1 << 22


@inner
def unary_logs(problem, i, j, a, place, sums, edges):
    """Writes the log-weights of an item above and its edges from `place` on: where they end."""
    grammar, ways, rules, unary, words, start, chart = problem
    unary_head, unary_child, places = grammar[4], grammar[5], grammar[6]
    sums[place], edges[place] = value_below(chart, places, i, j, a), NONE
    place += 1
    if places[a] >= 0:
        row = row_over(unary, words, start, chart[6].shape[0], i, j)
        for u in range(unary_head.shape[0]):
            if unary_head[u] == a:
                below = value_below(chart, places, i, j, unary_child[u])
                sums[place], edges[place] = unary[row, u] + below, u
                place += 1
    return place


@inner
def splits_of(chart, i, j, b, c):
    """(first, last split, where they are in lefts and in rights) of two symbols over i..j."""
    lefts, rights, left_ends, right_starts = chart[:4]
    n, s = chart[6].shape[0], left_ends.shape[1]
    lo = max(max(left_ends[i, b, 0], right_starts[j, c, 0] - 1), i)
    hi = min(min(left_ends[i, b, 1], right_starts[j, c, 1] - 1), j - 1)
    left = left_base(i, n, s) + b * (n - i) - i + lo
    return lo, hi, left, right_base(j, s) + c * (j + 1) + 1 + lo


@inner
def binary_logs(problem, i, j, a, place, sums, edges):
    """As `unary_logs`, for an item below: its entries, then its rules with all their splits."""
    grammar, ways, rules, unary, words, start, chart = problem
    rule_left, rule_right, head_offsets, head_rules = ways
    symbols, values, arc_symbols = words[1], words[2], words[5]
    n = chart[6].shape[0]
    first, end, first_arc, end_arc = entry_ranges(words, start, n, i, j)
    for e in range(first, end):
        if symbols[e] == a:
            sums[place], edges[place] = values[e], e
            place += 1
    for x in range(first_arc, end_arc):
        if arc_symbols[x] == a:
            e = symbols.shape[0] + x
            sums[place], edges[place] = values[e], e
            place += 1
    row = row_over(rules, words, start, n, i, j)
    for x in range(head_offsets[a], head_offsets[a + 1]):
        r = head_rules[x]
        lo, hi, left, right = splits_of(chart, i, j, rule_left[r], rule_right[r])
        if lo <= hi and rules[row, r] > -np.inf:
            value = combine(chart[0], left, chart[1], right, hi - lo + 1, False)
            sums[place], edges[place] = rules[row, r] + value, values.shape[0] + x
            place += 1
    return place


@inner
def draw_edge(problem, memory, most_edges, i, j, a, level, uniform):
    """(memory, the edge that an item draws)."""
    index, bounds, sums, edges, used = memory
    item = item_number(i, j, a, level, problem[0][6].shape[0])
    slot = np.int64(index[item, 0])
    if slot == 0:
        first = used[1]
        if first + most_edges > sums.shape[0]:
            size = 2 * sums.shape[0]
            sums, edges = longer_vector(sums, size), longer_vector(edges, size)
        if level == ABOVE:
            end = unary_logs(problem, i, j, a, first, sums, edges)
        else:
            end = binary_logs(problem, i, j, a, first, sums, edges)
        add_up_logs(sums, first, end)
        if end > MOST_KEPT:
            return (index, bounds, sums, edges, used), edges[draw(sums, first, end, uniform)]
        slot = used[0]
        if 2 * slot + 2 > bounds.shape[0]:
            bounds = longer_vector(bounds, 2 * bounds.shape[0])
        bounds[2 * slot], bounds[2 * slot + 1] = first, end
        index[item, 0], used[0], used[1] = slot, slot + 1, end
    place = draw(sums, bounds[2 * slot], bounds[2 * slot + 1], uniform)
    return (index, bounds, sums, edges, used), edges[place]


@inner
def draw_split(chart, i, j, b, c, uniform):
    """The last word of the left child, given the symbols of both."""
    lefts, rights = chart[0], chart[1]
    lo, hi, left, right = splits_of(chart, i, j, b, c)
    target = combine(lefts, left, rights, right, hi - lo + 1, False)
    rest, found = uniform, lo
    for t in range(hi - lo + 1):
        share = math.exp(lefts[left + t] + rights[right + t] - target)
        if share > 0:
            found = lo + t
            if rest < share:
                break
            rest -= share
    return found


@inner
def sample_tree(problem, memory, most_edges, root, order, random, stack, output):
    """Writes a tree into output [<=2n-1 5], as in `viterbi`: (memory, its size, its log-weight)."""
    grammar, ways, rules, unary, words, start, chart = problem
    rule_left, rule_right, head_offsets, head_rules = ways
    n, num_entries = chart[6].shape[0], words[2].shape[0]
    count, depth, score = np.int64(0), np.int64(1), 0.0
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, n - 1, root
    while depth > 0:
        depth -= 1
        i, j, a = stack[depth]
        output[count, 0], output[count, 1], output[count, 2] = i, j + 1, a
        random, uniform = next_uniform(random)
        memory, u = draw_edge(problem, memory, most_edges, i, j, a, ABOVE, uniform)
        output[count, 3] = u
        if u >= 0:
            score += unary[row_over(unary, words, start, n, i, j), u]
            a = np.int64(grammar[5][u])
        random, uniform = next_uniform(random)
        memory, edge = draw_edge(problem, memory, most_edges, i, j, a, BELOW, uniform)
        if edge < num_entries:
            output[count, 4] = edge
            score += words[2][edge]
        else:
            r = head_rules[edge - num_entries]
            output[count, 4] = order[r]
            score += rules[row_over(rules, words, start, n, i, j), r]
            random, uniform = next_uniform(random)
            k = draw_split(chart, i, j, rule_left[r], rule_right[r], uniform)
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = k + 1, j, rule_right[r]
            stack[depth + 1, 0], stack[depth + 1, 1] = i, k
            stack[depth + 1, 2] = rule_left[r]
            depth += 2
        count += 1
    return memory, count, score


@compiled
def sample(
    scaled, logs, ways, start, n, root, unary_symbols, order, index, most_edges, seed, sentence,
    scores, offsets, nodes,
):  # fmt: skip
    """Fills scores [m], offsets [m+1], nodes [m(2n-1) 5] with trees: how many, 0 without a tree.

    Sample x reads a stream of its own, a function of (seed, sentence, x) alone.
    """
    grammar, rules, unary, words = logs
    chart = summed_chart(scaled, logs, start, n, root, unary_symbols)
    if chart[0][root * n + n - 1] == -np.inf:
        return 0
    problem = grammar, ways, rules, unary, words, start, chart
    room = most_edges + 1000
    used = np.ones(2, np.int64)
    memory = index, np.zeros(64, np.int64), np.empty(room), np.empty(room, np.int64), used
    stack = np.empty((n + 1, 3), np.int64)
    key = stream(seed, sentence)
    for x in range(scores.shape[0]):
        random = substream(key, x)
        own = nodes[offsets[x] :]
        memory, size, scores[x] = sample_tree(
            problem, memory, most_edges, root, order, random, stack, own
        )
        offsets[x + 1] = offsets[x] + size
    return scores.shape[0]
