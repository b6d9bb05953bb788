"""Inside and outside passes of sparse grammars in scaled arithmetic, many spans at a time.

The rows of a chart, over the splits of one span, are short in short sentences. Here spans of the
same width, of several sentences of the same length, go through the rules side by side: they are
the lanes of vector instructions. So only symbols that are 0 in all spans of a width are skipped.

Blocks of sentences, their lanes and strips are in `strips`. Scales, specks and what is too small
are as in `arithmetic.py`; there are no arcs, beams, weights of spans or posteriors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels import limits
from inout.kernels.sparse.cpu import strips
from inout.kernels.sparse.cpu.arithmetic import power
from inout.kernels.sparse.cpu.chart import NOTHING, barred


class Scratch(NamedTuple):
    """Memory for strips and charts, flat where it is cut to the width of spans."""

    lefts: strips.Floats  # parts of a strip
    rights: strips.Floats
    grad_lefts: strips.Floats
    grad_rights: strips.Floats
    totals: strips.Floats  # [s wide], before the unary rules, or the gradient by these
    after: strips.Floats  # [s wide], after the unary rules, or the gradient by these
    product: strips.Floats  # [wide]
    gradient: strips.Floats  # [wide]
    shifts: NDArray[np.int64]  # [wide]
    factors: strips.Floats  # [splits wide]
    left_ends: NDArray[np.int64]  # [s 2]
    right_ends: NDArray[np.int64]  # [s 2]
    values: strips.Floats  # of a chart
    gradients: strips.Floats
    below: strips.Floats
    exps: NDArray[np.int64]
    floors: strips.Floats
    present: NDArray[np.bool_]  # [n s]


@inner
def gather(grammar, rules, strip, count, careful, product, totals):
    """Adds to totals [s lanes] what all splits give, in the scale of the factors."""
    rule_offsets, rule_head = grammar.rule_offsets, grammar.rule_head
    for left in range(totals.shape[0]):
        for q in range(grammar.pair_offsets[left], grammar.pair_offsets[left + 1]):
            right = grammar.pair_right[q]
            first = max(strip.left_ends[left, 0], strip.right_ends[right, 0])
            last = min(strip.left_ends[left, 1], strip.right_ends[right, 1])
            if first > last:
                continue
            if careful:
                strips.careful_products(strip, left, right, first, last, count, product)
                for r in range(rule_offsets[q], rule_offsets[q + 1]):
                    if rules[r] > 0:
                        strips.careful_rule(rules[r], product, count, totals, rule_head[r])
            else:
                strips.products(strip, left, right, first, last, count, product)
                for r in range(rule_offsets[q], rule_offsets[q + 1]):
                    strips.add_rule(rules[r], product, count, totals, rule_head[r])


@inner
def enter_words(words, positions, lane, count, totals, shifts):
    """Adds the entries of one word in each lane to totals [s lanes]; shifts = their exponents."""
    size = positions.shape[0]
    for t in range(count):
        position = positions[(lane + t) % size] + (lane + t) // size
        shifts[t] = words.exponents[position]
        for e in range(words.offsets[position], words.offsets[position + 1]):
            totals[words.symbols[e], t] += words.values[e]


@inner
def bar(words, positions, n, w, lane, count, values):
    """Makes what the spans of a strip may not have 0 in values [s lanes]."""
    first_cells, allowed = words.first_cells, words.allowed
    if allowed.shape[0] == 0:
        return
    size = positions.shape[0]
    for t in range(count):
        i = (lane + t) // size
        cell = first_cells[positions[(lane + t) % size]] + i * n + i + w
        whole = barred(allowed, cell)
        for a in range(values.shape[0]):
            if whole or (allowed.shape[1] > 1 and not allowed[cell, a]):
                values[a, t] = 0.0


@inner
def apply_unary(grammar, unary, keep, count, totals, after):
    """after = keep * totals + what the unary rules make of totals, all [s lanes]."""
    for a in range(totals.shape[0]):
        for t in range(count):
            value = keep * totals[a, t]
            value = value if value > limits.SPARSE_SPECK else limits.SPARSE_SPECK
            after[a, t] = value if totals[a, t] > 0 else 0.0
    for u in range(grammar.unary_head.shape[0]):
        weight = unary[u]
        if weight > 0:
            for t in range(count):
                value = totals[grammar.unary_child[u], t]
                after[grammar.unary_head[u], t] += (
                    weight * value + limits.SPARSE_SPECK if value > 0 else 0.0
                )


@inner
def settle(chart, places, first, w, count, size, shifts, raised, totals, after, scales, low):
    """Writes a strip's values into the chart from lane `first` on; low [size] where too small.

    Those become `raised`, in the scale that they were too small for, as in `arithmetic.py`.
    """
    values, below, exps, floors = chart.values, chart.below, chart.exps, chart.floors
    s, base, lanes = totals.shape[0], np.uintp(first), np.uintp(count)
    for t in range(lanes):
        scales[t] = 0.0
    for a in range(np.uintp(s)):
        for t in range(lanes):
            scales[t] = after[a, t] if after[a, t] > scales[t] else scales[t]
    for t in range(lanes):
        exponent = math.frexp(scales[t])[1] if scales[t] >= limits.SPARSE_TINY else 0
        scales[t] = math.ldexp(1.0, -exponent)
        exps[base + t] = shifts[t] + exponent
        # Until something is found.
        floors[base + t] = 2.0
    for a in range(np.uintp(s)):
        found, small = 0, 0
        for t in range(lanes):
            value = after[a, t] * scales[t]
            few = (after[a, t] > 0) & (
                (value < limits.SPARSE_TINY) | (after[a, t] < limits.SPARSE_TINY)
            )
            value = raised * max(scales[t], 1.0) if few else value
            values[a, base + t] = value
            floor = value if value > 0 else 2.0
            floors[base + t] = floor if floor < floors[base + t] else floors[base + t]
            found |= value > 0
            small |= few
        if found:
            chart.present[w, a] = True
        if small:
            for t in range(count):
                least = min(after[a, t] * scales[t], after[a, t])
                if after[a, t] > 0 and least < limits.SPARSE_TINY:
                    low[(first + t) % size] = True
        if places[a] >= 0:
            place = np.uintp(places[a])
            for t in range(lanes):
                below[place, base + t] = totals[a, t] * scales[t]
    for t in range(lanes):
        if floors[base + t] > 1:
            exps[base + t], floors[base + t] = NOTHING, 1.0


@inner
def inside(problem, positions, n, least_rule, chart, scratch, low):
    """Fills the chart of a block of sentences, low [size] where values were too small.

    O(n³ size) times the pairs of symbols.
    """
    grammar, numbers, weights, words = problem
    rules, unary, keep = weights.binary[0], weights.unary[0], weights.keeps[0]
    totals, after, product, shifts = scratch.totals, scratch.after, scratch.product, scratch.shifts
    s, size, wide = chart.values.shape[0], positions.shape[0], product.shape[0]
    for w in range(n):
        base, lanes = strips.lane_base(w, n, size), (n - w) * size
        strip = strip_of(scratch, scratch.lefts, scratch.rights, s, w)
        for a in range(s):
            chart.present[w, a] = False
        strips.find_ends(chart.present, w, strip)
        for lane in range(0, lanes, wide):
            count = min(wide, lanes - lane)
            for a in range(s):
                for t in range(count):
                    totals[a, t] = 0.0
            if w == 0:
                enter_words(words, positions, lane, count, totals, shifts)
            else:
                strips.find_shifts(chart.exps, n, size, w, lane, count, shifts)
                least = strips.set_factors(chart, n, size, w, lane, count, shifts, scratch.factors)
                careful = least * least_rule < limits.SPARSE_SURE
                strips.load(chart.values, n, size, w, lane, count, scratch.factors, careful, strip)
                gather(grammar, rules, strip, count, careful, product, totals)
                for t in range(count):
                    shifts[t] += weights.binary_exponents[0]
            bar(words, positions, n, w, lane, count, totals)
            apply_unary(grammar, unary, keep, count, totals, after)
            bar(words, positions, n, w, lane, count, after)
            for t in range(count):
                shifts[t] += weights.unary_exponents[0]
            settle(
                chart, grammar.unary_place, base + lane, w, count, size, shifts, numbers.raised,
                totals, after, product, low,
            )  # fmt: skip


@inner
def spread(grammar, rules, strip, count, grads, back, product, gradient, rule_counts):
    """Sends the gradient [s lanes] by a strip's totals to its parts; adds to the counts."""
    rule_offsets, rule_head = grammar.rule_offsets, grammar.rule_head
    for left in range(back.shape[0]):
        for q in range(grammar.pair_offsets[left], grammar.pair_offsets[left + 1]):
            right = grammar.pair_right[q]
            first = max(strip.left_ends[left, 0], strip.right_ends[right, 0])
            last = min(strip.left_ends[left, 1], strip.right_ends[right, 1])
            if first > last:
                continue
            for t in range(count):
                gradient[t] = 0.0
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                for t in range(count):
                    gradient[t] += rules[r] * back[rule_head[r], t]
            strips.back_through(strip, left, right, first, last, count, gradient, grads, product)
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                share = strips.scalar_product(back, rule_head[r], product, count)
                rule_counts[r] += share * rules[r]


