"""Inside and outside passes of sparse grammars in scaled arithmetic, many spans at a time.

The rows of the kernel one folder up, over the splits of one span, are short in short sentences.
Here spans of the same width, of several sentences of the same length, go through the rules side
by side: they are the lanes of vector instructions. So nothing is left out for being 0 in a single
span, only what is 0 in all spans of that width.

Blocks of sentences, their lanes and strips are in `strips`. Scales, specks and what is too small
are as in the other kernel, whose arguments these are: without arcs, beam, weights of spans or
posteriors.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.sparse.cpu.scaled import NONE, SPECK, SURE, TINY, barred, power
from inout.kernels.sparse.cpu.strips import (
    add_rule,
    back_through,
    careful_products,
    careful_rule,
    find_ends,
    find_shifts,
    lane_base,
    load,
    products,
    scalar_product,
    set_factors,
    store,
)

# A strip is as wide as this, or less where its left parts would be more than so many numbers.
WIDE, NARROW, STRIP = 128, 16, 1 << 16
# A block has so many sentences, or less where its chart would be more than so many numbers.
BLOCK, CHART = 32, 1 << 17


@inner
def gather(grammar, rules, strip, count, careful, product, totals):
    """Adds to totals [s lanes] what all splits give, in the scale of the factors."""
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    lefts, rights, left_ends, right_ends = strip
    for left in range(totals.shape[0]):
        for q in range(pair_offsets[left], pair_offsets[left + 1]):
            right = pair_right[q]
            first = max(left_ends[left, 0], right_ends[right, 0])
            last = min(left_ends[left, 1], right_ends[right, 1])
            if first > last:
                continue
            if careful:
                careful_products(lefts, rights, left, right, first, last, count, product)
                for r in range(rule_offsets[q], rule_offsets[q + 1]):
                    if rules[r] > 0:
                        careful_rule(rules[r], product, count, totals, rule_head[r])
            else:
                products(lefts, rights, left, right, first, last, count, product)
                for r in range(rule_offsets[q], rule_offsets[q + 1]):
                    add_rule(rules[r], product, count, totals, rule_head[r])


@inner
def enter_words(words, positions, lane, count, totals, shifts):
    """Adds the entries of one word in each lane to totals [s lanes]; shifts = their exponents."""
    offsets, symbols, values, exponents = words[:4]
    size = positions.shape[0]
    for t in range(count):
        position = positions[(lane + t) % size] + (lane + t) // size
        shifts[t] = exponents[position]
        for e in range(offsets[position], offsets[position + 1]):
            totals[symbols[e], t] += values[e]


@inner
def bar(words, positions, n, w, lane, count, values):
    """Makes what the spans of a strip may not have 0 in values [s lanes]."""
    first_cells, allowed = words[4], words[7]
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
    unary_head, unary_child = grammar[4], grammar[5]
    for a in range(totals.shape[0]):
        for t in range(count):
            value = keep * totals[a, t]
            after[a, t] = (value if value > SPECK else SPECK) if totals[a, t] > 0 else 0.0
    for u in range(unary_head.shape[0]):
        weight = unary[u]
        if weight > 0:
            for t in range(count):
                value = totals[unary_child[u], t]
                after[unary_head[u], t] += weight * value + SPECK if value > 0 else 0.0


@inner
def settle(chart, places, first, w, count, size, shifts, raised, totals, after, scales, low):
    """Writes a strip's values into the chart from lane `first` on; low [size] where too small.

    Those become `raised`, in the scale that they were too small for, as in `scaled.py`.
    """
    values, below, exps, floors, present = chart
    s, base, lanes = totals.shape[0], np.uintp(first), np.uintp(count)
    for t in range(lanes):
        scales[t] = 0.0
    for a in range(np.uintp(s)):
        for t in range(lanes):
            scales[t] = after[a, t] if after[a, t] > scales[t] else scales[t]
    for t in range(lanes):
        exponent = math.frexp(scales[t])[1] if scales[t] >= TINY else 0
        scales[t] = math.ldexp(1.0, -exponent)
        exps[base + t] = shifts[t] + exponent
        # Until something is found.
        floors[base + t] = 2.0
    for a in range(np.uintp(s)):
        found, small = 0, 0
        for t in range(lanes):
            value = after[a, t] * scales[t]
            few = (after[a, t] > 0) & ((value < TINY) | (after[a, t] < TINY))
            value = raised * max(scales[t], 1.0) if few else value
            values[a, base + t] = value
            floor = value if value > 0 else 2.0
            floors[base + t] = floor if floor < floors[base + t] else floors[base + t]
            found |= value > 0
            small |= few
        if found:
            present[w, a] = True
        if small:
            for t in range(count):
                if after[a, t] > 0 and (after[a, t] * scales[t] < TINY or after[a, t] < TINY):
                    low[(first + t) % size] = True
        if places[a] >= 0:
            place = np.uintp(places[a])
            for t in range(lanes):
                below[place, base + t] = totals[a, t] * scales[t]
    for t in range(lanes):
        if floors[base + t] > 1:
            exps[base + t], floors[base + t] = NONE, 1.0


@inner
def inside(grammar, weights, words, positions, n, raised, least_rule, chart, scratch, low):
    """Fills the chart of a block of sentences, low [size] where values were too small.

    O(n³ size) times the pairs of symbols.
    """
    rules, unary, rule_exponents, unary_exponents, keeps = weights
    values, below, exps, floors, present = chart
    totals, after, product, gradient, shifts, factors = scratch[4:10]
    s, size, wide = values.shape[0], positions.shape[0], product.shape[0]
    for w in range(n):
        base, lanes = lane_base(w, n, size), (n - w) * size
        strip = strip_of(scratch, s, w)
        for a in range(s):
            present[w, a] = False
        find_ends(present, w, strip[2], strip[3])
        for lane in range(0, lanes, wide):
            count = min(wide, lanes - lane)
            for a in range(s):
                for t in range(count):
                    totals[a, t] = 0.0
            if w == 0:
                enter_words(words, positions, lane, count, totals, shifts)
            else:
                find_shifts(exps, n, size, w, lane, count, shifts)
                least = set_factors(chart, n, size, w, lane, count, shifts, factors)
                careful = least * least_rule < SURE
                load(values, n, size, w, lane, count, factors, careful, strip)
                gather(grammar, rules[0], strip, count, careful, product, totals)
                for t in range(count):
                    shifts[t] += rule_exponents[0]
            bar(words, positions, n, w, lane, count, totals)
            apply_unary(grammar, unary[0], keeps[0], count, totals, after)
            bar(words, positions, n, w, lane, count, after)
            for t in range(count):
                shifts[t] += unary_exponents[0]
            settle(
                chart, grammar[6], base + lane, w, count, size, shifts, raised, totals, after,
                product, low,
            )  # fmt: skip


@inner
def spread(grammar, rules, strip, count, grads, back, product, gradient, rule_counts):
    """Sends the gradient [s lanes] by a strip's totals to its parts; adds to the counts."""
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    lefts, rights, left_ends, right_ends = strip
    grad_lefts, grad_rights = grads
    for left in range(back.shape[0]):
        for q in range(pair_offsets[left], pair_offsets[left + 1]):
            right = pair_right[q]
            first = max(left_ends[left, 0], right_ends[right, 0])
            last = min(left_ends[left, 1], right_ends[right, 1])
            if first > last:
                continue
            for t in range(count):
                gradient[t] = 0.0
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                for t in range(count):
                    gradient[t] += rules[r] * back[rule_head[r], t]
            back_through(
                lefts,
                rights,
                left,
                right,
                first,
                last,
                count,
                gradient,
                grad_lefts,
                grad_rights,
                product,
            )
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                rule_counts[r] += scalar_product(back, rule_head[r], product, count) * rules[r]


