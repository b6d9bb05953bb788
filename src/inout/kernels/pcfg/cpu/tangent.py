"""Derivatives along a direction of the two passes of `scaled.py`.

Every quantity x has a companion d_x, its derivative in the same scale; both passes are sums of
products, so each product gives two terms. Shapes as there.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled
from inout.kernels.math.cpu.exponential import FAST
from inout.kernels.math.cpu.products import (
    add,
    add_product_of_columns,
    multiply,
    multiply_transposed,
)
from inout.kernels.pcfg.cpu.scaled import add_product, back_through


@compiled(fastmath=FAST)
def add_outer(left, right, d_left, d_right, factor, pairs, d_pairs):
    """pairs += factor * left right^T and its derivative; pairs are flat."""
    size = right.shape[0]
    for p in range(left.shape[0]):
        weight, d_weight = factor * left[p], factor * d_left[p]
        for q in range(size):
            pairs[p * size + q] += weight * right[q]
            d_pairs[p * size + q] += d_weight * right[q] + weight * d_right[q]


@compiled
def add_both(matrices, d_matrices, place, first, vector, d_vector, factor, d_total):
    """Derivative of `add_product`."""
    add_product(d_matrices, place, first, vector, factor, d_total)
    add_product(matrices, place, first, d_vector, factor, d_total)


@compiled
def gather(
    lefts, rights, words, betas, sigmas, word_sigmas, top, d_lefts, d_rights, d_words, d_betas,
    width, i, d_total, pairs, d_pairs,
):  # fmt: skip
    """Adds one span's splits to d_total [nt], pairs and d_pairs [nt*nt], in the span's scale."""
    nt, kind = betas.shape[2], betas.dtype.type
    j = i + width - 1
    shift = sigmas[i, j] - top
    if width == 2:
        factor = kind(math.exp(word_sigmas[i] + word_sigmas[j] - shift))
        add_both(lefts, d_lefts, i, nt, words[j], d_words[j], factor, d_total)
        return
    if word_sigmas[i] + sigmas[i + 1, j] > -np.inf:
        factor = kind(math.exp(word_sigmas[i] + sigmas[i + 1, j] - shift))
        add_both(lefts, d_lefts, i, 0, betas[i + 1, j], d_betas[i + 1, j], factor, d_total)
    if sigmas[i, j - 1] + word_sigmas[j] > -np.inf:
        factor = kind(math.exp(sigmas[i, j - 1] + word_sigmas[j] - shift))
        add_both(rights, d_rights, j, 0, betas[i, j - 1], d_betas[i, j - 1], factor, d_total)
    for k in range(i + 1, j - 1):
        if sigmas[i, k] + sigmas[k + 1, j] > -np.inf:
            factor = kind(math.exp(sigmas[i, k] + sigmas[k + 1, j] - shift))
            add_outer(
                betas[i, k], betas[k + 1, j], d_betas[i, k], d_betas[k + 1, j],
                factor, pairs, d_pairs,
            )  # fmt: skip


@compiled
def meet_words(left, right, words, d_left, d_right, d_words, d_lefts, d_rights):
    """Fills the derivatives of what `scaled.meet_words` makes."""
    for a in range(left.shape[0]):
        for rules, d_rules, out in (
            (left[a], d_left[a], d_lefts[a]),
            (right[a], d_right[a], d_rights[a]),
        ):
            part = np.empty(out.shape, out.dtype)
            multiply(d_words, rules, out)
            multiply(words, d_rules, part)
            add(part.reshape(part.size), out.reshape(part.size))


@compiled
def inside(
    both, left, right, words, word_sigmas, tops, lengths, lo, hi, lefts, rights, betas, sigmas,
    d_both, d_left, d_right, d_words, d_lefts, d_rights, d_betas,
):  # fmt: skip
    """Fills d_lefts, d_rights and d_betas, the derivatives in the scales of the chart.

    A beta that was set to 0 has no derivative.
    """
    n, nt = betas.shape[1], betas.shape[3]
    d_totals, products = np.empty((n, nt), words.dtype), np.empty((n, nt), words.dtype)
    pairs, d_pairs = np.empty((n, nt * nt), words.dtype), np.empty((n, nt * nt), words.dtype)
    for b in range(lo, hi):
        own = b if both.shape[0] > 1 else 0
        meet_words(
            left[own], right[own], words[b], d_left[own], d_right[own], d_words[b],
            d_lefts[b], d_rights[b],
        )  # fmt: skip
        d_betas[b] = 0
        for width in range(2, lengths[b] + 1):
            count = lengths[b] - width + 1
            d_totals[:count] = 0
            if width > 3:
                pairs[:count] = 0
                d_pairs[:count] = 0
            for i in range(count):
                if sigmas[b, i, i + width - 1] > -np.inf:
                    gather(
                        lefts[b], rights[b], words[b], betas[b], sigmas[b], word_sigmas[b],
                        tops[own], d_lefts[b], d_rights[b], d_words[b], d_betas[b],
                        width, i, d_totals[i], pairs[i], d_pairs[i],
                    )  # fmt: skip
            if width > 3:
                flat = d_totals[:count].reshape(count * nt)
                multiply(pairs[:count], d_both[own], products[:count])
                add(products[:count].reshape(count * nt), flat)
                multiply(d_pairs[:count], both[own], products[:count])
                add(products[:count].reshape(count * nt), flat)
            for i in range(count):
                j = i + width - 1
                for a in range(nt):
                    if betas[b, i, j, a] > 0:
                        d_betas[b, i, j, a] = d_totals[i, a]


@compiled(fastmath=FAST)
def back_through_outer(
    left, right, d_left, d_right, factor, grad_pairs, d_grad_pairs,
    grad_left, grad_right, d_grad_left, d_grad_right, pairs, d_pairs,
):  # fmt: skip
    """Backward of `add_outer` with its derivative; pairs and d_pairs are filled as well."""
    size = right.shape[0]
    for p in range(left.shape[0]):
        weight, d_weight = factor * left[p], factor * d_left[p]
        total, d_total = factor * 0, factor * 0
        for q in range(size):
            entry, d_entry = grad_pairs[p * size + q], d_grad_pairs[p * size + q]
            total += entry * right[q]
            d_total += d_entry * right[q] + entry * d_right[q]
            grad_right[q] += weight * entry
            d_grad_right[q] += d_weight * entry + weight * d_entry
            pairs[p * size + q] += weight * right[q]
            d_pairs[p * size + q] += d_weight * right[q] + weight * d_right[q]
        grad_left[p] += factor * total
        d_grad_left[p] += factor * d_total


@compiled
def back_through_both(
    matrices, d_matrices, place, first, vector, d_vector, factor, gradient, d_gradient,
    grad_matrices, d_grad_matrices, grad_vector, d_grad_vector,
):  # fmt: skip
    """`back_through` and its derivative."""
    back_through(matrices, place, first, vector, factor, gradient, grad_matrices, grad_vector)
    back_through(matrices, place, first, vector, factor, d_gradient, d_grad_matrices, d_grad_vector)
    back_through(
        d_matrices, place, first, d_vector, factor, gradient, d_grad_matrices, d_grad_vector
    )


@compiled
def spread(
    lefts, rights, words, betas, sigmas, word_sigmas, top, d_lefts, d_rights, d_words, d_betas,
    width, i, gradient, d_gradient, grad_pairs, d_grad_pairs, pairs, d_pairs,
    grad_betas, grad_lefts, grad_rights, grad_words,
    d_grad_betas, d_grad_lefts, d_grad_rights, d_grad_words,
):  # fmt: skip
    """`scaled.spread` together with its derivative along the direction."""
    nt, kind = betas.shape[2], betas.dtype.type
    j = i + width - 1
    shift = sigmas[i, j] - top
    if width == 2:
        factor = kind(math.exp(word_sigmas[i] + word_sigmas[j] - shift))
        back_through_both(
            lefts, d_lefts, i, nt, words[j], d_words[j], factor, gradient, d_gradient,
            grad_lefts, d_grad_lefts, grad_words[j], d_grad_words[j],
        )  # fmt: skip
        return
    if word_sigmas[i] + sigmas[i + 1, j] > -np.inf:
        factor = kind(math.exp(word_sigmas[i] + sigmas[i + 1, j] - shift))
        back_through_both(
            lefts, d_lefts, i, 0, betas[i + 1, j], d_betas[i + 1, j], factor, gradient, d_gradient,
            grad_lefts, d_grad_lefts, grad_betas[i + 1, j], d_grad_betas[i + 1, j],
        )  # fmt: skip
    if sigmas[i, j - 1] + word_sigmas[j] > -np.inf:
        factor = kind(math.exp(sigmas[i, j - 1] + word_sigmas[j] - shift))
        back_through_both(
            rights, d_rights, j, 0, betas[i, j - 1], d_betas[i, j - 1], factor, gradient,
            d_gradient, grad_rights, d_grad_rights, grad_betas[i, j - 1], d_grad_betas[i, j - 1],
        )  # fmt: skip
    for k in range(i + 1, j - 1):
        if sigmas[i, k] + sigmas[k + 1, j] > -np.inf:
            factor = kind(math.exp(sigmas[i, k] + sigmas[k + 1, j] - shift))
            back_through_outer(
                betas[i, k], betas[k + 1, j], d_betas[i, k], d_betas[k + 1, j], factor,
                grad_pairs, d_grad_pairs, grad_betas[i, k], grad_betas[k + 1, j],
                d_grad_betas[i, k], d_grad_betas[k + 1, j], pairs, d_pairs,
            )  # fmt: skip


@compiled
def back_to_words(
    left, right, words, d_left, d_right, d_words,
    grad_lefts, grad_rights, d_grad_lefts, d_grad_rights,
    grad_left, grad_right, grad_words, d_grad_left, d_grad_right, d_grad_words,
):  # fmt: skip
    """Backward of meeting the words, with its derivative; adds to what it fills."""
    part = np.empty(words.shape, words.dtype)
    flat = part.reshape(part.size)
    for a in range(left.shape[0]):
        for rules, d_rules, given, d_given, out, d_out in (
            (left[a], d_left[a], grad_lefts[a], d_grad_lefts[a], grad_left[a], d_grad_left[a]),
            (
                right[a],
                d_right[a],
                grad_rights[a],
                d_grad_rights[a],
                grad_right[a],
                d_grad_right[a],
            ),
        ):
            add_product_of_columns(words, given, out)
            add_product_of_columns(words, d_given, d_out)
            add_product_of_columns(d_words, given, d_out)
            multiply_transposed(given, rules, part)
            add(flat, grad_words.reshape(part.size))
            multiply_transposed(d_given, rules, part)
            add(flat, d_grad_words.reshape(part.size))
            multiply_transposed(given, d_rules, part)
            add(flat, d_grad_words.reshape(part.size))


@compiled
def outside(
    both, left, right, words, word_sigmas, tops, lengths, lo, hi, lefts, rights, betas, sigmas,
    d_both, d_left, d_right, d_words, d_lefts, d_rights, d_betas, root_gradient, d_root_gradient,
    grad_both, grad_left, grad_right, grad_words,
    d_grad_both, d_grad_left, d_grad_right, d_grad_words, slot,
):  # fmt: skip
    """`scaled.outside` with its derivative; the gradients by the betas are not kept."""
    n, nt, kind = betas.shape[1], betas.shape[3], words.dtype
    gradients, d_gradients = np.empty((n, nt), kind), np.empty((n, nt), kind)
    pairs, d_pairs = np.empty((n, nt * nt), kind), np.empty((n, nt * nt), kind)
    grad_pairs, d_grad_pairs = np.empty((n, nt * nt), kind), np.empty((n, nt * nt), kind)
    part = np.empty((n, nt * nt), kind)
    grad_betas, d_grad_betas = np.empty((n, n, nt), kind), np.empty((n, n, nt), kind)
    grad_lefts, d_grad_lefts = np.empty(lefts.shape[1:], kind), np.empty(lefts.shape[1:], kind)
    grad_rights, d_grad_rights = np.empty(rights.shape[1:], kind), np.empty(rights.shape[1:], kind)
    for b in range(lo, hi):
        own = b if both.shape[0] > 1 else 0
        target = b if both.shape[0] > 1 else slot
        grad_betas[:] = 0
        d_grad_betas[:] = 0
        grad_lefts[:] = 0
        d_grad_lefts[:] = 0
        grad_rights[:] = 0
        d_grad_rights[:] = 0
        grad_words[b] = 0
        d_grad_words[b] = 0
        if lengths[b] > 1:
            grad_betas[0, lengths[b] - 1] = root_gradient[b]
            d_grad_betas[0, lengths[b] - 1] = d_root_gradient[b]
        for width in range(lengths[b], 1, -1):
            count = lengths[b] - width + 1
            for i in range(count):
                j = i + width - 1
                for a in range(nt):
                    possible = betas[b, i, j, a] > 0
                    gradients[i, a] = grad_betas[i, j, a] if possible else 0
                    d_gradients[i, a] = d_grad_betas[i, j, a] if possible else 0
            if width > 3:
                size = count * nt * nt
                multiply_transposed(gradients[:count], both[own], grad_pairs[:count])
                multiply_transposed(d_gradients[:count], both[own], d_grad_pairs[:count])
                multiply_transposed(gradients[:count], d_both[own], part[:count])
                add(part[:count].reshape(size), d_grad_pairs[:count].reshape(size))
                pairs[:count] = 0
                d_pairs[:count] = 0
            for i in range(count):
                if sigmas[b, i, i + width - 1] > -np.inf:
                    spread(
                        lefts[b], rights[b], words[b], betas[b], sigmas[b], word_sigmas[b],
                        tops[own], d_lefts[b], d_rights[b], d_words[b], d_betas[b], width, i,
                        gradients[i], d_gradients[i], grad_pairs[i], d_grad_pairs[i],
                        pairs[i], d_pairs[i], grad_betas, grad_lefts, grad_rights, grad_words[b],
                        d_grad_betas, d_grad_lefts, d_grad_rights, d_grad_words[b],
                    )  # fmt: skip
            if width > 3:
                add_product_of_columns(pairs[:count], gradients[:count], grad_both[target])
                add_product_of_columns(pairs[:count], d_gradients[:count], d_grad_both[target])
                add_product_of_columns(d_pairs[:count], gradients[:count], d_grad_both[target])
        back_to_words(
            left[own], right[own], words[b], d_left[own], d_right[own], d_words[b],
            grad_lefts, grad_rights, d_grad_lefts, d_grad_rights,
            grad_left[target], grad_right[target], grad_words[b],
            d_grad_left[target], d_grad_right[target], d_grad_words[b],
        )  # fmt: skip
