"""Inside and outside passes of sparse grammars in scaled arithmetic, sentence by sentence.

A span's symbols share one scale: their values stand for 2**exps[i, j] as much, the largest is
between 1/2 and 1. Values are those after the unary rules, and they are kept twice: `lefts` has,
for a start i and a symbol, a row over the ends of the span; `rights`, for an end j and a symbol, a
row over the starts. So the sum over the splits of a span i..j, for a left and a right symbol, is
the scalar product of two rows. `left_ends` and `right_starts` give for each row the first and the
last place that is not 0: most rows do not meet, and that is where zeros are skipped.

Everything possible is above 0: a product that underflows adds SPECK, and what ends up below TINY
is reported, so that nothing is lost in silence.

grammar: the `structure` of RuleArrays. weights: (rules [rows r], unary [rows u], their binary
exponents [rows], what a symbol keeps of its value at the unary rules: 2**-exponent [rows]), a row
for each cell, or one for all. words: (offsets, symbols, values [entries], exponents [positions]),
the `spans` of SentenceArrays, the exponents of arcs [cells], and the share of the largest value of
its span below which a symbol is dropped.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.exponential import FAST

# Values below TINY, relative to the largest of their span, are set to 0 or raised to RAISED. Where
# that changes log Z by less than SLACK, a share of SLACK * TINY / RAISED is lost at most.
TINY, RAISED, SLACK = 1e-280, 1e-270, 1e-6
# Far below TINY, however often it is added.
SPECK = 1e-300
# The exponent of a span that nothing can have.
NONE = -(1 << 60)
# A product below this may have lost digits, or may be nothing but SPECKs and underflow.
SURE = 1e-290


@inner
def power(exponent):
    """2**exponent; 0 below the smallest normal number."""
    if exponent < -1022:
        return 0.0
    return math.ldexp(1.0, exponent)


@inner
def row_of(weights, cell):
    """The row that holds the weights of a cell."""
    return cell if weights.shape[0] > 1 else 0


@inner
def barred(allowed, cell):
    """Whether a span may have no symbol at all."""
    return allowed.shape[0] > 0 and allowed.shape[1] == 1 and not allowed[cell, 0]


@inner
def bar(allowed, cell, values, nothing):
    """Makes the values [symbols] of symbols that a span may not have `nothing`."""
    if allowed.shape[0] > 0 and allowed.shape[1] > 1:
        for a in range(values.shape[0]):
            if not allowed[cell, a]:
                values[a] = nothing


@inner
def left_base(i, n, s):
    """Where the rows of start i begin in `lefts`; each has n - i places."""
    return s * (i * n - (i * (i - 1)) // 2)


@inner
def right_base(j, s):
    """Where the rows of end j begin in `rights`; each has j + 1 places."""
    return s * ((j * (j + 1)) // 2)


@inner(fastmath=FAST)
def long_product(lefts, a, rights, b, factors, first, count):
    """As `product`, by vector instructions."""
    total = 0.0
    for t in range(count):
        total += lefts[a + t] * rights[b + t] * factors[first + t]
    return total


@inner
def product(lefts, a, rights, b, factors, first, count):
    """The sum over t < count of lefts[a + t] rights[b + t] factors[first + t]."""
    if count > 12:
        return long_product(lefts, a, rights, b, factors, first, count)
    total = 0.0
    for t in range(count):
        total += lefts[a + t] * rights[b + t] * factors[first + t]
    return total


@inner
def meet(lefts, a, rights, b, count):
    """Whether two rows have a place where neither is 0."""
    found = False
    for t in range(count):
        found = found or (lefts[a + t] > 0 and rights[b + t] > 0)
    return found


@inner
def shift_of(exps, i, j):
    """The largest exponent of the splits of i..j; below NONE / 2 where there is none."""
    top = 2 * NONE
    for k in range(i, j):
        top = max(top, exps[i, k] + exps[k + 1, j])
    return top


@inner
def set_factors(exps, i, j, shift, factors):
    """factors[k - i] = 2**(exponent of the split after k, less shift)."""
    for k in range(i, j):
        factors[k - i] = power(exps[i, k] + exps[k + 1, j] - shift)


@inner
def gather(grammar, rules, chart, factors, i, j, totals):
    """Adds to totals [symbols] what all splits of i..j give, in the scale of the factors."""
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    lefts, rights, exps, left_ends, right_starts, active, active_counts, below = chart
    n, s = exps.shape[0], totals.shape[0]
    lefts_from, rights_from = left_base(i, n, s), right_base(j, s)
    for x in range(active_counts[i]):
        symbol = active[i, x]
        # Places are counted by the split k; the right span starts at k + 1.
        first, last = left_ends[i, symbol, 0], left_ends[i, symbol, 1]
        row = lefts_from + symbol * (n - i) - i
        for q in range(pair_offsets[symbol], pair_offsets[symbol + 1]):
            right = pair_right[q]
            lo = max(first, right_starts[j, right, 0] - 1)
            hi = min(last, right_starts[j, right, 1] - 1)
            if lo > hi:
                continue
            a, b, count = row + lo, rights_from + right * (j + 1) + lo + 1, hi - lo + 1
            value = product(lefts, a, rights, b, factors, lo - i, count)
            if value < SURE and not meet(lefts, a, rights, b, count):
                continue
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                if rules[r] > 0:
                    totals[rule_head[r]] += rules[r] * value + SPECK


@inner
def apply_unary(grammar, unary, keep, totals, after):
    """after = keep * totals + what the unary rules make of totals, all [symbols]."""
    unary_head, unary_child = grammar[4], grammar[5]
    for a in range(totals.shape[0]):
        after[a] = max(keep * totals[a], SPECK) if totals[a] > 0 else 0.0
    for u in range(unary_head.shape[0]):
        value = totals[unary_child[u]]
        if value > 0 and unary[u] > 0:
            after[unary_head[u]] += unary[u] * value + SPECK


@inner
def enter_words(words, position, totals):
    """Adds the entries of a word to totals [symbols]; returns their exponent."""
    offsets, symbols, values, exponents = words[:4]
    for e in range(offsets[position], offsets[position + 1]):
        if values[e] > 0:
            totals[symbols[e]] += values[e]
    return exponents[position]


@inner
def enter_arcs(words, cell, shift, totals):
    """Adds the arcs of a cell to totals, which stand for 2**shift as much; returns their shift."""
    symbols, values = words[1], words[2]
    arc_offsets, arc_symbols, exponents = words[5], words[6], words[8]
    own = exponents[cell]
    if own < NONE // 2:
        return shift
    if own > shift:
        factor = power(shift - own)
        for a in range(totals.shape[0]):
            if totals[a] > 0:
                totals[a] = max(totals[a] * factor, SPECK)
        shift = own
    factor = power(own - shift)
    for x in range(arc_offsets[cell], arc_offsets[cell + 1]):
        value = values[symbols.shape[0] + x]
        if value > 0:
            totals[arc_symbols[x]] += max(value * factor, SPECK)
    return shift


@inner
def settle(chart, places, i, j, shift, raised, beam, totals, after):
    """Writes a span's values into the chart: whether some were too small.

    Those become `raised`, in the scale that they were too small for: that of their span, or the
    one before, where a large unary rule has put it far above all values. What the beam drops is
    not too small.
    """
    lefts, rights, exps, left_ends, right_starts, active, active_counts, below = chart
    n, s = exps.shape[0], totals.shape[0]
    top, low = 0.0, False
    for a in range(s):
        top = max(top, after[a])
    if top == 0:
        return False
    exponent = math.frexp(top)[1] if top >= TINY else 0
    scale = math.ldexp(1.0, -exponent)
    left, right = left_base(i, n, s) + j - i, right_base(j, s) + i
    found = False
    cut = beam * top if top >= TINY else 0.0
    for a in range(s):
        if after[a] == 0 or after[a] < cut:
            continue
        value = after[a] * scale
        if value < TINY or after[a] < TINY:
            low, value = True, raised * max(scale, 1.0)
            if raised == 0:
                continue
        found = True
        lefts[left + a * (n - i)] = value
        rights[right + a * (j + 1)] = value
        if left_ends[i, a, 1] < 0:
            left_ends[i, a, 0] = j
            active[i, active_counts[i]] = a
            active_counts[i] += 1
        left_ends[i, a, 1] = j
        right_starts[j, a, 0] = i
        if right_starts[j, a, 1] < 0:
            right_starts[j, a, 1] = i
    if found:
        exps[i, j] = shift + exponent
        for a in range(s):
            if places[a] >= 0:
                below[i, j, places[a]] = totals[a] * scale
    return low


@inner
def new_chart(n, s, unary_symbols):
    """(lefts, rights, exps, left_ends, right_starts, active, their number, below), all empty.

    active [n s] lists the symbols that a span from here can have; below [n n symbols of unary
    rules] has their values before the unary rules, in the scale of the span.
    """
    size = s * ((n * (n + 1)) // 2)
    exps = np.full((n, n), NONE, np.int64)
    left_ends, right_starts = np.empty((n, s, 2), np.int32), np.empty((n, s, 2), np.int32)
    for i in range(n):
        for a in range(s):
            # No row meets these, on whichever side.
            left_ends[i, a, 0], left_ends[i, a, 1] = n + 1, -1
            right_starts[i, a, 0], right_starts[i, a, 1] = n + 1, -1
    return (
        np.zeros(size), np.zeros(size), exps, left_ends, right_starts,
        np.empty((n, s), np.int32), np.zeros(n, np.int64), np.zeros((n, n, unary_symbols)),
    )  # fmt: skip


@compiled
def inside(grammar, weights, words, start, n, unary_symbols, raised):
    """(chart of the sentence at positions start..start+n-1, whether values were too small).

    O(n³) times the pairs of symbols whose rows meet, in scalar products.
    """
    s = grammar[0].shape[0] - 1
    rules, unary, rule_exponents, unary_exponents, keeps = weights
    first_cells, arc_offsets, allowed, beam = words[4], words[5], words[7], words[9]
    chart = new_chart(n, s, unary_symbols)
    exps = chart[2]
    totals, after, factors = np.empty(s), np.empty(s), np.empty(n)
    low = False
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width - 1
            cell = first_cells[start] + i * n + j
            if barred(allowed, cell):
                continue
            for a in range(s):
                totals[a] = 0
            if width == 1:
                shift = enter_words(words, start + i, totals)
            else:
                shift = shift_of(exps, i, j)
                if shift >= NONE // 2:
                    row = row_of(rules, cell)
                    set_factors(exps, i, j, shift, factors)
                    gather(grammar, rules[row], chart, factors, i, j, totals)
                    shift += rule_exponents[row]
            if arc_offsets.shape[0] > 0:
                shift = enter_arcs(words, cell, shift, totals)
            if shift < NONE // 2:
                continue
            row = row_of(unary, cell)
            bar(allowed, cell, totals, 0.0)
            apply_unary(grammar, unary[row], keeps[row], totals, after)
            bar(allowed, cell, after, 0.0)
            shift += unary_exponents[row]
            if settle(chart, grammar[6], i, j, shift, raised, beam, totals, after):
                low = True
    return chart, low


@inner(fastmath=FAST)
def back_through(lefts, a, rights, b, factors, first, count, gradient, grad_lefts, grad_rights):
    """Backward of `product`, which is returned as well."""
    total = 0.0
    for t in range(count):
        weight = gradient * factors[first + t]
        grad_lefts[a + t] += weight * rights[b + t]
        grad_rights[b + t] += weight * lefts[a + t]
        total += lefts[a + t] * rights[b + t] * factors[first + t]
    return total


@inner
def spread(grammar, rules, chart, factors, i, j, back, grad_lefts, grad_rights, rule_counts):
    """Sends the gradient [symbols] by a span's totals down to its parts; adds to the counts."""
    pair_offsets, pair_right, rule_offsets, rule_head = grammar[:4]
    lefts, rights, exps, left_ends, right_starts, active, active_counts, below = chart
    n, s = exps.shape[0], back.shape[0]
    lefts_from, rights_from = left_base(i, n, s), right_base(j, s)
    for x in range(active_counts[i]):
        symbol = active[i, x]
        first, last = left_ends[i, symbol, 0], left_ends[i, symbol, 1]
        row = lefts_from + symbol * (n - i) - i
        for q in range(pair_offsets[symbol], pair_offsets[symbol + 1]):
            right = pair_right[q]
            lo = max(first, right_starts[j, right, 0] - 1)
            # Here the chart is full: the left span has to end before j, the right start after i.
            hi = min(min(last, right_starts[j, right, 1] - 1), j - 1)
            lo = max(lo, i)
            if lo > hi:
                continue
            gradient = 0.0
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                gradient += rules[r] * back[rule_head[r]]
            if gradient == 0:
                continue
            value = back_through(
                lefts, row + lo, rights, rights_from + right * (j + 1) + lo + 1, factors, lo - i,
                hi - lo + 1, gradient, grad_lefts, grad_rights,
            )  # fmt: skip
            for r in range(rule_offsets[q], rule_offsets[q + 1]):
                rule_counts[r] += rules[r] * back[rule_head[r]] * value


