"""Derivatives along a direction of the two passes of `scaled.py`.

Every quantity x has a companion d_x, its derivative in the same scale; both passes are sums of
products, so each product gives two terms. Shapes as there.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu import products
from inout.kernels.math.cpu.exponential import FAST
from inout.kernels.pcfg.cpu import scaled


@inner(fastmath=FAST)
def add_outer(left, right, d_left, d_right, factor, pairs, d_pairs):
    """pairs += factor * left right^T and its derivative; pairs are flat."""
    size = right.shape[0]
    for p in range(left.shape[0]):
        weight, d_weight = factor * left[p], factor * d_left[p]
        for q in range(size):
            pairs[p * size + q] += weight * right[q]
            d_pairs[p * size + q] += d_weight * right[q] + weight * d_right[q]


@inner(returns_arrays=True)
def beside_word(element, d_element, i, j, k):
    """`scaled.beside_word` of an element and of its derivative."""
    return scaled.beside_word(element, i, j, k), scaled.beside_word(d_element, i, j, k)


@inner
def gather(element, d_element, i, j, factors, d_total, pairs, d_pairs):
    """Adds one span's splits to d_total [nt], pairs and d_pairs [nt*nt], in the span's scale."""
    betas, d_betas = element.betas, d_element.betas
    for k in range(i, j):
        factor = factors[k - i]
        if factor != 0 and (k == i or k + 1 == j):
            own, d_own = beside_word(element, d_element, i, j, k)
            scaled.add_product(d_own.matrices, own.place, own.first, own.vector, factor, d_total)
            scaled.add_product(own.matrices, own.place, own.first, d_own.vector, factor, d_total)
        elif factor != 0:
            add_outer(
                betas[i, k], betas[k + 1, j], d_betas[i, k], d_betas[k + 1, j],
                factor, pairs, d_pairs,
            )  # fmt: skip


@inner
def multiply_both(x, d_x, y, d_y, part, out):
    """out = d_x @ y + x @ d_y; part is scratch memory."""
    products.multiply(d_x, y, out)
    products.multiply(x, d_y, part)
    products.add(part.reshape(part.size), out.reshape(part.size))


@inner
def meet_words(arrays, direction, own, b):
    """Fills the derivatives of what `scaled.meet_words` makes for element b."""
    for a in range(arrays.left.shape[1]):
        for rules, d_rules, out in (
            (arrays.left[own, a], direction.left[own, a], direction.lefts[b, a]),
            (arrays.right[own, a], direction.right[own, a], direction.rights[b, a]),
        ):
            part = np.empty(out.shape, out.dtype)
            multiply_both(arrays.words[b], direction.words[b], rules, d_rules, part, out)


@compiled
def inside(arrays, direction, lo, hi):
    """Fills the direction's lefts, rights and betas, in the scales of the chart.

    A beta that was set to 0 has no derivative.
    """
    n, nt, kind = arrays.betas.shape[1], arrays.betas.shape[3], arrays.words.dtype
    d_totals, inner = np.empty((n, nt), kind), np.empty((n, nt), kind)
    part, factors, logs = np.empty((n, nt), kind), np.empty(n, kind), np.empty(n)
    pairs, d_pairs = np.empty((n, nt * nt), kind), np.empty((n, nt * nt), kind)
    for b in range(lo, hi):
        own = b if arrays.both.shape[0] > 1 else 0
        element, d_element = scaled.element_of(arrays, b), scaled.element_of(direction, b)
        length = arrays.lengths[b]
        meet_words(arrays, direction, own, b)
        d_element.betas[:] = 0
        for width in range(2, length + 1):
            count = length - width + 1
            d_totals[:count] = 0
            if width > 3:
                pairs[:count] = 0
                d_pairs[:count] = 0
            for i in range(count):
                j = i + width - 1
                if scaled.found_factors(arrays, b, i, j, logs, factors):
                    gather(element, d_element, i, j, factors, d_totals[i], pairs[i], d_pairs[i])
            if width > 3:
                multiply_both(
                    pairs[:count], d_pairs[:count], arrays.both[own], direction.both[own],
                    part[:count], inner[:count],
                )  # fmt: skip
                products.add(
                    inner[:count].reshape(count * nt), d_totals[:count].reshape(count * nt)
                )
            for i in range(count):
                j = i + width - 1
                for a in range(nt):
                    if element.betas[i, j, a] > 0:
                        d_element.betas[i, j, a] = d_totals[i, a]


@inner(fastmath=FAST)
def back_through_outer(
    left, right, d_left, d_right, factor, row, d_row,
    grad_left, grad_right, d_grad_left, d_grad_right,
):  # fmt: skip
    """Backward of `add_outer` with its derivative; the rows' pairs are filled as well."""
    size, grad_pairs, d_grad_pairs = right.shape[0], row.grad_pairs, d_row.grad_pairs
    for p in range(left.shape[0]):
        weight, d_weight = factor * left[p], factor * d_left[p]
        total, d_total = factor * 0, factor * 0
        for q in range(size):
            entry, d_entry = grad_pairs[p * size + q], d_grad_pairs[p * size + q]
            total += entry * right[q]
            d_total += d_entry * right[q] + entry * d_right[q]
            grad_right[q] += weight * entry
            d_grad_right[q] += d_weight * entry + weight * d_entry
            row.pairs[p * size + q] += weight * right[q]
            d_row.pairs[p * size + q] += d_weight * right[q] + weight * d_right[q]
        grad_left[p] += factor * total
        d_grad_left[p] += factor * d_total