@inner
def back_through_unary(grammar, unary, keep, below, lane, count, alphas, back, unary_counts):
    """back = gradient by values before the unary rules, given alphas, that after them."""
    for a in range(alphas.shape[0]):
        for t in range(count):
            back[a, t] = keep * alphas[a, t]
    for u in range(grammar.unary_head.shape[0]):
        weight, head, child = unary[u], grammar.unary_head[u], grammar.unary_child[u]
        if weight == 0:
            continue
        total, place = 0.0, grammar.unary_place[child]
        for t in range(count):
            back[child, t] += weight * alphas[head, t]
            total += weight * alphas[head, t] * below[place, lane + t]
        unary_counts[u] += total


@inner
def count_words(words, positions, lane, count, shifts, back, word_counts):
    """Adds the counts of the entries of one word in each lane; back is in the scale of shifts."""
    size = positions.shape[0]
    for t in range(count):
        position = positions[(lane + t) % size] + (lane + t) // size
        scale = power(words.exponents[position] - shifts[t]) if shifts[t] > NOTHING // 2 else 0.0
        for e in range(words.offsets[position], words.offsets[position + 1]):
            word_counts[e] += back[words.symbols[e], t] * words.values[e] * scale


@inner
def outside(problem, positions, n, chart, gradients, scratch, counts):
    """Adds the expected counts of rules and words, given the gradients by the values of the top."""
    grammar, numbers, weights, words = problem
    rules, unary, keep = weights.binary[0], weights.unary[0], weights.keeps[0]
    back, alphas, product, shifts = scratch.totals, scratch.after, scratch.product, scratch.shifts
    s, size, wide = chart.values.shape[0], positions.shape[0], product.shape[0]
    for w in range(n - 1, -1, -1):
        base, lanes = strips.lane_base(w, n, size), (n - w) * size
        strip = strip_of(scratch, scratch.lefts, scratch.rights, s, w)
        grads = strip_of(scratch, scratch.grad_lefts, scratch.grad_rights, s, w)
        strips.find_ends(chart.present, w, strip)
        for lane in range(0, lanes, wide):
            count, first = min(wide, lanes - lane), base + lane
            found = False
            for a in range(s):
                for t in range(count):
                    # The gradient by a value that is 0 would be finite, what it is passed on to
                    # not.
                    here = chart.values[a, first + t] > 0
                    alphas[a, t] = gradients[a, first + t] if here else 0.0
                    found = found or alphas[a, t] != 0
            if not found:
                continue
            back_through_unary(
                grammar, unary, keep, chart.below, first, count, alphas, back, counts.unary[0]
            )
            bar(words, positions, n, w, lane, count, back)
            for t in range(count):
                shifts[t] = chart.exps[first + t] - weights.unary_exponents[0]
            if w == 0:
                count_words(words, positions, lane, count, shifts, back, counts.words)
                continue
            for t in range(count):
                shifts[t] -= weights.binary_exponents[0]
            strips.set_factors(chart, n, size, w, lane, count, shifts, scratch.factors)
            strips.load(chart.values, n, size, w, lane, count, scratch.factors, False, strip)
            for a in range(s):
                for d in range(w):
                    for t in range(count):
                        grads.lefts[a, d, t] = grads.rights[a, d, t] = 0.0
            spread(
                grammar, rules, strip, count, grads, back, product, scratch.gradient,
                counts.binary[0],
            )  # fmt: skip
            strips.store(gradients, n, size, w, lane, count, scratch.factors, grads)