@inner
def back_through_unary(grammar, unary, keep, below, alphas, back, unary_counts):
    """back = gradient by a span's values before the unary rules, given alphas, that after them."""
    unary_head, unary_child, places = grammar[4:]
    for a in range(alphas.shape[0]):
        back[a] = keep * alphas[a]
    for u in range(unary_head.shape[0]):
        gradient = unary[u] * alphas[unary_head[u]]
        if gradient != 0:
            child = unary_child[u]
            back[child] += gradient
            unary_counts[u] += gradient * below[places[child]]


@inner
def count_entries(words, position, cell, shift, back, word_counts):
    """Adds the counts of a cell's arcs and, where it has a position, of that word's entries.

    back [symbols] is the gradient by values that stand for 2**shift as much.
    """
    offsets, symbols, values, exponents = words[:4]
    arc_offsets, arc_symbols, arc_exponents = words[5], words[6], words[8]
    if position >= 0:
        scale = power(exponents[position] - shift)
        for e in range(offsets[position], offsets[position + 1]):
            word_counts[e] += back[symbols[e]] * values[e] * scale
    if arc_offsets.shape[0] > 0:
        scale = power(arc_exponents[cell] - shift)
        for x in range(arc_offsets[cell], arc_offsets[cell + 1]):
            e = symbols.shape[0] + x
            word_counts[e] += back[arc_symbols[x]] * values[e] * scale


