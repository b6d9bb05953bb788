"""Inside and outside passes of sparse grammars in scaled arithmetic, many spans at a time.

The rows of the kernel one folder up, over the splits of one span, are short in short sentences.
Here spans of the same width, of several sentences of the same length, go through the rules side
by side: they are the lanes of vector instructions. So nothing is left out for being 0 in a single
span, only what is 0 in all the lanes of a strip.

A block is a few sentences of n words. Its spans of width w + 1 are the lanes
`lane_base(w) + i * size + b`, i the start and b the sentence: those of all left, and of all right,
parts at the same split lie side by side as well. Scales, specks and what is too small are as in
the other kernel, whose arguments these are: without arcs, beam, weights of spans or posteriors.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from inout.kernels.exponential.cpu import FAST
from inout.kernels.parsing.cpu import NONE, SPECK, SURE, TINY, barred, power

# Lanes in a strip: the scratch of a strip should fit the cache next to the processor.
LANES = 16
# Lanes of the widest spans that a block should have, and at most how many numbers a chart.
WANTED, LARGEST = 16, 1 << 15


@njit(cache=True, nogil=True)
def lane_base(w, n, size):
    """The first lane of width w + 1."""
    return size * (w * n - (w * (w - 1)) // 2)


@njit(cache=True, nogil=True, fastmath=FAST)
def products(lefts, rights, b, c, first, last, result):
    """result [LANES] = the sum over d = first..last of lefts[b, d] rights[c, d]."""
    for t in range(LANES):
        result[t] = 0.0
    d = first
    while d + 3 <= last:
        for t in range(LANES):
            result[t] += (
                lefts[b, d, t] * rights[c, d, t]
                + lefts[b, d + 1, t] * rights[c, d + 1, t]
                + lefts[b, d + 2, t] * rights[c, d + 2, t]
                + lefts[b, d + 3, t] * rights[c, d + 3, t]
            )
        d += 4
    while d <= last:
        for t in range(LANES):
            result[t] += lefts[b, d, t] * rights[c, d, t]
        d += 1


@njit(cache=True, nogil=True)
def careful_products(lefts, rights, b, c, first, last, result):
    """As `products`, but above 0 wherever there is a term above 0."""
    for t in range(LANES):
        result[t] = 0.0
    for d in range(first, last + 1):
        for t in range(LANES):
            x, y = lefts[b, d, t], rights[c, d, t]
            result[t] += max(x * y, SPECK) if x > 0 and y > 0 else 0.0


@njit(cache=True, nogil=True, fastmath=FAST)
def add_rule(weight, values, totals, head):
    """totals[head] += weight * values, all [LANES]."""
    for t in range(LANES):
        totals[head, t] += weight * values[t]


@njit(cache=True, nogil=True)
def careful_rule(weight, values, totals, head):
    """As `add_rule`, but above 0 wherever values are."""
    for t in range(LANES):
        totals[head, t] += weight * values[t] + SPECK if values[t] > 0 else 0.0


@njit(cache=True, nogil=True)
def set_splits(chart, n, size, w, lane, count, known, factors):
    """factors [w LANES] of the splits of a strip, 0 where there is nothing: their smallest product.

    That is of values above 0, with the factors. If not `known`, the shifts of a strip are found;
    else they are given: the largest exponent of the splits.
    """
    values, below, exps, floors = chart
    shifts = known
    least = 1.0
    for d in range(w):
        left = lane_base(d, n, size) + lane
        right = lane_base(w - 1 - d, n, size) + lane + (d + 1) * size
        for t in range(LANES):
            factors[d, t] = 0.0
        for t in range(count):
            exponent = exps[left + t] + exps[right + t]
            if exponent > NONE // 2 and shifts[t] > NONE // 2:
                factors[d, t] = power(exponent - shifts[t])
                least = min(least, floors[left + t] * floors[right + t] * factors[d, t])
    return least


@njit(cache=True, nogil=True)
def find_shifts(exps, n, size, w, lane, count, shifts):
    """shifts [LANES] = the largest exponent of the splits; below NONE / 2 where there is none."""
    for t in range(LANES):
        shifts[t] = 2 * NONE
    for d in range(w):
        left = lane_base(d, n, size) + lane
        right = lane_base(w - 1 - d, n, size) + lane + (d + 1) * size
        for t in range(count):
            shifts[t] = max(shifts[t], exps[left + t] + exps[right + t])


@njit(cache=True, nogil=True)
def load(values, n, size, w, lane, factors, careful, lefts, rights, left_ends, right_ends):
    """Copies the parts of the spans of a strip, the left ones times factors; lanes too many also.

    left_ends and right_ends [s 2] become the first and the last split where a symbol is not 0.
    """
    s = values.shape[0]
    for a in range(s):
        left_ends[a, 0] = right_ends[a, 0] = w
        left_ends[a, 1] = right_ends[a, 1] = -1
        for d in range(w):
            left = lane_base(d, n, size) + lane
            right = lane_base(w - 1 - d, n, size) + lane + (d + 1) * size
            top_left = top_right = 0.0
            for t in range(LANES):
                x, y = values[a, left + t], values[a, right + t]
                top_left, top_right = max(top_left, x), max(top_right, y)
                lefts[a, d, t] = x * factors[d, t]
                rights[a, d, t] = y
            if top_left > 0:
                left_ends[a, 0], left_ends[a, 1] = min(left_ends[a, 0], d), d
            if top_right > 0:
                right_ends[a, 0], right_ends[a, 1] = min(right_ends[a, 0], d), d
            if careful:
                for t in range(LANES):
                    if values[a, left + t] > 0:
                        lefts[a, d, t] = max(lefts[a, d, t], SPECK)


@njit(cache=True, nogil=True)
def gather(grammar, rules, lefts, rights, left_ends, right_ends, careful, product, totals):
    """Adds to totals [s LANES] what all splits give, in the scale of the factors."""
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    for left in range(totals.shape[0]):
        if left_ends[left, 1] < 0:
            continue
        for q in range(pair_offsets[left], pair_offsets[left + 1]):
            right = pair_right[q]
            first = max(left_ends[left, 0], right_ends[right, 0])
            last = min(left_ends[left, 1], right_ends[right, 1])
            if first > last:
                continue
            if careful:
                careful_products(lefts, rights, left, right, first, last, product)
                for r in range(rule_offsets[q], rule_offsets[q + 1]):
                    if rules[r] > 0:
                        careful_rule(rules[r], product, totals, rule_head[r])
            else:
                products(lefts, rights, left, right, first, last, product)
                for r in range(rule_offsets[q], rule_offsets[q + 1]):
                    add_rule(rules[r], product, totals, rule_head[r])


@njit(cache=True, nogil=True)
def bar(words, starts, members, n, w, lane, count, values):
    """Makes the values [s LANES] of what the spans of a strip may not have 0."""
    first_cells, allowed = words[4], words[7]
    if allowed.shape[0] == 0:
        return
    size = members.shape[0]
    for t in range(count):
        i, b = (lane + t) // size, (lane + t) % size
        cell = first_cells[starts[members[b]]] + i * n + i + w
        whole = barred(allowed, cell)
        for a in range(values.shape[0]):
            if whole or (allowed.shape[1] > 1 and not allowed[cell, a]):
                values[a, t] = 0.0


@njit(cache=True, nogil=True)
def apply_unary(grammar, unary, keep, totals, after):
    """after = keep * totals + what the unary rules make of totals, all [s LANES]."""
    unary_head, unary_child = grammar[4], grammar[5]
    for a in range(totals.shape[0]):
        for t in range(LANES):
            after[a, t] = max(keep * totals[a, t], SPECK) if totals[a, t] > 0 else 0.0
    for u in range(unary_head.shape[0]):
        if unary[u] > 0:
            child, head, weight = unary_child[u], unary_head[u], unary[u]
            for t in range(LANES):
                value = totals[child, t]
                after[head, t] += weight * value + SPECK if value > 0 else 0.0


@njit(cache=True, nogil=True)
def settle(chart, places, lane, count, size, shifts, raised, totals, after, low):
    """Writes a strip's values into the chart, from this lane on; low [size] where too small.

    Those become `raised`, in the scale of their span.
    """
    values, below, exps, floors = chart
    s = totals.shape[0]
    for t in range(count):
        top = 0.0
        for a in range(s):
            top = max(top, after[a, t])
        exponent = math.frexp(top)[1] if top >= TINY else 0
        scale = math.ldexp(1.0, -exponent)
        floor, found, small = 1.0, False, False
        for a in range(s):
            value = after[a, t] * scale
            if after[a, t] > 0 and (value < TINY or after[a, t] < TINY):
                small, value = True, raised
            values[a, lane + t] = value
            if value > 0:
                floor, found = min(floor, value), True
        floors[lane + t] = floor
        exps[lane + t] = shifts[t] + exponent if found else NONE
        if small:
            low[(lane + t) % size] = True
        for a in range(s):
            if places[a] >= 0:
                below[places[a], lane + t] = totals[a, t] * scale
