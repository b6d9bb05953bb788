"""Inside and outside passes of weighted grammars in scaled arithmetic, element by element.

A span's nonterminals share one scale: the largest of betas [n n nt] is in [1/2, 1), and sigmas
[n n] are the scales' exponents of two, whole numbers, so that scaling never rounds; -inf where
nothing is possible. For all spans of one width
the sums over splits are made first, an nt x nt matrix of products for each, and one matrix product
then brings in the rules. A word on either side of a split is met through matrices made once for
each position (`meet_words`), so the many rules with preterminals cost little.
"""

from __future__ import annotations

import math
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

Array = NDArray[Any]


class Arrays(NamedTuple):
    """Weights, all relative to their largest, and the chart of them.

    Of the rules' weights there is one set for each element, or one for all (bs = 1).
    """

    both: Array  # [bs nt*nt nt], the rules with two nonterminals, head last
    left: Array  # [bs nt pt s], those whose left child is a preterminal
    # [bs nt pt nt], those with a nonterminal on the left and a preterminal on the right, which
    # comes second here
    right: Array
    words: Array  # [b n pt]
    word_sigmas: Array  # [b n], -inf for words without any possible preterminal, else 0
    lengths: Array  # [b]
    lefts: Array  # [b nt n s], the sum over B of words(i, B) rule(A, B, C)
    rights: Array  # [b nt n nt], the sum over C of rule(A, B, C) words(j, C), for nonterminals B
    betas: Array  # [b n n nt]
    sigmas: Array  # [b n n]


class Changes(NamedTuple):
    """Derivatives of what `Arrays` has, along a direction, or gradients by it."""

    both: Array
    left: Array
    right: Array
    words: Array
    lefts: Array
    rights: Array
    betas: Array


class Element(NamedTuple):
    """The parts of spans in one element: values, their derivatives, or gradients."""

    words: Array  # [n pt]
    lefts: Array  # [nt n s]
    rights: Array  # [nt n nt]
    betas: Array  # [n n nt]


class Product(NamedTuple):
    """A word beside something: sums over c of matrices[a, place, first + c] vector[c]."""

    matrices: Array
    place: np.int64
    first: np.uintp  # unsigned: of a number that may be negative loops are not vectorised
    vector: Array


class Row(NamedTuple):
    """Of one span, on the way down."""

    gradient: Array  # [nt], by its beta
    grad_pairs: Array  # [nt*nt], by its pairs
    pairs: Array  # [nt*nt], the sum over splits again, in the span's own scale


@inner(returns_arrays=True)
def element_of(arrays, b):
    """The part of `Arrays` or `Changes` that belongs to element b."""
    return Element(arrays.words[b], arrays.lefts[b], arrays.rights[b], arrays.betas[b])


@inner(returns_arrays=True)
def beside_word(element, i, j, k):
    """The product for the split of i..j after k = i, or after k = j - 1."""
    if i + 1 == j:
        return Product(element.lefts, i, np.uintp(element.betas.shape[2]), element.words[j])
    first = np.uintp(0)
    if k == i:
        return Product(element.lefts, i, first, element.betas[i + 1, j])
    return Product(element.rights, j, first, element.betas[i, j - 1])


@inner
def meet_words(left, right, words, lefts, rights):
    """Fills the lefts [nt n s] and rights [nt n nt] of an element."""
    for a in range(left.shape[0]):
        multiply(words, left[a], lefts[a])
        multiply(words, right[a], rights[a])


@inner(fastmath=FAST)
def add_product(matrices, place, first, vector, factor, total):
    """total[a] += factor * sum over c of matrices[a, place, first + c] vector[c]."""
    for a in range(total.shape[0]):
        entry = factor * 0
        for c in range(vector.shape[0]):
            entry += matrices[a, place, first + np.uintp(c)] * vector[c]
        total[a] += factor * entry


@inner(fastmath=FAST)
def add_outer(left, right, factor, pairs):
    """pairs += factor * left right^T; pairs is flat."""
    size = right.shape[0]
    for p in range(left.shape[0]):
        weight = factor * left[p]
        for q in range(size):
            pairs[p * size + q] += weight * right[q]


@inner
def log_scales(sigmas, word_sigmas, i, j, logs):
    """Fills logs [n] with the exponent of each split of i..j; returns the largest."""
    top = -np.inf
    for k in range(i, j):
        left = word_sigmas[i] if k == i else sigmas[i, k]
        right = word_sigmas[j] if k + 1 == j else sigmas[k + 1, j]
        logs[k - i] = left + right
        top = max(top, logs[k - i])
    return top


