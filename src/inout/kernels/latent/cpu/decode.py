"""The tree with the largest sum of gains, over the edges of a block graph, and random trees."""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.draws import GAMMA, add_up_logs, draw, mix, next_uniform, substream


@compiled
def best_edges(graph, item_gains, edge_gains, ties, best, second, choices):
    """Fills best [v], the largest sum below each item, and choices [v], its (group, edge).

    Among equally good ones that with the largest sum of ties [v] is taken, which goes to second
    [v]; with no entries in ties, the first.
    """
    for g in range(graph.heads.shape[0]):
        head = graph.heads[g]
        for e in range(graph.ends[g], graph.ends[g + 1]):
            left, right = graph.lefts[e], graph.rights[e]
            value = best[left] + best[right] + item_gains[head]
            if edge_gains.shape[0]:
                value += edge_gains[e]
            if not value >= best[head] or value == -np.inf:
                continue
            other = 0.0
            if ties.shape[0]:
                other = second[left] + second[right] + ties[head]
            if value > best[head] or other > second[head]:
                best[head], second[head] = value, other
                choices[head, 0], choices[head, 1] = g, e


@compiled
def walk(graph, choices, root, items, groups):
    """Writes the items of a tree in preorder and their groups, -1 for leaves: how many."""
    lefts, rights = graph.lefts, graph.rights
    stack = np.empty(items.shape[0] + 1, np.int64)
    stack[0], depth, count = root, 1, 0
    while depth > 0:
        depth -= 1
        item = stack[depth]
        items[count], groups[count] = item, choices[item, 0]
        count += 1
        e = choices[item, 1]
        if e >= 0:
            stack[depth], stack[depth + 1] = rights[e], lefts[e]
            depth += 2
    return count


@inner
def weigh_edges(grammar, graph, first_groups, starts, logs, item, value, sums):
    """Writes the running totals of the shares of an item's edges: how many there are.

    A share is the probability of the edge given the item with its latent value.
    """
    rules, sizes, offsets, parameters = grammar
    total, count = 0.0, 0
    top = logs[starts[item] + value]
    for g in range(first_groups[item], first_groups[item + 1]):
        rule = graph.rules[g]
        left_size, right_size = sizes[rules[rule, 1]], sizes[rules[rule, 2]]
        block = parameters[offsets[rule] + value * left_size * right_size :]
        for e in range(graph.ends[g], graph.ends[g + 1]):
            ones, others = logs[starts[graph.lefts[e]] :], logs[starts[graph.rights[e]] :]
            for p in range(left_size):
                above = ones[p] - top
                for q in range(right_size):
                    total += math.exp(block[p * right_size + q] + above + others[q])
            sums[count] = total
            count += 1
    return count


@inner
def draw_values(grammar, graph, starts, logs, value, group, edge, uniform, sums):
    """The latent values of both children of an edge."""
    rules, sizes, offsets, parameters = grammar
    rule = graph.rules[group]
    ones, others = logs[starts[graph.lefts[edge]] :], logs[starts[graph.rights[edge]] :]
    left_size, right_size = sizes[rules[rule, 1]], sizes[rules[rule, 2]]
    block = parameters[offsets[rule] + value * left_size * right_size :]
    inner = left_size * right_size
    for y in range(inner):
        sums[y] = block[y] + ones[y // right_size] + others[y % right_size]
    add_up_logs(sums, 0, inner)
    found = draw(sums, 0, inner, uniform)
    return found // right_size, found % right_size


@compiled
def sample(grammar, graph, first_groups, starts, logs, roots, root_sums, rooms, seed, found):
    """Fills found [n 2w-1] with the items of trees, each in preorder.

    grammar: `LogBlocks`, logs: those of the inside vectors. roots
    [z 2]: (item, value), with the running totals of their shares. Sample x reads a stream of its
    own, a function of (seed, x) alone. The totals of what is met are kept for later samples, as
    long as there is room; rooms: the most edges of an item, and when to forget what was kept.
    """
    ends, lefts, rights = graph.ends, graph.lefts, graph.rights
    largest = grammar.sizes.max()
    most, most_kept = rooms
    kept = np.full(logs.shape[0], -1, np.int64)
    sums, used = np.empty(most), 0
    inner_sums = np.empty(largest * largest)
    stack = np.empty((found.shape[1] + 1, 2), np.int64)
    key = mix(seed + GAMMA)
    for x in range(found.shape[0]):
        random = substream(key, x)
        random, uniform = next_uniform(random)
        stack[0] = roots[draw(root_sums, 0, root_sums.shape[0], uniform)]
        depth, count = 1, 0
        while depth > 0:
            depth -= 1
            item, value = stack[depth]
            found[x, count] = item
            count += 1
            first, last = first_groups[item], first_groups[item + 1]
            if first == last:
                continue
            begin, width = kept[starts[item] + value], ends[last] - ends[first]
            if begin < 0:
                if used + most > sums.shape[0]:
                    if sums.shape[0] > most_kept:
                        used = 0
                        kept[:] = -1
                    else:
                        longer = np.empty(2 * sums.shape[0] + most)
                        longer[:used] = sums[:used]
                        sums = longer
                begin = used
                weigh_edges(grammar, graph, first_groups, starts, logs, item, value, sums[begin:])
                kept[starts[item] + value], used = begin, begin + width
            random, uniform = next_uniform(random)
            edge = ends[first] + draw(sums, begin, begin + width, uniform) - begin
            group = first
            while ends[group + 1] <= edge:
                group += 1
            random, uniform = next_uniform(random)
            left, right = draw_values(
                grammar, graph, starts, logs, value, group, edge, uniform, inner_sums
            )
            stack[depth, 0], stack[depth, 1] = rights[edge], right
            stack[depth + 1, 0], stack[depth + 1, 1] = lefts[edge], left
            depth += 2
