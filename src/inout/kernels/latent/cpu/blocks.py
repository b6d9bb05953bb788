"""Inside, outside and gradient in real arithmetic, each item with an exponent of its own.

The vector of an item is values[starts[v]:starts[v+1]] · 2^exponents[v], with its largest entry
from 1/2 to 1 in size; what is zero throughout has the exponent NOTHING. Weights may be negative.

A group of edges costs one product with its block, m³, however many edges there are: the outer
products of their vectors are added up first, m² each.

Inner loops run over slices from 0: at an index that is a sum numba looks for negative ones first,
and the loop is not vectorised (four times as slow).
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner

NOTHING = -(1 << 28)
FLAGS = {"reassoc", "contract"}  # sums of products may be taken in any order


@inner(fastmath=FLAGS)
def normalise(values, start, end):
    """Brings the largest of values[start:end] to the range from 1/2 to 1: the exponent taken."""
    largest = 0.0
    vector = values[start:end]
    for x in range(end - start):
        largest = max(largest, abs(vector[x]))
    if largest == 0.0:
        return NOTHING
    exponent = math.frexp(largest)[1]
    if exponent < -1023:  # denormal, and a factor to change that would be out of range
        for x in range(end - start):
            vector[x] = math.ldexp(vector[x], -exponent)
        return exponent
    factor = math.ldexp(1.0, -exponent)
    for x in range(end - start):
        vector[x] *= factor
    return exponent


@inner(fastmath=FLAGS)
def add_scaled(target, first, size, exponent, source, source_first, source_exponent):
    """Adds source · 2^source_exponent to target · 2^exponent: the target's new exponent."""
    into, added = target[first : first + size], source[source_first : source_first + size]
    if exponent == NOTHING:
        for x in range(size):
            into[x] = added[x]
        return source_exponent
    if source_exponent <= exponent:
        factor = math.ldexp(1.0, max(source_exponent - exponent, -1080))
        for x in range(size):
            into[x] += factor * added[x]
        return exponent
    factor = math.ldexp(1.0, max(exponent - source_exponent, -1080))
    for x in range(size):
        into[x] = factor * into[x] + added[x]
    return source_exponent


@compiled
def find_block_exponents(offsets, group_rules, parameters, found):
    """Fills found [r], NOTHING so far, for the rules of groups: with m of the largest entry 2^m."""
    for g in range(group_rules.shape[0]):
        rule = group_rules[g]
        if found[rule] == NOTHING:
            block = parameters[offsets[rule] : offsets[rule + 1]]
            largest = 0.0
            for x in range(block.shape[0]):
                largest = max(largest, abs(block[x]))
            if largest > 0.0:
                found[rule] = math.frexp(largest)[1]


@inner
def scale_for(block_exponent):
    """The power of two to multiply with ahead of a block, for products that are in range.

    Below 2^-1022 a product loses digits, so what goes with a block of tiny numbers is made larger.
    """
    if block_exponent > 900:
        return -64
    if block_exponent < -100 and block_exponent != NOTHING:
        return min(-block_exponent, 960)
    return 0


@inner(fastmath=FLAGS)
def sum_of_edges(graph, starts, values, exponents, group, left_size, right_size, outer):
    """Σ of the outer products [m_b m_c] of a group's edges: their exponent."""
    ends, lefts, rights = graph.ends, graph.lefts, graph.rights
    total = NOTHING
    for e in range(ends[group], ends[group + 1]):
        left, right = lefts[e], rights[e]
        if exponents[left] == NOTHING or exponents[right] == NOTHING:
            continue
        exponent = exponents[left] + exponents[right]
        ones = values[starts[left] : starts[left] + left_size]
        others = values[starts[right] : starts[right] + right_size]
        if total == NOTHING:
            for p in range(left_size):
                row = outer[p * right_size : (p + 1) * right_size]
                for q in range(right_size):
                    row[q] = ones[p] * others[q]
            total = exponent
            continue
        factor = 1.0
        if exponent > total:
            shift = math.ldexp(1.0, max(total - exponent, -1080))
            for x in range(left_size * right_size):
                outer[x] *= shift
            total = exponent
        elif exponent < total:
            factor = math.ldexp(1.0, max(exponent - total, -1080))
        for p in range(left_size):
            scaled = factor * ones[p]
            row = outer[p * right_size : (p + 1) * right_size]
            for q in range(right_size):
                row[q] += scaled * others[q]
    return total