@inner
def set_factors(logs, count, shift, factors):
    """Fills factors [n] with the scales of `count` splits relative to 2**shift."""
    for k in range(count):
        factors[k] = math.ldexp(1.0, int(logs[k] - shift)) if logs[k] > -np.inf else 0.0


@inner
def new_factors(arrays, b, i, j, logs, factors):
    """Sets the scale of a span, and factors [n] of its splits; whether it is possible."""
    sigma = log_scales(arrays.sigmas[b], arrays.word_sigmas[b], i, j, logs)
    arrays.sigmas[b, i, j] = sigma
    if sigma > -np.inf:
        set_factors(logs, j - i, sigma, factors)
    return sigma > -np.inf


@inner
def found_factors(arrays, b, i, j, logs, factors):
    """Fills factors [n] of the splits of a span in a finished chart; whether it is possible."""
    sigma = arrays.sigmas[b, i, j]
    if sigma > -np.inf:
        log_scales(arrays.sigmas[b], arrays.word_sigmas[b], i, j, logs)
        set_factors(logs, j - i, sigma, factors)
    return sigma > -np.inf


@inner
def gather(element, i, j, factors, total, pairs):
    """Adds the splits of one span, each times its factor, to total [nt] and pairs [nt*nt].

    total has what a word on one side contributes; pairs are still to meet the rules.
    """
    for k in range(i, j):
        factor = factors[k - i]
        if factor != 0 and (k == i or k + 1 == j):
            own = beside_word(element, i, j, k)
            add_product(own.matrices, own.place, own.first, own.vector, factor, total)
        elif factor != 0:
            add_outer(element.betas[i, k], element.betas[k + 1, j], factor, pairs)


@inner
def settle(total, scale, tiny, beta):
    """Writes beta [nt], the largest below 1: (its exponent, whether some are too small).

    Of complex numbers the real parts say how large they are.
    Totals below tiny are set to 0: that is right if the symbol is impossible; otherwise the
    element may have to be recomputed. tiny = 0 computes only possibility: 1 or 0, all scales 1.
    """
    top, low = total[0].real, False
    for a in range(total.shape[0]):
        top = max(top, total[a].real)
    for a in range(total.shape[0]):
        beta[a] = 0
    # Not `top < tiny`: NaN, too, must send the element to log space.
    if not top >= tiny or top == 0:
        return -np.inf, True
    exponent = math.frexp(top)[1]
    factor = math.ldexp(1.0, -exponent)
    for a in range(total.shape[0]):
        if tiny == 0:
            beta[a] = 1 if total[a].real > 0 else 0
        elif total[a].real >= tiny:
            beta[a] = total[a] * factor
        else:
            low = True
    return (scale + exponent if tiny > 0 else 0.0), low


@compiled
def inside(arrays, lo, hi, tiny, floor, low):
    """Fills lefts, rights, betas and sigmas; low [b] says where a total fell below tiny.

    Every total has `floor` added to it. O(n³ nt² + n² nt³ + n nt pt s) for an element.
    """
    n, nt, kind = arrays.betas.shape[1], arrays.betas.shape[3], arrays.words.dtype
    totals, products = np.empty((n, nt), kind), np.empty((n, nt), kind)
    pairs, factors, logs = np.empty((n, nt * nt), kind), np.empty(n, kind), np.empty(n)
    for b in range(lo, hi):
        own = b if arrays.both.shape[0] > 1 else 0
        element, sigmas = element_of(arrays, b), arrays.sigmas[b]
        meet_words(
            arrays.left[own], arrays.right[own], element.words, element.lefts, element.rights
        )
        low[b] = False
        for width in range(2, arrays.lengths[b] + 1):
            count = arrays.lengths[b] - width + 1
            totals[:count] = floor
            if width > 3:
                pairs[:count] = 0
            for i in range(count):
                j = i + width - 1
                if new_factors(arrays, b, i, j, logs, factors):
                    gather(element, i, j, factors, totals[i], pairs[i])
            if width > 3:
                multiply(pairs[:count], arrays.both[own], products[:count])
                add(products[:count].reshape(count * nt), totals[:count].reshape(count * nt))
            for i in range(count):
                j = i + width - 1
                sigmas[i, j], small = settle(totals[i], sigmas[i, j], tiny, element.betas[i, j])
                low[b] = low[b] or small


@inner(fastmath=FAST)
def back_through(product, factor, gradient, grad):
    """Backward of `add_product`, given the gradient by the total; adds to what `grad` is of."""
    matrices, place, first, vector = product
    for a in range(gradient.shape[0]):
        weight = factor * gradient[a]
        for c in range(vector.shape[0]):
            grad.matrices[a, place, first + np.uintp(c)] += weight * vector[c]
            grad.vector[c] += weight * matrices[a, place, first + np.uintp(c)]