@inner
def report(grammar, unary, keep, values, below, alphas, back, above_here, below_here, after_here):
    """Fills a span's posteriors [symbols] and its values after the unary rules.

    values are those in the chart. After the unary rules, unlike there, are all symbols that chains
    of unary rules may pass through: also those that are dropped or not allowed.
    """
    unary_head, unary_child, places = grammar[4:]
    for a in range(alphas.shape[0]):
        above_here[a] = below_here[a] = alphas[a] * values[a]
        after_here[a] = values[a]
        if places[a] >= 0:
            below_here[a] = back[a] * below[places[a]]
            after_here[a] = keep * below[places[a]]
    for u in range(unary_head.shape[0]):
        after_here[unary_head[u]] += unary[u] * below[places[unary_child[u]]]


@inner
def outside(
    grammar, weights, words, start, chart, root, factor,
    rule_counts, unary_counts, word_counts, posteriors,
):  # fmt: skip
    """Adds factor times the expected counts of rules and words, given that there is a tree.

    Counts of rules have as many rows as the weights. posteriors: (of symbols over spans after the
    unary rules, before them, values after them, gradients by the values before them), all
    [n n symbols], are filled unless they are of size 0. A span's values are in the scale of the
    chart, the gradients in one smaller by the exponent of the unary rules.
    """
    rules, unary, rule_exponents, unary_exponents, keeps = weights
    first_cells, allowed = words[4], words[7]
    above_all, below_all, after_all, back_all = posteriors
    lefts, rights, exps, left_ends, right_starts, active, active_counts, below = chart
    n, s = exps.shape[0], grammar[0].shape[0] - 1
    grad_lefts, grad_rights = np.zeros(lefts.shape[0]), np.zeros(rights.shape[0])
    values, alphas, back, factors = np.empty(s), np.empty(s), np.empty(s), np.empty(n)
    top = root * n + n - 1
    grad_lefts[top] = factor / lefts[top]
    for width in range(n, 0, -1):
        for i in range(n - width + 1):
            j = i + width - 1
            left, right = left_base(i, n, s) + j - i, right_base(j, s) + i
            found = False
            for a in range(s):
                # The gradient by a value that is 0 would be finite, what it is passed on to not.
                alphas[a] = 0.0
                values[a] = lefts[left + a * (n - i)]
                if values[a] > 0:
                    alphas[a] = grad_lefts[left + a * (n - i)] + grad_rights[right + a * (j + 1)]
                    found = found or alphas[a] != 0
            if not found:
                continue
            cell = first_cells[start] + i * n + j
            row = row_of(unary, cell)
            back_through_unary(
                grammar, unary[row], keeps[row], below[i, j], alphas, back, unary_counts[row]
            )
            if back_all.size > 0:
                report(
                    grammar, unary[row], keeps[row], values, below[i, j], alphas, back,
                    above_all[i, j], below_all[i, j], after_all[i, j],
                )  # fmt: skip
                for a in range(s):
                    back_all[i, j, a] = back[a]
            bar(allowed, cell, back, 0.0)
            shift = exps[i, j] - unary_exponents[row]
            count_entries(words, start + i if width == 1 else -1, cell, shift, back, word_counts)
            if width > 1:
                row = row_of(rules, cell)
                set_factors(exps, i, j, shift - rule_exponents[row], factors)
                spread(
                    grammar, rules[row], chart, factors, i, j, back, grad_lefts, grad_rights,
                    rule_counts[row],
                )  # fmt: skip