@inner
def spread(element, d_element, i, j, factors, row, d_row, grads, d_grads):
    """`scaled.spread` together with its derivative along the direction."""
    betas, d_betas = element.betas, d_element.betas
    for k in range(i, j):
        factor = factors[k - i]
        if factor != 0 and (k == i or k + 1 == j):
            own, d_own = beside_word(element, d_element, i, j, k)
            grad, d_grad = beside_word(grads, d_grads, i, j, k)
            scaled.back_through(own, factor, row.gradient, grad)
            scaled.back_through(own, factor, d_row.gradient, d_grad)
            scaled.back_through(d_own, factor, row.gradient, d_grad)
        elif factor != 0:
            back_through_outer(
                betas[i, k], betas[k + 1, j], d_betas[i, k], d_betas[k + 1, j], factor, row, d_row,
                grads.betas[i, k], grads.betas[k + 1, j],
                d_grads.betas[i, k], d_grads.betas[k + 1, j],
            )  # fmt: skip


@inner
def back_to_words(arrays, direction, own, b, grads, d_grads, gradients, d_gradients, target):
    """`scaled.back_to_words` and its derivative: a term for either factor of its products."""
    left, right, words = arrays.left[own], arrays.right[own], arrays.words[b]
    by_left, by_right = d_gradients.left[target], d_gradients.right[target]
    scaled.back_to_words(left, right, words, grads, gradients.left[target], gradients.right[target])
    scaled.back_to_words(left, right, words, d_grads, by_left, by_right)
    mixed = scaled.Element(d_grads.words, grads.lefts, grads.rights, grads.betas)
    left, right, words = direction.left[own], direction.right[own], direction.words[b]
    scaled.back_to_words(left, right, words, mixed, by_left, by_right)


@compiled
def outside(
    arrays, direction, lo, hi, root_gradient, d_root_gradient, gradients, d_gradients, slot
):
    """`scaled.outside` with its derivative; the gradients by the betas are not kept."""
    n, nt, kind = arrays.betas.shape[1], arrays.betas.shape[3], arrays.words.dtype
    tops, d_tops = np.empty((n, nt), kind), np.empty((n, nt), kind)
    pairs, d_pairs = np.empty((n, nt * nt), kind), np.empty((n, nt * nt), kind)
    grad_pairs, d_grad_pairs = np.empty((n, nt * nt), kind), np.empty((n, nt * nt), kind)
    part, factors, logs = np.empty((n, nt * nt), kind), np.empty(n, kind), np.empty(n)
    for b in range(lo, hi):
        own, target = (b, b) if arrays.both.shape[0] > 1 else (0, slot)
        element, d_element = scaled.element_of(arrays, b), scaled.element_of(direction, b)
        length = arrays.lengths[b]
        grads = scaled.room_for(gradients, b, slot, slot)
        d_grads = scaled.room_for(d_gradients, b, slot, slot)
        if length > 1:
            products.add(root_gradient[b], grads.betas[0, length - 1])
            products.add(d_root_gradient[b], d_grads.betas[0, length - 1])
        for width in range(length, 1, -1):
            count = length - width + 1
            scaled.take_tops(element, grads, width, count, tops)
            scaled.take_tops(element, d_grads, width, count, d_tops)
            if width > 3:
                size = count * nt * nt
                products.multiply_transposed(tops[:count], arrays.both[own], grad_pairs[:count])
                products.multiply_transposed(d_tops[:count], arrays.both[own], d_grad_pairs[:count])
                products.multiply_transposed(tops[:count], direction.both[own], part[:count])
                products.add(part[:count].reshape(size), d_grad_pairs[:count].reshape(size))
                pairs[:count] = 0
                d_pairs[:count] = 0
            for i in range(count):
                j = i + width - 1
                if scaled.found_factors(arrays, b, i, j, logs, factors):
                    row = scaled.Row(tops[i], grad_pairs[i], pairs[i])
                    d_row = scaled.Row(d_tops[i], d_grad_pairs[i], d_pairs[i])
                    spread(element, d_element, i, j, factors, row, d_row, grads, d_grads)
            if width > 3:
                both, d_both = gradients.both[target], d_gradients.both[target]
                products.add_product_of_columns(pairs[:count], tops[:count], both)
                products.add_product_of_columns(pairs[:count], d_tops[:count], d_both)
                products.add_product_of_columns(d_pairs[:count], tops[:count], d_both)
        back_to_words(arrays, direction, own, b, grads, d_grads, gradients, d_gradients, target)
