"""Trees drawn from the top down, each with the probability that it has given its sentence.

An item is a symbol over a span, above or below the unary rules. It draws its unary rule, or none;
or its entry or rule, and then the split. What it draws from is added up when it is first met and
kept for later samples, as long as there is room.

The chart is one of sums, in logs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.limits import SPARSE_MOST_KEPT
from inout.kernels.math.cpu.draws import add_up_logs, draw, next_uniform, stream, substream
from inout.kernels.math.cpu.heap import longer_vector
from inout.kernels.math.cpu.stack import push_children
from inout.kernels.sparse.cpu import viterbi
from inout.kernels.sparse.cpu.arithmetic import log_product
from inout.kernels.sparse.cpu.chart import NONE, splits_of, value_above, value_below
from inout.kernels.sparse.cpu.kbest import ABOVE, BELOW, item_number
from inout.kernels.sparse.cpu.logspace import summed_chart


class Memory(NamedTuple):
    """The distributions of items that have been met."""

    slots: NDArray[np.int32]  # [items 1], the number of the item's distribution, 0 for none
    bounds: NDArray[np.int64]  # [2 distributions], where they lie
    sums: NDArray[np.float64]  # running totals
    edges: NDArray[np.int64]  # what is drawn, numbered as in `kbest.py` but without splits
    used: NDArray[np.int64]  # [2], how many distributions and numbers there are


@inner
def unary_logs(search, i, j, a, place, sums, edges):
    """Writes the log-weights of an item above and its edges from `place` on: where they end."""
    grammar, chart = search.problem.grammar, search.chart
    places = grammar.unary_place
    sums[place], edges[place] = value_below(chart, places, i, j, a), NONE
    place += 1
    if places[a] >= 0:
        unary = search.problem.weights.unary[viterbi.unary_row(search, i, j)]
        for u in range(unary.shape[0]):
            if grammar.unary_head[u] == a:
                below = value_below(chart, places, i, j, grammar.unary_child[u])
                sums[place], edges[place] = unary[u] + below, u
                place += 1
    return place


@inner
def binary_logs(search, i, j, a, place, sums, edges):
    """As `unary_logs`, for an item below: its entries, then its rules with all their splits."""
    words, ways, chart = search.problem.words, search.ways, search.chart
    entries = viterbi.entries_over(search, i, j)
    rules = search.problem.weights.binary[viterbi.rules_row(search, i, j)]
    for x in range(viterbi.num_entries(entries)):
        e, symbol = viterbi.entry_at(words, entries, x)
        if symbol == a:
            sums[place], edges[place] = words.values[e], e
            place += 1
    for x in range(ways.head_offsets[a], ways.head_offsets[a + 1]):
        r = ways.head_rules[x]
        lo, hi, left, right = splits_of(chart, i, j, ways.rule_left[r], ways.rule_right[r])
        if lo <= hi and rules[r] > -np.inf:
            value = log_product(chart.lefts, left, chart.rights, right, hi - lo + 1)
            sums[place], edges[place] = rules[r] + value, words.values.shape[0] + x
            place += 1
    return place


@inner
def draw_edge(search, memory, most_edges, i, j, a, level, uniform):
    """(memory, the edge that an item draws)."""
    slots, bounds, sums, edges, used = memory
    item = item_number(i, j, a, level, search.chart.left_ends.shape[1])
    slot = np.int64(slots[item, 0])
    if slot == 0:
        first = used[1]
        if first + most_edges > sums.shape[0]:
            size = 2 * sums.shape[0]
            sums, edges = longer_vector(sums, size), longer_vector(edges, size)
        if level == ABOVE:
            end = unary_logs(search, i, j, a, first, sums, edges)
        else:
            end = binary_logs(search, i, j, a, first, sums, edges)
        add_up_logs(sums, first, end)
        if end > SPARSE_MOST_KEPT:
            memory = Memory(slots, bounds, sums, edges, used)
            return memory, edges[draw(sums, first, end, uniform)]
        slot = used[0]
        if 2 * slot + 2 > bounds.shape[0]:
            bounds = longer_vector(bounds, 2 * bounds.shape[0])
        bounds[2 * slot], bounds[2 * slot + 1] = first, end
        slots[item, 0], used[0], used[1] = slot, slot + 1, end
    place = draw(sums, bounds[2 * slot], bounds[2 * slot + 1], uniform)
    return Memory(slots, bounds, sums, edges, used), edges[place]


@inner
def draw_split(chart, i, j, b, c, uniform):
    """The last word of the left child, given the symbols of both."""
    lo, hi, left, right = splits_of(chart, i, j, b, c)
    target = log_product(chart.lefts, left, chart.rights, right, hi - lo + 1)
    rest, found = uniform, lo
    for t in range(hi - lo + 1):
        share = math.exp(chart.lefts[left + t] + chart.rights[right + t] - target)
        if share > 0:
            found = lo + t
            if rest < share:
                break
            rest -= share
    return found


@inner
def sample_tree(search, memory, most_edges, random, stack, output):
    """Writes a tree into output [<=2n-1 5], as in `viterbi`: (memory, its size, its log-weight)."""
    grammar, words = search.problem.grammar, search.problem.words
    ways, chart = search.ways, search.chart
    size = words.values.shape[0]
    count, depth, score = np.int64(0), np.int64(1), 0.0
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, chart.left_ends.shape[0] - 1, grammar.root
    while depth > 0:
        depth -= 1
        i, j, a = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        output[count, 0], output[count, 1], output[count, 2] = i, j + 1, a
        random, uniform = next_uniform(random)
        memory, u = draw_edge(search, memory, most_edges, i, j, a, ABOVE, uniform)
        output[count, 3] = u
        if u >= 0:
            score += search.problem.weights.unary[viterbi.unary_row(search, i, j), u]
            a = np.int64(grammar.unary_child[u])
        random, uniform = next_uniform(random)
        memory, edge = draw_edge(search, memory, most_edges, i, j, a, BELOW, uniform)
        if edge < size:
            output[count, 4] = edge
            score += words.values[edge]
        else:
            r = ways.head_rules[edge - size]
            output[count, 4] = ways.order[r]
            score += search.problem.weights.binary[viterbi.rules_row(search, i, j), r]
            random, uniform = next_uniform(random)
            left, right = ways.rule_left[r], ways.rule_right[r]
            k = draw_split(chart, i, j, left, right, uniform)
            depth = push_children(stack, depth, i, k, j, left, right)
        count += 1
    return memory, count, score


@compiled
def sample(
    scaled, logs, ways, start, n, slots, most_edges, seed, sentence, scores, offsets, nodes
):  # fmt: skip
    """Fills scores [m], offsets [m+1], nodes [m(2n-1) 5] with trees: how many, 0 without a tree.

    Sample x reads a stream of its own, a function of (seed, sentence, x) alone.
    """
    chart = summed_chart(scaled, logs, start, n)
    if value_above(chart, 0, n - 1, logs.grammar.root) == -np.inf:
        return 0
    search = viterbi.Search(logs, ways, start, chart)
    room = most_edges + 1000
    used = np.ones(2, np.int64)
    memory = Memory(slots, np.zeros(64, np.int64), np.empty(room), np.empty(room, np.int64), used)
    stack = np.empty((n + 1, 3), np.int64)
    key = stream(seed, sentence)
    for x in range(scores.shape[0]):
        random = substream(key, x)
        own = nodes[offsets[x] :]
        memory, size, scores[x] = sample_tree(search, memory, most_edges, random, stack, own)
        offsets[x + 1] = offsets[x] + size
    return scores.shape[0]