@inner
def block_end(starts, order, x, s):
    """Where the block that begins with sentence order[x] ends: all of the same length."""
    n = starts[order[x] + 1] - starts[order[x]]
    most = min(limits.LANES_BLOCK, max(1, limits.LANES_CHART // max(1, s * n * (n + 1) // 2)))
    end, hi = x + 1, order.shape[0]
    while end < hi and end - x < most and starts[order[end] + 1] - starts[order[end]] == n:
        end += 1
    return end


@inner
def new_scratch(s, n, lanes, wide, unary_symbols):
    """What strips so wide need, flat or for any width of span, and charts of so many lanes."""
    parts_size = s * max(n - 1, 1) * wide
    return Scratch(
        np.zeros(parts_size), np.zeros(parts_size), np.zeros(parts_size), np.zeros(parts_size),
        np.zeros((s, wide)), np.zeros((s, wide)), np.zeros(wide), np.zeros(wide),
        np.zeros(wide, np.int64), np.zeros((max(n - 1, 1), wide)),
        np.zeros((s, 2), np.int64), np.zeros((s, 2), np.int64),
        np.zeros(s * lanes), np.zeros(s * lanes), np.zeros(unary_symbols * lanes),
        np.zeros(lanes, np.int64), np.zeros(lanes), np.zeros((n, s), np.bool_),
    )  # fmt: skip


@inner(returns_arrays=True)
def strip_of(scratch, lefts, rights, s, w):
    """Room for the strips of spans of width w + 1, or for the gradients by their parts."""
    shape = s, w, scratch.product.shape[0]
    size = s * w * scratch.product.shape[0]
    parts = lefts[:size].reshape(shape), rights[:size].reshape(shape)
    return strips.Strip(parts[0], parts[1], scratch.left_ends, scratch.right_ends)


@inner(returns_arrays=True)
def chart_of(scratch, s, lanes, unary_symbols):
    """(room for a chart, gradients by its values [s lanes])."""
    values = scratch.values[: s * lanes].reshape((s, lanes))
    gradients = scratch.gradients[: s * lanes].reshape((s, lanes))
    below = scratch.below[: unary_symbols * lanes].reshape((unary_symbols, lanes))
    return strips.Lanes(values, below, scratch.exps, scratch.floors, scratch.present), gradients


@inner
def scratch_for(starts, order, s, unary_symbols):
    """Scratch for all blocks of the sentences in order [..]."""
    longest, lanes, widest, x = 0, 0, 1, 0
    while x < order.shape[0]:
        end = block_end(starts, order, x, s)
        n = starts[order[x] + 1] - starts[order[x]]
        longest, lanes = max(longest, n), max(lanes, strips.lane_base(n, n, end - x))
        widest = max(widest, n * (end - x))
        x = end
    fitting = limits.LANES_STRIP // max(1, s * longest)
    most = max(limits.LANES_NARROW, min(limits.LANES_WIDE, fitting))
    return new_scratch(s, longest, lanes, min(widest, most), unary_symbols)


@compiled
def sweep(problem, starts, order, skip_low, factors, low, counts, outer):
    """As `outside.sweep`, but for posteriors: `outer` is not used.

    Sentences of the same length should be next to each other.
    """
    root, s = problem.grammar.root, problem.grammar.unary_place.shape[0]
    unary_symbols, log_z = problem.grammar.num_unary_symbols, counts.log_z
    scratch = scratch_for(starts, order, s, unary_symbols)
    least_rule = 1.0
    for weight in problem.weights.binary[0]:
        if weight > 0:
            least_rule = min(least_rule, weight)
    x = 0
    while x < order.shape[0]:
        end = block_end(starts, order, x, s)
        members = order[x:end]
        positions, too_small = starts[members], np.zeros(end - x, np.bool_)
        n, size, x = starts[members[0] + 1] - starts[members[0]], end - x, end
        if n == 0:
            for m in members:
                log_z[m], low[m] = -np.inf, False
            continue
        chart, gradients = chart_of(scratch, s, strips.lane_base(n, n, size), unary_symbols)
        inside(problem, positions, n, least_rule, chart, scratch, too_small)
        any_tree, top = False, strips.lane_base(n - 1, n, size)
        for b in range(size):
            m, value = members[b], chart.values[root, top + b]
            log_z[m], low[m] = -np.inf, too_small[b]
            if value > 0:
                log_z[m] = math.log(value) + chart.exps[top + b] * math.log(2.0)
                any_tree = any_tree or (factors[m] != 0 and not (low[m] and skip_low))
        if not any_tree:
            continue
        for a in range(s):
            for lane in range(gradients.shape[1]):
                gradients[a, lane] = 0.0
        for b in range(size):
            m, value = members[b], chart.values[root, top + b]
            if value > 0 and not (low[m] and skip_low):
                gradients[root, top + b] = factors[m] / value
        outside(problem, positions, n, chart, gradients, scratch, counts)