@inner(fastmath=FAST)
def back_through_outer(left, right, factor, row, grad_left, grad_right):
    """Backward of `add_outer`, which is done as well; pairs are flat."""
    size, grad_pairs, pairs = right.shape[0], row.grad_pairs, row.pairs
    for p in range(left.shape[0]):
        weight = factor * left[p]
        total = factor * 0
        for q in range(size):
            entry = grad_pairs[p * size + q]
            total += entry * right[q]
            grad_right[q] += weight * entry
            pairs[p * size + q] += weight * right[q]
        grad_left[p] += factor * total


@inner
def spread(element, i, j, factors, row, grads):
    """Propagates the gradient of a span's beta to its parts, and fills row.pairs."""
    betas, by_betas = element.betas, grads.betas
    for k in range(i, j):
        factor = factors[k - i]
        if factor != 0 and (k == i or k + 1 == j):
            own, grad = beside_word(element, i, j, k), beside_word(grads, i, j, k)
            back_through(own, factor, row.gradient, grad)
        elif factor != 0:
            back_through_outer(
                betas[i, k], betas[k + 1, j], factor, row, by_betas[i, k], by_betas[k + 1, j]
            )


@inner
def back_to_words(left, right, words, grads, grad_left, grad_right):
    """Backward of `meet_words`; adds to the gradients of the rules and the words."""
    part = np.empty(words.shape, words.dtype)
    for a in range(left.shape[0]):
        for rules, given, out in (
            (left[a], grads.lefts[a], grad_left[a]),
            (right[a], grads.rights[a], grad_right[a]),
        ):
            add_product_of_columns(words, given, out)
            multiply_transposed(given, rules, part)
            add(part.reshape(part.size), grads.words.reshape(part.size))


@inner(returns_arrays=True)
def room_for(gradients, b, slot, place):
    """Zeros for the gradients by what spans of element b are made of; by betas at a place."""
    room = Element(
        gradients.words[b], gradients.lefts[slot], gradients.rights[slot], gradients.betas[place]
    )
    room.words[:] = 0
    room.lefts[:] = 0
    room.rights[:] = 0
    room.betas[:] = 0
    return room


@inner
def take_tops(element, grads, width, count, tops):
    """tops [count nt] = gradients by the betas of spans of this width; 0 where a beta is 0."""
    for i in range(count):
        j = i + width - 1
        for a in range(tops.shape[1]):
            if element.betas[i, j, a] == 0:
                grads.betas[i, j, a] = 0
            tops[i, a] = grads.betas[i, j, a]


@compiled
def outside(arrays, lo, hi, root_gradient, gradients, slot):
    """Gradients of the sum over elements of root_gradient[b] . beta of the whole element.

    Fills those by the betas and the words; adds to those by the rules at place `slot`, or b where
    each element has rules of its own. Those by lefts and rights, at `slot`, are scratch memory.
    The gradient by a beta that is 0 is set to 0: it would be finite, but what it is passed on to,
    from span to span, might not.
    """
    n, nt, kind = arrays.betas.shape[1], arrays.betas.shape[3], arrays.words.dtype
    tops, factors, logs = np.empty((n, nt), kind), np.empty(n, kind), np.empty(n)
    pairs, grad_pairs = np.empty((n, nt * nt), kind), np.empty((n, nt * nt), kind)
    for b in range(lo, hi):
        own, target = (b, b) if arrays.both.shape[0] > 1 else (0, slot)
        element, length = element_of(arrays, b), arrays.lengths[b]
        grads = room_for(gradients, b, slot, b)
        if length > 1:
            add(root_gradient[b], grads.betas[0, length - 1])
        for width in range(length, 1, -1):
            count = length - width + 1
            take_tops(element, grads, width, count, tops)
            if width > 3:
                multiply_transposed(tops[:count], arrays.both[own], grad_pairs[:count])
                pairs[:count] = 0
            for i in range(count):
                j = i + width - 1
                if found_factors(arrays, b, i, j, logs, factors):
                    row = Row(tops[i], grad_pairs[i], pairs[i])
                    spread(element, i, j, factors, row, grads)
            if width > 3:
                add_product_of_columns(pairs[:count], tops[:count], gradients.both[target])
        back_to_words(
            arrays.left[own], arrays.right[own], element.words, grads,
            gradients.left[target], gradients.right[target],
        )  # fmt: skip