@inner
def back_through_unary(grammar, unary, keep, below, lane, count, alphas, back, unary_counts):
    """back = gradient by values before the unary rules, given alphas, that after them."""
    unary_head, unary_child, places = grammar[4:]
    for a in range(alphas.shape[0]):
        for t in range(count):
            back[a, t] = keep * alphas[a, t]
    for u in range(unary_head.shape[0]):
        weight, head, child = unary[u], unary_head[u], unary_child[u]
        if weight == 0:
            continue
        total, place = 0.0, places[child]
        for t in range(count):
            back[child, t] += weight * alphas[head, t]
            total += weight * alphas[head, t] * below[place, lane + t]
        unary_counts[u] += total


@inner
def count_words(words, positions, lane, count, shifts, back, word_counts):
    """Adds the counts of the entries of one word in each lane; back is in the scale of shifts."""
    offsets, symbols, values, exponents = words[:4]
    size = positions.shape[0]
    for t in range(count):
        position = positions[(lane + t) % size] + (lane + t) // size
        scale = power(exponents[position] - shifts[t]) if shifts[t] > NONE // 2 else 0.0
        for e in range(offsets[position], offsets[position + 1]):
            word_counts[e] += back[symbols[e], t] * values[e] * scale


@inner
def outside(
    grammar, weights, words, positions, n, chart, gradients, scratch,
    rule_counts, unary_counts, word_counts,
):  # fmt: skip
    """Adds the expected counts of rules and words, given the gradients by the values of the top."""
    rules, unary, rule_exponents, unary_exponents, keeps = weights
    values, below, exps, floors, present = chart
    back, alphas, product, gradient, shifts, factors = scratch[4:10]
    s, size, wide = values.shape[0], positions.shape[0], product.shape[0]
    for w in range(n - 1, -1, -1):
        base, lanes = lane_base(w, n, size), (n - w) * size
        strip, grads = strip_of(scratch, s, w), grads_of(scratch, s, w)
        find_ends(present, w, strip[2], strip[3])
        for lane in range(0, lanes, wide):
            count = min(wide, lanes - lane)
            found = False
            for a in range(s):
                for t in range(count):
                    # The gradient by a value that is 0 would be finite, what it is passed on to
                    # not.
                    here = values[a, base + lane + t] > 0
                    alphas[a, t] = gradients[a, base + lane + t] if here else 0.0
                    found = found or alphas[a, t] != 0
            if not found:
                continue
            back_through_unary(
                grammar,
                unary[0],
                keeps[0],
                below,
                base + lane,
                count,
                alphas,
                back,
                unary_counts[0],
            )
            bar(words, positions, n, w, lane, count, back)
            for t in range(count):
                shifts[t] = exps[base + lane + t] - unary_exponents[0]
            if w == 0:
                count_words(words, positions, lane, count, shifts, back, word_counts)
                continue
            for t in range(count):
                shifts[t] -= rule_exponents[0]
            set_factors(chart, n, size, w, lane, count, shifts, factors)
            load(values, n, size, w, lane, count, factors, False, strip)
            for a in range(s):
                for d in range(w):
                    for t in range(count):
                        grads[0][a, d, t] = grads[1][a, d, t] = 0.0
            spread(grammar, rules[0], strip, count, grads, back, product, gradient, rule_counts[0])
            store(gradients, n, size, w, lane, count, factors, grads)


