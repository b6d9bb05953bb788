"""Best trees and samples: the way down from the goal, and the check of given heads."""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.dependencies.cpu.chart import (
    BEST,
    REAL,
    fill,
    inside,
    new_chart,
    scores_of,
    weigh,
    weigh_siblings,
)
from inout.kernels.math.cpu.draws import add_up, add_up_logs, draw, next_uniform, stream

RIGHT, LEFT, GAP, ARC = 0, 1, 2, 3


@inner
def push(stack, depth, item, a, b):
    """Puts an item on the stack if there is anything below it; the new depth."""
    if a == b:
        return depth
    stack[depth, 0], stack[depth, 1], stack[depth, 2] = item, a, b
    return depth + 1


@inner
def terms_of(scores, chart, kind, item, i, j, terms):
    """Fills terms with those of the sum of an item; returns their number.

    Those of arc(h, d) with siblings are the one without any, and then the siblings outwards from
    min(h, d).
    """
    count, times = j - i, kind == REAL
    if item == ARC:
        h, d = i, j
        half = chart.left[d, h + 1] if h < d else chart.right[d, h - 1]
        terms[0] = chart.weight[h, d] * half if times else chart.weight[h, d] + half
        low, high = min(h, d), max(h, d)
        if h == 0 and scores.single_root:
            return 1
        weigh_siblings(scores, chart, kind, h, d)
        for k in range(low + 1, high):
            x, y, z = chart.row[k], chart.arc[h, k], chart.gap[d, k]
            terms[k - low] = x * y * z if times else x + y + z
        return high - low
    if item == GAP and i == 0 and scores.single_root:
        count = 1
    for k in range(count):
        if item == GAP:
            x, y = chart.right[i, i + k], chart.left[j, i + 1 + k]
        elif item == RIGHT:
            x, y = chart.arc[i, i + 1 + k], chart.right[j, i + 1 + k]
        else:
            x, y = chart.left[i, i + k], chart.arc[j, i + k]
        terms[k] = x * y if times else x + y
    return count


@inner
def expand(scores, item, i, j, k, stack, depth):
    """Pushes the items of term k of an item; the new depth."""
    if item == GAP:
        depth = push(stack, depth, RIGHT, i, i + k)
        return push(stack, depth, LEFT, i + 1 + k, j)
    if item == RIGHT:
        depth = push(stack, depth, ARC, i, i + 1 + k)
        return push(stack, depth, RIGHT, i + 1 + k, j)
    if item == LEFT:
        depth = push(stack, depth, LEFT, i, i + k)
        return push(stack, depth, ARC, j, i + k)
    h, d = i, j
    if scores.siblings.shape[0] == 0:
        return push(stack, depth, GAP, min(h, d), max(h, d))
    if k == 0:
        return push(stack, depth, LEFT, h + 1, d) if h < d else push(stack, depth, RIGHT, d, h - 1)
    middle = min(h, d) + k
    depth = push(stack, depth, ARC, h, middle)
    return push(stack, depth, GAP, min(d, middle), max(d, middle))


@inner
def choose(terms, count, kind, state):
    """(the place of the best term, or of a random one; the next state of the random stream)."""
    if kind == BEST:
        place = 0
        for k in range(1, count):
            if terms[k] > terms[place]:
                place = k
        return place, state
    if kind == REAL:
        add_up(terms, 0, count)
    else:
        add_up_logs(terms, 0, count)
    state, uniform = next_uniform(state)
    return draw(terms, 0, count, uniform), state


@inner
def descend(scores, chart, kind, state, stack, terms, heads):
    """Fills heads [n] with the best tree or, unless numbers are of that kind, a random one."""
    second = scores.siblings.shape[0] > 0
    depth = push(stack, 0, RIGHT, 0, scores.length)
    while depth > 0:
        depth -= 1
        item, i, j = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        place = 0
        if item == ARC:
            heads[j - 1] = i
        if item != ARC or second:
            count = terms_of(scores, chart, kind, item, i, j, terms)
            place, state = choose(terms, count, kind, state)
        depth = expand(scores, item, i, j, place, stack, depth)


@compiled
def best(scores, siblings, lengths, single_root, lo, hi, heads):
    """Fills heads [b n] with the best tree; -1 in the padding, and if there is none.

    Ties go to the first term of a sum.
    """
    n = scores.shape[2]
    chart, terms, stack = new_chart(n), np.empty(n + 1), np.empty((2 * n + 2, 3), np.int64)
    for b in range(lo, hi):
        own = scores_of(scores, siblings, lengths, single_root, b)
        heads[b] = -1
        if not weigh(own, chart, BEST):
            continue
        fill(own, chart, BEST)
        if chart.right[0, own.length] > -np.inf:
            descend(own, chart, BEST, np.uint64(0), stack, terms, heads[b])


@compiled
def sample(scores, siblings, lengths, single_root, lo, hi, seed, heads):
    """Fills heads [b m n] with independent trees; -1 in the padding, and if there is none.

    Sample i of element e has a random stream of its own, a function of (seed, e m + i) alone.
    """
    n, count = scores.shape[2], heads.shape[1]
    chart, terms, stack = new_chart(n), np.empty(n + 1), np.empty((2 * n + 2, 3), np.int64)
    for b in range(lo, hi):
        own = scores_of(scores, siblings, lengths, single_root, b)
        heads[b] = -1
        log_z, kind = inside(own, chart)
        if log_z == -np.inf:
            continue
        for m in range(count):
            state = stream(seed, b * count + m)
            descend(own, chart, kind, state, stack, terms, heads[b, m])


# What may be wrong with given heads, as bits.
NO_TREE, SEVERAL_ROOTS, CROSSING = 1, 2, 4


@compiled
def faults(heads, lengths, found):
    """Fills found [m] with what is wrong with the heads [m n] of each element."""
    reached = np.empty(heads.shape[1] + 1, np.int64)
    for m in range(heads.shape[0]):
        own, length = heads[m], lengths[m]
        reached[: length + 1] = 0
        roots, found[m] = 0, 0
        for d in range(1, length + 1):
            roots += own[d - 1] == 0
            # From here up to the root, to what an earlier word has reached, or in a circle.
            word = d
            while 0 < word <= length and reached[word] == 0:
                reached[word] = d
                word = own[word - 1]
            if not 0 <= word <= length or (word > 0 and reached[word] == d):
                found[m] = NO_TREE
        if roots > 1:
            found[m] |= SEVERAL_ROOTS
        for d in range(1, length + 1):
            low, high = min(d, own[d - 1]), max(d, own[d - 1])
            for k in range(low + 1, min(high, length + 1)):
                if own[k - 1] < low or own[k - 1] > high:
                    found[m] |= CROSSING
