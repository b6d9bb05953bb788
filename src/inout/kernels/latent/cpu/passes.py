"""Inside, outside and gradient over a block graph, for vectors of either kind (`arithmetic.py`).

A group of edges costs one product with its block, m³, however many edges there are: the outer
products of their vectors are added up first, m² each.
"""

from __future__ import annotations

import math

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.latent.arrays import Rule
from inout.kernels.latent.cpu import arithmetic
from inout.kernels.limits import LATENT_NOTHING as NOTHING


@inner
def rule_of(grammar, graph, group):
    """The rule of a group."""
    rule = graph.rules[group]
    sizes, symbols = grammar.sizes, grammar.rules
    return Rule(
        grammar.offsets[rule], grammar.exponents[rule], sizes[symbols[rule, 0]],
        sizes[symbols[rule, 1]], sizes[symbols[rule, 2]],
    )  # fmt: skip


@inner
def is_last(heads, group):
    """Whether a group is the last of its head."""
    return group + 1 == heads.shape[0] or heads[group + 1] != heads[group]


@inner
def add_edges(outer, vectors, graph, group, rule):
    """Sets outer [m_b m_c] to the sum of the outer products of a group's edges."""
    arithmetic.clear(outer, rule.left * rule.right)
    for e in range(graph.ends[group], graph.ends[group + 1]):
        arithmetic.add_outer(outer, vectors, graph.lefts[e], graph.rights[e], rule)


@compiled
def inside(grammar, graph, parameters, wanted, found):
    """Fills `found`, an `Inside`.

    wanted [v]: where there are entries, only the marked items and those below them are made.
    """
    values, seeds, totals = found.values, found.seeds, found.totals
    heads, ends, largest = graph.heads, graph.ends, grammar.sizes.max()
    outer = arithmetic.scratch(values, largest * largest)
    product = arithmetic.scratch(values, largest)
    if wanted.shape[0]:
        for g in range(heads.shape[0] - 1, -1, -1):
            if wanted[heads[g]]:
                for e in range(ends[g], ends[g + 1]):
                    wanted[graph.lefts[e]] = wanted[graph.rights[e]] = True
    for x in range(graph.leaves.shape[0]):
        arithmetic.put(values, graph.leaves[x], parameters, graph.leaf_offsets[x])
    for g in range(heads.shape[0]):
        if wanted.shape[0] and not wanted[heads[g]]:
            continue
        rule = rule_of(grammar, graph, g)
        add_edges(outer, values, graph, g, rule)
        arithmetic.apply_block(product, outer, parameters, rule)
        arithmetic.add(values, heads[g], product)
        if is_last(heads, g):
            arithmetic.settle(values, heads[g])
    for z in range(graph.roots.shape[0]):
        arithmetic.put(seeds, z, parameters, graph.root_offsets[z])
        arithmetic.multiply(product, seeds, z, values, graph.roots[z])
        arithmetic.add(totals, graph.owners[z], product)
    for x in range(totals.values.shape[0]):
        arithmetic.settle(totals, x)


@compiled
def outside(grammar, graph, parameters, ins, weights, found):
    """Fills `found`, an `Outside`, from an `Inside`, for weights [owners].

    Items and edges are only counted where there is room for them.
    """
    values, outs = ins.values, found.outs
    heads, ends, largest = graph.heads, graph.ends, grammar.sizes.max()
    weight = arithmetic.scratch(values, largest * largest)
    product = arithmetic.scratch(values, largest)
    share = arithmetic.scratch(values, 1)
    for z in range(graph.roots.shape[0]):
        owner = graph.owners[z]
        total, power = ins.totals.values[owner], ins.totals.exponents[owner]
        if total != 0.0 and weights[owner] != 0.0:
            factor = weights[owner] / total
            arithmetic.put_multiple(outs, graph.roots[z], ins.seeds, z, factor, -power)
    for g in range(heads.shape[0] - 1, -1, -1):
        if is_last(heads, g):
            arithmetic.settle(outs, heads[g])
        if arithmetic.is_zero(outs, heads[g]):
            continue
        rule = rule_of(grammar, graph, g)
        arithmetic.apply_transposed(weight, outs, heads[g], parameters, rule)
        # What is zero itself still has an outside vector: its derivative.
        for e in range(ends[g], ends[g + 1]):
            left, right = graph.lefts[e], graph.rights[e]
            arithmetic.apply_weight(product, weight, values, right, rule, False)
            arithmetic.add(outs, left, product)
            if found.edges.shape[0]:
                arithmetic.multiply(share, product, 0, values, left)
                found.edges[e] = arithmetic.ordinary(share)
            arithmetic.apply_weight(product, weight, values, left, rule, True)
            arithmetic.add(outs, right, product)
    for v in range(found.items.shape[0]):
        arithmetic.multiply(share, values, v, outs, v)
        found.items[v] = arithmetic.ordinary(share)


@compiled
def gradient(grammar, graph, order, values, outs, found):
    """Adds outside ⊗ inside ⊗ inside of all edges of the groups in `order` to found [p]."""
    largest = grammar.sizes.max()
    outer = arithmetic.scratch(values, largest * largest)
    for x in range(order.shape[0]):
        head = graph.heads[order[x]]
        if not arithmetic.is_zero(outs, head):
            rule = rule_of(grammar, graph, order[x])
            add_edges(outer, values, graph, order[x], rule)
            arithmetic.add_gradient(outs, head, outer, rule, found)


@compiled
def gradient_of_ends(graph, ins, weights, outs, found):
    """Adds the derivatives by the vectors of roots and leaves to found [p]."""
    for z in range(graph.roots.shape[0]):
        owner = graph.owners[z]
        total, power = ins.totals.values[owner], ins.totals.exponents[owner]
        if total != 0.0 and weights[owner] != 0.0:
            factor, root = weights[owner] / total, graph.roots[z]
            arithmetic.add_to(ins.values, root, factor, -power, found, graph.root_offsets[z])
    for x in range(graph.leaves.shape[0]):
        arithmetic.add_to(outs, graph.leaves[x], 1.0, 0, found, graph.leaf_offsets[x])


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


@compiled
def reach(grammar, graph, exponents, heights, spread, owners, worst):
    """Raises worst [owners] to the largest block · outside · left · right of edges, as exponents.

    The outside vectors have entries of up to 2^heights. With `spread`, heights [v] hold those of
    the roots only, and bounds for all others are found on the way; so are the owners [v].
    """
    ends, lefts, rights = graph.ends, graph.lefts, graph.rights
    for g in range(graph.heads.shape[0] - 1, -1, -1):
        head, rule = graph.heads[g], rule_of(grammar, graph, g)
        if heights[head] <= NOTHING or rule.exponent == NOTHING:
            continue
        owner, above = owners[head], heights[head] + rule.exponent
        to_left = above + math.log2(rule.head * rule.right)
        to_right = above + math.log2(rule.head * rule.left)
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
