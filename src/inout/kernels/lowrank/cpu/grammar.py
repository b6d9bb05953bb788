"""Inside and outside passes of factored grammars in scaled arithmetic, element by element.

Scales are those of `pcfg.cpu.scaled`: the nonterminals over a span share an exponent of two. Each
span keeps what its symbols add up to for every latent value, as a left child and as a right one;
so splits are met by one multiplication for each value, and the rest are matrix products for all
spans of one width.

The passes are written for real and complex numbers. With weights w (1 + i h u) the imaginary parts
are h times the derivatives along u, up to terms of order h²: second derivatives need no code of
their own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.exponential import FAST
from inout.kernels.math.cpu.products import (
    add,
    add_product_of_columns,
    multiply,
    multiply_transposed,
)
from inout.kernels.pcfg.cpu.scaled import found_factors, log_scales, room_for, set_factors, settle

Array = NDArray[Any]


class Factors(NamedTuple):
    """Weights of the rules relative to the largest of each factor, or gradients by them.

    One set for each element, or one for all. Where `head` is [1 0 0], the latent value is the head.
    """

    head: Array  # [bh nt r]
    left: Array  # [bl r nt], of nonterminals
    left_words: Array  # [bl r pt]
    right: Array  # [br r nt]
    right_words: Array  # [br r pt]


class Arrays(NamedTuple):
    """Weights and the chart of them."""

    factors: Factors
    words: Array  # [b n pt]
    # [b n], -inf for words without any possible preterminal, else 0; real, of the words' precision
    word_sigmas: Array
    lengths: Array  # [b]
    lefts: Array  # [b n n r], the sum over B of left(r, B) beta(i, j, B), or of a word's symbols
    rights: Array  # [b n n r]
    betas: Array  # [b n n nt]
    sigmas: Array  # [b n n]


class Gradients(NamedTuple):
    """Gradients by the parts of a chart, as in `Arrays`."""

    words: Array  # [b n pt]
    lefts: Array  # [slots n n r]
    rights: Array  # [slots n n r]
    betas: Array  # [b n n nt]


@inner
def own(factor, b):
    """The place of an element's factor."""
    return b if factor.shape[0] > 1 else 0


@inner
def copy_rows(rows, table, width):
    """table[i, i + width - 1] = rows[i]."""
    for i in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            table[i, i + width - 1, c] = rows[i, c]


@inner
def take_rows(table, width, rows):
    """rows[i] = table[i, i + width - 1]."""
    for i in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            rows[i, c] = table[i, i + width - 1, c]


@inner(fastmath=FAST)
def add_scaled_product(left, right, factor, total):
    """total += factor left right, entry by entry."""
    for r in range(total.shape[0]):
        total[r] += factor * left[r] * right[r]


@inner
def gather(lefts, rights, i, j, factors, total):
    """Adds the splits of one span to total [r]."""
    for k in range(i, j):
        if factors[k - i] != 0:
            add_scaled_product(lefts[i, k], rights[k + 1, j], factors[k - i], total)


@inner
def meet_factors(arrays, b, rows, words, width):
    """Fills lefts and rights at a width, given rows [count symbols] of its spans' symbols."""
    f = arrays.factors
    left, right = (f.left_words, f.right_words) if words else (f.left, f.right)
    met = np.empty((rows.shape[0], left.shape[1]), rows.dtype)
    multiply_transposed(rows, left[own(left, b)], met)
    copy_rows(met, arrays.lefts[b], width)
    multiply_transposed(rows, right[own(right, b)], met)
    copy_rows(met, arrays.rights[b], width)


@compiled
def inside(arrays, lo, hi, tiny, floor, low):
    """Fills lefts, rights, betas and sigmas; low [b] says where a total fell below tiny.

    Every total has `floor` added to it. O(n³ r + n² s r) for an element.
    """
    n, nt, kind = arrays.betas.shape[1], arrays.betas.shape[3], arrays.words.dtype
    rank, head = arrays.lefts.shape[3], arrays.factors.head
    factors, logs = np.empty(n, arrays.word_sigmas.dtype), np.empty(n)
    sums, totals, rows = np.empty((n, rank), kind), np.empty((n, nt), kind), np.empty((n, nt), kind)
    for b in range(lo, hi):
        sigmas, length = arrays.sigmas[b], arrays.lengths[b]
        low[b] = False
        meet_factors(arrays, b, arrays.words[b, :length], True, 1)
        for width in range(2, length + 1):
            count = length - width + 1
            sums[:count] = 0
            for i in range(count):
                j = i + width - 1
                sigmas[i, j] = log_scales(sigmas, arrays.word_sigmas[b], i, j, logs)
                if sigmas[i, j] > -np.inf:
                    set_factors(logs, j - i, sigmas[i, j], factors)
                    gather(arrays.lefts[b], arrays.rights[b], i, j, factors, sums[i])
            if head.shape[1] > 0:
                multiply_transposed(sums[:count], head[own(head, b)], totals[:count])
            else:
                totals[:count] = sums[:count]
            totals[:count] += floor
            for i in range(count):
                j = i + width - 1
                sigmas[i, j], small = settle(totals[i], sigmas[i, j], tiny, rows[i])
                low[b] = low[b] or small
            copy_rows(rows[:count], arrays.betas[b], width)
            if width < length:
                meet_factors(arrays, b, rows[:count], False, width)