@inner(fastmath=FLAGS)
def dot(left, first, right, second, size):
    """Σ left[first + x] · right[second + x]."""
    ones, others = left[first : first + size], right[second : second + size]
    total = 0.0
    for x in range(size):
        total += ones[x] * others[x]
    return total


@compiled(fastmath=FLAGS)
def inside(grammar, graph, parameters, leaves, leaf_offsets, starts, values, exponents):
    """Fills values and exponents; grammar: `Blocks`, graph: `Edges`."""
    rules, sizes, offsets, block_exponents = grammar
    heads, group_rules = graph.heads, graph.rules
    largest = sizes.max()
    outer, part = np.empty(largest * largest), np.empty(largest)
    exponents[:] = NOTHING
    for x in range(leaves.shape[0]):
        item = leaves[x]
        size = starts[item + 1] - starts[item]
        own, given = values[starts[item] :], parameters[leaf_offsets[x] :]
        for y in range(size):
            own[y] = given[y]
        exponents[item] = normalise(values, starts[item], starts[item + 1])
    for g in range(heads.shape[0]):
        head, rule = heads[g], group_rules[g]
        size = sizes[rules[rule, 0]]
        left_size, right_size = sizes[rules[rule, 1]], sizes[rules[rule, 2]]
        exponent = sum_of_edges(graph, starts, values, exponents, g, left_size, right_size, outer)
        if exponent != NOTHING:
            inner = left_size * right_size
            scale = scale_for(block_exponents[rule])
            if scale != 0:
                factor = math.ldexp(1.0, scale)
                for x in range(inner):
                    outer[x] *= factor
            for h in range(size):
                part[h] = dot(parameters, offsets[rule] + h * inner, outer, 0, inner)
            # Normalised, as a sum that is small or zero must not count as large beside others.
            shift = normalise(part, 0, size)
            if shift != NOTHING:
                exponents[head] = add_scaled(
                    values, starts[head], size, exponents[head], part, 0, exponent - scale + shift
                )
        last = g + 1 == heads.shape[0] or heads[g + 1] != head
        if last and exponents[head] != NOTHING:
            shift = normalise(values, starts[head], starts[head + 1])
            exponents[head] = NOTHING if shift == NOTHING else exponents[head] + shift


@compiled(fastmath=FLAGS)
def outside(grammar, graph, parameters, starts, values, exponents, outs, out_exponents, shares):
    """Completes outs, which hold the seeds of the roots; shares [e]: mass of each edge, if wanted.

    With seeds over Z, inside · outside of an item is its expected number.
    """
    rules, sizes, offsets, block_exponents = grammar
    heads, group_rules, ends, lefts, rights = graph
    largest = sizes.max()
    weight, part = np.empty(largest * largest), np.empty(largest)
    for g in range(heads.shape[0] - 1, -1, -1):
        head, rule = heads[g], group_rules[g]
        if out_exponents[head] == NOTHING:
            continue
        if g + 1 == heads.shape[0] or heads[g + 1] != head:
            shift = normalise(outs, starts[head], starts[head + 1])
            out_exponents[head] = NOTHING if shift == NOTHING else out_exponents[head] + shift
            if shift == NOTHING:
                continue
        size = sizes[rules[rule, 0]]
        left_size, right_size = sizes[rules[rule, 1]], sizes[rules[rule, 2]]
        inner = left_size * right_size
        for x in range(inner):
            weight[x] = 0.0
        scale = scale_for(block_exponents[rule])
        factor = math.ldexp(1.0, scale)
        for h in range(size):
            out, begin = factor * outs[starts[head] + h], offsets[rule] + h * inner
            row = parameters[begin : begin + inner]
            for x in range(inner):
                weight[x] += out * row[x]
        shift = normalise(weight, 0, inner)
        if shift == NOTHING:
            continue
        above = out_exponents[head] - scale + shift
        # What is zero itself still has an outside vector: its derivative.
        for e in range(ends[g], ends[g + 1]):
            left, right = lefts[e], rights[e]
            first, second = starts[left], starts[right]
            if exponents[right] != NOTHING:
                for p in range(left_size):
                    part[p] = dot(weight, p * right_size, values, second, right_size)
                exponent = above + exponents[right]
                if shares.shape[0] and exponents[left] != NOTHING:
                    share = dot(part, 0, values, first, left_size)
                    shares[e] = ldexp(share, exponent + exponents[left])
                out_exponents[left] = add_scaled(
                    outs, first, left_size, out_exponents[left], part, 0, exponent
                )
            if exponents[left] == NOTHING:
                continue
            for q in range(right_size):
                part[q] = 0.0
            for p in range(left_size):
                value = values[first + p]
                line = weight[p * right_size : (p + 1) * right_size]
                for q in range(right_size):
                    part[q] += value * line[q]
            out_exponents[right] = add_scaled(
                outs, second, right_size, out_exponents[right], part, 0, above + exponents[left]
            )


