"""Inside, outside and gradient in real arithmetic, each entry with an exponent of its own.

Entry x of a vector is values[x] · 2^exponents[x], with a size from 1/2 to 1, or both are zero.
Nothing underflows, whatever the entries of one vector are beside each other; some
sixty times slower than `blocks.py`. Only items that are `wanted` are looked at.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner


@inner
def add(values, exponents, place, value, exponent):
    """Adds value · 2^exponent to one entry."""
    if value == 0.0:
        return
    total, own = values[place], exponents[place]
    if total == 0.0:
        total, own = value, exponent
    elif exponent > own:
        total, own = value + math.ldexp(total, max(own - exponent, -1080)), exponent
    else:
        total += math.ldexp(value, max(exponent - own, -1080))
    total, more = math.frexp(total)
    values[place], exponents[place] = total, own + more if total != 0.0 else 0


@inner
def copy(values, exponents, place, parameters, first, size):
    """Entries from parameters."""
    for x in range(size):
        value, exponent = math.frexp(parameters[first + x])
        values[place + x], exponents[place + x] = value, exponent


@inner
def sum_of_edges(graph, starts, values, exponents, group, left_size, right_size, outer, powers):
    """Σ of the outer products [m_b m_c] of a group's edges."""
    ends, lefts, rights = graph.ends, graph.lefts, graph.rights
    for x in range(left_size * right_size):
        outer[x], powers[x] = 0.0, 0
    for e in range(ends[group], ends[group + 1]):
        first, second = starts[lefts[e]], starts[rights[e]]
        for p in range(left_size):
            for q in range(right_size):
                add(
                    outer, powers, p * right_size + q, values[first + p] * values[second + q],
                    exponents[first + p] + exponents[second + q],
                )  # fmt: skip


@compiled
def find_wanted(graph, wanted):
    """Marks all that is below marked items."""
    heads, ends, lefts, rights = graph.heads, graph.ends, graph.lefts, graph.rights
    for g in range(heads.shape[0] - 1, -1, -1):
        if wanted[heads[g]]:
            for e in range(ends[g], ends[g + 1]):
                wanted[lefts[e]], wanted[rights[e]] = True, True


@compiled
def inside(grammar, graph, parameters, leaves, leaf_offsets, wanted, starts, values, exponents):
    """Fills values and exponents, zero so far."""
    rules, sizes, offsets = grammar.rules, grammar.sizes, grammar.offsets
    heads, group_rules = graph.heads, graph.rules
    largest = sizes.max()
    outer, powers = np.empty(largest * largest), np.empty(largest * largest, np.int64)
    for x in range(leaves.shape[0]):
        item = leaves[x]
        size = starts[item + 1] - starts[item]
        if wanted[item]:
            copy(values, exponents, starts[item], parameters, leaf_offsets[x], size)
    for g in range(heads.shape[0]):
        head, rule = heads[g], group_rules[g]
        if not wanted[head]:
            continue
        left_size, right_size = sizes[rules[rule, 1]], sizes[rules[rule, 2]]
        sum_of_edges(graph, starts, values, exponents, g, left_size, right_size, outer, powers)
        x = offsets[rule]
        for h in range(sizes[rules[rule, 0]]):
            for y in range(left_size * right_size):
                value, exponent = math.frexp(parameters[x])
                add(values, exponents, starts[head] + h, value * outer[y], exponent + powers[y])
                x += 1


@compiled
def outside(
    grammar, graph, parameters, wanted, starts, values, exponents, outs, out_exponents, shares
):
    """Completes outs, which hold the seeds of the roots; shares [e]: mass of each edge."""
    rules, sizes, offsets = grammar.rules, grammar.sizes, grammar.offsets
    heads, group_rules, ends, lefts, rights = graph
    largest = sizes.max()
    weight, powers = np.empty(largest * largest), np.empty(largest * largest, np.int64)
    total, total_exponent = np.empty(1), np.empty(1, np.int64)
    for g in range(heads.shape[0] - 1, -1, -1):
        head, rule = heads[g], group_rules[g]
        if not wanted[head]:
            continue
        left_size, right_size = sizes[rules[rule, 1]], sizes[rules[rule, 2]]
        inner = left_size * right_size
        for y in range(inner):
            weight[y], powers[y] = 0.0, 0
        x = offsets[rule]
        for h in range(starts[head], starts[head + 1]):
            for y in range(inner):
                value, exponent = math.frexp(parameters[x])
                add(weight, powers, y, outs[h] * value, out_exponents[h] + exponent)
                x += 1
        for e in range(ends[g], ends[g + 1]):
            first, second = starts[lefts[e]], starts[rights[e]]
            total[0], total_exponent[0] = 0.0, 0
            for p in range(left_size):
                for q in range(right_size):
                    left, right, y = first + p, second + q, p * right_size + q
                    to_left, left_exponent = weight[y] * values[right], powers[y] + exponents[right]
                    add(outs, out_exponents, left, to_left, left_exponent)
                    add(
                        outs, out_exponents, right, weight[y] * values[left],
                        powers[y] + exponents[left],
                    )  # fmt: skip
                    add(
                        total, total_exponent, 0, to_left * values[left],
                        left_exponent + exponents[left],
                    )  # fmt: skip
            shares[e] = ldexp(total[0], total_exponent[0])


@compiled
def gradient(grammar, graph, wanted, starts, values, exponents, outs, out_exponents, found):
    """Adds outside ⊗ inside ⊗ inside of all edges to found [p]."""
    rules, sizes, offsets = grammar.rules, grammar.sizes, grammar.offsets
    heads, group_rules = graph.heads, graph.rules
    largest = sizes.max()
    outer, powers = np.empty(largest * largest), np.empty(largest * largest, np.int64)
    for g in range(heads.shape[0]):
        head, rule = heads[g], group_rules[g]
        if not wanted[head]:
            continue
        left_size, right_size = sizes[rules[rule, 1]], sizes[rules[rule, 2]]
        sum_of_edges(graph, starts, values, exponents, g, left_size, right_size, outer, powers)
        x = offsets[rule]
        for h in range(starts[head], starts[head + 1]):
            for y in range(left_size * right_size):
                found[x] += ldexp(outs[h] * outer[y], out_exponents[h] + powers[y])
                x += 1


@compiled
def add_up(places, rows, values, exponents, factors, factor_exponents, totals, total_exponents):
    """Adds the products of value places[x] and factor x to the total of rows[x]."""
    for x in range(places.shape[0]):
        y = places[x]
        add(
            totals, total_exponents, rows[x], values[y] * factors[x],
            exponents[y] + factor_exponents[x],
        )  # fmt: skip


@inner
def ldexp(value, exponent):
    """value · 2^exponent for any exponent."""
    return math.ldexp(value, min(max(exponent, -3000), 3000))