@inner(fastmath=FAST)
def back_through(left, right, factor, gradient, grad_left, grad_right, total):
    """Backward of `add_scaled_product`, which is done as well."""
    for r in range(total.shape[0]):
        weighted = factor * gradient[r]
        grad_left[r] += weighted * right[r]
        grad_right[r] += weighted * left[r]
        total[r] += factor * left[r] * right[r]


@inner
def spread(arrays, b, i, j, factors, gradient, grads, total):
    """Passes the gradient by the sum [r] of one span on to its parts, and fills that sum again."""
    lefts, rights = arrays.lefts[b], arrays.rights[b]
    for k in range(i, j):
        if factors[k - i] != 0:
            back_through(
                lefts[i, k], rights[k + 1, j], factors[k - i], gradient,
                grads.lefts[i, k], grads.rights[k + 1, j], total,
            )  # fmt: skip


@inner
def back_to_symbols(arrays, b, rows, words, width, grads, made, slot, out):
    """Backward of `meet_factors`: fills out [count symbols], adds to the factors' gradients."""
    f = arrays.factors
    left, right = (f.left_words, f.right_words) if words else (f.left, f.right)
    by_left, by_right = (made.left_words, made.right_words) if words else (made.left, made.right)
    met, part = np.empty((rows.shape[0], left.shape[1]), rows.dtype), np.empty_like(out)
    take_rows(grads.lefts, width, met)
    multiply(met, left[own(left, b)], out)
    add_product_of_columns(met, rows, by_left[b if left.shape[0] > 1 else slot])
    take_rows(grads.rights, width, met)
    multiply(met, right[own(right, b)], part)
    add_product_of_columns(met, rows, by_right[b if right.shape[0] > 1 else slot])
    add(part.reshape(part.size), out.reshape(out.size))


@inner
def back_through_rules(arrays, b, length, tops, width, grads, made, slot, sums, grad_sums):
    """From the gradients by the betas of one width to those by the lefts and rights within."""
    count, head = length - width + 1, arrays.factors.head
    factors, logs = np.empty(length, arrays.word_sigmas.dtype), np.empty(length)
    if head.shape[1] > 0:
        multiply(tops, head[own(head, b)], grad_sums)
    else:
        grad_sums[:] = tops
    sums[:] = 0
    for i in range(count):
        j = i + width - 1
        if found_factors(arrays, b, i, j, logs, factors):
            spread(arrays, b, i, j, factors, grad_sums[i], grads, sums[i])
    if head.shape[1] > 0:
        add_product_of_columns(tops, sums, made.head[b if head.shape[0] > 1 else slot])


@compiled
def outside(arrays, lo, hi, root_gradient, gradients, made, slot):
    """Gradients of the sum over elements of root_gradient[b] . beta of the whole element.

    Fills those by the betas and the words in `gradients` [b ...]; adds to `made`, those by the
    factors, at place `slot`, or b where each element has factors of its own. Those by lefts and
    rights, at `slot`, are scratch memory. The gradient by a beta that is 0 is set to 0: it would
    be finite, but what it is passed on to, from span to span, might not.
    """
    n, nt, kind = arrays.betas.shape[1], arrays.betas.shape[3], arrays.words.dtype
    rank = arrays.lefts.shape[3]
    rows, tops = np.empty((n, nt), kind), np.empty((n, nt), kind)
    sums, grad_sums = np.empty((n, rank), kind), np.empty((n, rank), kind)
    for b in range(lo, hi):
        length = arrays.lengths[b]
        grads = room_for(gradients, b, slot, b)
        if length < 2:
            continue
        for width in range(length, 1, -1):
            count = length - width + 1
            take_rows(arrays.betas[b], width, rows[:count])
            if width == length:
                tops[0] = root_gradient[b]
            else:
                back_to_symbols(
                    arrays, b, rows[:count], False, width, grads, made, slot, tops[:count]
                )
            for i in range(count):
                for a in range(nt):
                    if rows[i, a] == 0:
                        tops[i, a] = 0
            copy_rows(tops[:count], grads.betas, width)
            back_through_rules(
                arrays, b, length, tops[:count], width, grads, made, slot,
                sums[:count], grad_sums[:count],
            )  # fmt: skip
        back_to_symbols(
            arrays, b, arrays.words[b, :length], True, 1, grads, made, slot, grads.words[:length]
        )