@inner
def log_value(chart, symbol, j):
    """log of a symbol's value over the first j + 1 words."""
    lefts, exps = chart[0], chart[2]
    value = lefts[symbol * exps.shape[0] + j]
    return math.log(value) + exps[0, j] * math.log(2.0) if value > 0 else -np.inf


@compiled
def sweep(
    grammar, weights, words, starts, order, lo, hi, root, unary_symbols, raised, skip_low, factors,
    log_z, low, rule_counts, unary_counts, word_counts, posteriors,
):  # fmt: skip
    """Fills log_z [b] and low [b] of the sentences order[lo:hi]; adds to their expected counts.

    factors [b] multiply the counts; where 0, or where values were too small and `skip_low`, the
    outside pass is left out.
    """
    for x in range(lo, hi):
        b = order[x]
        n = starts[b + 1] - starts[b]
        log_z[b], low[b] = -np.inf, False
        if n == 0:
            continue
        chart, low[b] = inside(grammar, weights, words, starts[b], n, unary_symbols, raised)
        log_z[b] = log_value(chart, root, n - 1)
        if factors[b] != 0 and log_z[b] > -np.inf and not (low[b] and skip_low):
            outside(
                grammar, weights, words, starts[b], chart, root, factors[b], rule_counts,
                unary_counts, word_counts, posteriors,
            )  # fmt: skip