@inner
def block_end(starts, order, x, hi, s):
    """Where the block that begins with sentence order[x] ends: all of the same length."""
    n = starts[order[x] + 1] - starts[order[x]]
    most = min(BLOCK, max(1, CHART // max(1, s * n * (n + 1) // 2)))
    end = x + 1
    while end < hi and end - x < most and starts[order[end] + 1] - starts[order[end]] == n:
        end += 1
    return end


@inner
def new_scratch(s, n, lanes, wide, unary_symbols):
    """What strips so wide need, flat or for any width of span, and charts of so many lanes."""
    parts_size = s * max(n - 1, 1) * wide
    return (
        np.zeros(parts_size), np.zeros(parts_size), np.zeros(parts_size), np.zeros(parts_size),
        np.zeros((s, wide)), np.zeros((s, wide)), np.zeros(wide), np.zeros(wide),
        np.zeros(wide, np.int64), np.zeros((max(n - 1, 1), wide)),
        np.zeros((s, 2), np.int64), np.zeros((s, 2), np.int64),
        np.zeros(s * lanes), np.zeros(s * lanes), np.zeros(unary_symbols * lanes),
        np.zeros(lanes, np.int64), np.zeros(lanes), np.zeros((n, s), np.bool_),
    )  # fmt: skip


@inner
def strip_of(scratch, s, w):
    """(left parts [s w wide], right parts, and where they are not 0 [s 2], [s 2])."""
    wide = scratch[6].shape[0]
    size = s * w * wide
    lefts = scratch[0][:size].reshape((s, w, wide))
    rights = scratch[1][:size].reshape((s, w, wide))
    return lefts, rights, scratch[10], scratch[11]


@inner
def grads_of(scratch, s, w):
    """Gradients by left and right parts [s w wide]."""
    wide = scratch[6].shape[0]
    size = s * w * wide
    lefts = scratch[2][:size].reshape((s, w, wide))
    return lefts, scratch[3][:size].reshape((s, w, wide))


@inner
def chart_of(scratch, s, lanes, unary_symbols):
    """((values [s lanes], those before the unary rules, exponents, floors), gradients [s lanes]).

    floors [lanes] are the smallest of a span's values that are not 0.
    """
    values = scratch[12][: s * lanes].reshape((s, lanes))
    gradients = scratch[13][: s * lanes].reshape((s, lanes))
    below = scratch[14][: unary_symbols * lanes].reshape((unary_symbols, lanes))
    return (values, below, scratch[15], scratch[16], scratch[17]), gradients


@compiled
def sweep(
    grammar, weights, words, starts, order, lo, hi, root, unary_symbols, raised, skip_low, factors,
    log_z, low, rule_counts, unary_counts, word_counts, posteriors,
):  # fmt: skip
    """Fills log_z [b] and low [b] of the sentences order[lo:hi]; adds to their expected counts.

    factors [b] multiply the counts; where 0, or where values were too small and `skip_low`, the
    outside pass is left out. Sentences of the same length should be next to each other.
    """
    s = grammar[0].shape[0] - 1
    longest, lanes, widest, x = 0, 0, 1, lo
    while x < hi:
        end = block_end(starts, order, x, hi, s)
        n = starts[order[x] + 1] - starts[order[x]]
        longest, lanes = max(longest, n), max(lanes, lane_base(n, n, end - x))
        widest = max(widest, n * (end - x))
        x = end
    wide = min(widest, max(NARROW, min(WIDE, STRIP // max(1, s * longest))))
    scratch = new_scratch(s, longest, lanes, wide, unary_symbols)
    least_rule = 1.0
    for weight in weights[0][0]:
        if weight > 0:
            least_rule = min(least_rule, weight)
    x = lo
    while x < hi:
        end = block_end(starts, order, x, hi, s)
        members = order[x:end]
        positions, too_small = starts[members], np.zeros(end - x, np.bool_)
        n, size, x = starts[members[0] + 1] - starts[members[0]], end - x, end
        if n > 0:
            chart, gradients = chart_of(scratch, s, lane_base(n, n, size), unary_symbols)
            inside(
                grammar, weights, words, positions, n, raised, least_rule, chart, scratch, too_small
            )
        any_tree, top = False, lane_base(n - 1, n, size)
        for b in range(size):
            m = members[b]
            value = chart[0][root, top + b] if n > 0 else 0.0
            log_z[m], low[m] = -np.inf, too_small[b]
            if value > 0:
                log_z[m] = math.log(value) + chart[2][top + b] * math.log(2.0)
                any_tree = any_tree or (factors[m] != 0 and not (low[m] and skip_low))
        if not any_tree:
            continue
        for a in range(s):
            for lane in range(gradients.shape[1]):
                gradients[a, lane] = 0.0
        for b in range(size):
            m, value = members[b], chart[0][root, top + b]
            if value > 0 and not (low[m] and skip_low):
                gradients[root, top + b] = factors[m] / value
        outside(
            grammar, weights, words, positions, n, chart, gradients, scratch, rule_counts,
            unary_counts, word_counts,
        )  # fmt: skip