@inner
def ldexp(value, exponent):
    """value · 2^exponent for any exponent."""
    return math.ldexp(value, min(max(exponent, -3000), 3000))


@compiled(fastmath=FLAGS)
def gradient(grammar, graph, order, starts, values, exponents, outs, out_exponents, found):
    """Adds outside ⊗ inside ⊗ inside of all edges of the groups in `order` to found [p]."""
    rules, sizes, offsets = grammar.rules, grammar.sizes, grammar.offsets
    heads, group_rules = graph.heads, graph.rules
    largest = sizes.max()
    outer = np.empty(largest * largest)
    for x in range(order.shape[0]):
        g = order[x]
        head, rule = heads[g], group_rules[g]
        if out_exponents[head] == NOTHING:
            continue
        size = sizes[rules[rule, 0]]
        left_size, right_size = sizes[rules[rule, 1]], sizes[rules[rule, 2]]
        inner = left_size * right_size
        exponent = sum_of_edges(graph, starts, values, exponents, g, left_size, right_size, outer)
        if exponent == NOTHING:
            continue
        exponent += out_exponents[head]
        for h in range(size):
            begin = offsets[rule] + h * inner
            row = found[begin : begin + inner]
            if exponent > 960:  # out of range as a factor, but perhaps not in the product
                for y in range(inner):
                    row[y] += ldexp(outs[starts[head] + h] * outer[y], exponent)
                continue
            out = ldexp(outs[starts[head] + h], exponent)
            for y in range(inner):
                row[y] += out * outer[y]


@compiled(fastmath=FLAGS)
def leaf_gradient(leaves, leaf_offsets, starts, outs, out_exponents, found):
    """Adds the outside vectors of the leaves to found [p]."""
    for x in range(leaves.shape[0]):
        item = leaves[x]
        if out_exponents[item] == NOTHING:
            continue
        for y in range(starts[item + 1] - starts[item]):
            found[leaf_offsets[x] + y] += ldexp(outs[starts[item] + y], out_exponents[item])


@compiled
def reach(grammar, graph, exponents, heights, spread, owners, worst):
    """Raises worst [owners] to the largest block · outside · left · right of edges, as exponents.

    The outside vectors have entries of up to 2^heights. With `spread`, heights [v] hold those of
    the roots only, and bounds for all others are found on the way; so are the owners [v].
    """
    rules, sizes, _, block_exponents = grammar
    heads, group_rules, ends, lefts, rights = graph
    for g in range(heads.shape[0] - 1, -1, -1):
        head, rule = heads[g], group_rules[g]
        if heights[head] <= NOTHING or block_exponents[rule] == NOTHING:
            continue
        size, owner = sizes[rules[rule, 0]], owners[head]
        above = heights[head] + block_exponents[rule]
        to_left = above + math.log2(size * sizes[rules[rule, 2]])
        to_right = above + math.log2(size * sizes[rules[rule, 1]])
        for e in range(ends[g], ends[g + 1]):
            left, right = lefts[e], rights[e]
            owners[left], owners[right] = owner, owner
            low, high = exponents[left], exponents[right]
            if low != NOTHING and high != NOTHING:
                worst[owner] = max(worst[owner], above + low + high)
            if spread and high != NOTHING:
                heights[left] = log_of_sum(heights[left], to_left + high)
            if spread and low != NOTHING:
                heights[right] = log_of_sum(heights[right], to_right + low)


@inner
def log_of_sum(first, second):
    """log₂(2^first + 2^second)."""
    if first < second:
        first, second = second, first
    return first if second < first - 60.0 else first + math.log2(1.0 + 2.0 ** (second - first))
