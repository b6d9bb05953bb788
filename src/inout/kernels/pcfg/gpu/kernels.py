"""Charts of weighted grammars on a GPU: all elements and all spans of one width at a time.

Method and scaling: see `cpu/scaled.py`. A launch of `step_kernel` settles the spans of one width
and, because two nonterminals side by side are at least two words narrower than what they make,
gathers the pairs of the next width as well; one product by cuBLAS then brings in the rules: two
launches for a width. Backward, every span pulls its gradient from the spans above it, so nothing
is added atomically and results are the same every time: again two launches for a width.

With MAX the same kernels work in max-plus algebra on logarithms, without scales: the best trees.

The words' matrices are `meets` [b n nt s+nt]: words(p, B) rule(A, B, C) summed over B in the first
s columns, rule(A, B, C) words(p, C) summed over C in the others. Pairs and gradients have a row
for each span, in order of width, so that one width is one block: [.. u*spans x], where .. is g, the
sets of rules, or nothing if there is one, and u elements share each set.

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor


@triton.jit
def finite(x):
    """x, or 0 where it is -inf, so that it can be subtracted."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def row_of(e, i, width, n, sharing):
    """Row of a span in pairs and gradients; `sharing` elements have the same rules (u above)."""
    first = (width - 2) * n - (width - 2) * (width - 1) // 2
    count = n - width + 1
    group = e // sharing
    return (group * (n * (n - 1) // 2) + first) * sharing + (e - group * sharing) * count + i


@triton.jit
def product(
    p_matrix, stride, p_vector, size, rows,
    MAX: tl.constexpr, A: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Sum (or best) over c of matrix[a, c] vector[c]: [A]."""
    zero = float("-inf") if MAX else 0.0
    o_a = tl.arange(0, A)
    m_a = o_a < rows
    b_sums = tl.full([A, C], zero, p_vector.dtype.element_ty)
    for first in range(0, size, C):
        o_c = first + tl.arange(0, C)
        m_c = o_c < size
        p_block = p_matrix + o_a[:, None] * stride + o_c[None, :]
        b_matrix = tl.load(p_block, mask=m_a[:, None] & m_c[None, :], other=zero)  # [A C]
        b_vector = tl.load(p_vector + o_c, mask=m_c, other=zero)
        if MAX:
            b_sums = tl.maximum(b_sums, b_matrix + b_vector[None, :])
        else:
            b_sums += b_matrix * b_vector[None, :]
    return tl.max(b_sums, axis=1) if MAX else tl.sum(b_sums, axis=1)


@triton.jit
def scales_of_splits(p_sigmas, i, j, n, N: tl.constexpr):
    """Log scales [N] of the splits of i..j into two nonterminals; split k is at place k - i - 1."""
    o_k = i + 1 + tl.arange(0, N)
    m_k = o_k < j - 1
    b_left = tl.load(p_sigmas + i * n + o_k, mask=m_k, other=float("-inf"))
    return b_left + tl.load(p_sigmas + (o_k + 1) * n + j, mask=m_k, other=float("-inf"))


@triton.jit
def settle_span(
    e, i, p_meets, p_words, p_word_sigmas, p_tops, p_lengths, p_products, p_shifts, p_betas,
    p_sigmas, p_low, width, n, nt, pt, sharing,
    MAX: tl.constexpr, TINY: tl.constexpr, A: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Adds what words at the borders contribute and writes a span's beta and sigma."""
    dtype = p_betas.dtype.element_ty
    minus_inf = float("-inf")
    j, s = i + width - 1, nt + pt
    o_a = tl.arange(0, A)
    m_a = o_a < nt
    p_left = p_meets + (e * n + i) * nt * (s + nt)
    p_right = p_meets + (e * n + j) * nt * (s + nt) + s
    p_beta, p_sigma, p_word = p_betas + e * n * n * nt, p_sigmas + e * n * n, p_word_sigmas + e * n
    b_total = tl.full([A], minus_inf if MAX else 0.0, dtype)
    shift = tl.full([], minus_inf, tl.float64)
    if j < tl.load(p_lengths + e):
        if width == 2:
            p_vector = p_words + (e * n + j) * pt
            b_total = product(p_left + nt, s + nt, p_vector, pt, nt, MAX, A, C)
            if not MAX:
                shift = tl.load(p_word + i) + tl.load(p_word + j)
        else:
            p_inner = p_products + (e * (n - width + 1) + i) * nt + o_a
            m_inner = o_a < tl.where(width > 3, nt, 0)
            b_inner = tl.load(p_inner, mask=m_inner, other=minus_inf if MAX else 0.0)
            p_vector = p_beta + ((i + 1) * n + j) * nt
            b_left = product(p_left, s + nt, p_vector, nt, nt, MAX, A, C)
            p_vector = p_beta + (i * n + j - 1) * nt
            b_right = product(p_right, s + nt, p_vector, nt, nt, MAX, A, C)
            if MAX:
                b_total = tl.maximum(tl.maximum(b_left, b_right), b_inner)
            else:
                left = tl.load(p_word + i) + tl.load(p_sigma + (i + 1) * n + j)
                right = tl.load(p_sigma + i * n + j - 1) + tl.load(p_word + j)
                p_shift = p_shifts + row_of(e, i, width, n, sharing)
                inner = tl.load(p_shift, mask=width > 3, other=minus_inf)
                shift = tl.maximum(tl.maximum(left, right), inner)
                base = finite(shift)
                b_total = tl.exp((left - base).to(dtype)) * b_left
                b_total += tl.exp((right - base).to(dtype)) * b_right
                b_total += tl.exp((inner - base).to(dtype)) * b_inner
    p_out = p_beta + (i * n + j) * nt + o_a
    if MAX:
        tl.store(p_out, b_total, mask=m_a)
    else:
        # Where all splits are impossible so is the span. Else totals below TINY are set to 0,
        # which is right if the symbol is impossible; NaN, too, must count as low.
        m_a = o_a < tl.where(shift > minus_inf, nt, 0)
        m_low = m_a & ~(b_total >= TINY)
        tl.store(p_low + e, 1, mask=tl.max(m_low.to(tl.int32), axis=0) > 0)
        m_kept = m_a & (b_total >= TINY) & (b_total > 0)
        top = tl.max(tl.where(m_kept, b_total, 0.0), axis=0)
        top = tl.where(top > 0, top, 1.0).to(dtype)
        possible = tl.max(m_kept.to(tl.int32), axis=0) > 0
        if TINY == 0:  # possibility alone: 1 or 0, all scales 1
            b_beta, sigma = tl.full([A], 1.0, dtype), tl.zeros([], tl.float64)
        else:
            own = tl.load(p_tops + e // sharing)
            b_beta, sigma = b_total / top, shift + own + tl.log(top.to(tl.float64))
        tl.store(p_out, tl.where(m_kept, b_beta, 0.0), mask=o_a < nt)
        tl.store(p_sigma + i * n + j, tl.where(possible, sigma, minus_inf))


@triton.jit
def gather_tile(
    e, i, tile, p_lengths, p_betas, p_sigmas, p_pairs, p_shifts, width, n, nt, sharing,
    MAX: tl.constexpr, B: tl.constexpr, C: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """A tile of pairs: sum (or best) over splits of beta(i, k, B) beta(k + 1, j, C).

    They are relative to the scale of the best split, the logarithm of which goes to shifts.
    """
    dtype = p_betas.dtype.element_ty
    minus_inf = float("-inf")
    j = i + width - 1
    across = tl.cdiv(nt, C)
    o_b, o_c = tile // across * B + tl.arange(0, B), tile % across * C + tl.arange(0, C)
    m_b, m_c = o_b < nt, o_c < nt
    p_beta, p_sigma = p_betas + e * n * n * nt, p_sigmas + e * n * n
    zero = minus_inf if MAX else 0.0
    b_pairs = tl.full([B, C], zero, dtype)
    shift = tl.full([], minus_inf, tl.float64)
    if j < tl.load(p_lengths + e):
        if not MAX:
            shift = tl.max(scales_of_splits(p_sigma, i, j, n, N), axis=0)
        base = finite(shift)
        for k in tl.range(i + 1, j - 1, loop_unroll_factor=4):
            b_left = tl.load(p_beta + (i * n + k) * nt + o_b, mask=m_b, other=zero)
            b_right = tl.load(p_beta + ((k + 1) * n + j) * nt + o_c, mask=m_c, other=zero)
            if MAX:
                b_pairs = tl.maximum(b_pairs, b_left[:, None] + b_right[None, :])
            else:
                scale = tl.load(p_sigma + i * n + k) + tl.load(p_sigma + (k + 1) * n + j)
                b_left *= tl.exp((scale - base).to(dtype))
                b_pairs += b_left[:, None] * b_right[None, :]
    row = row_of(e, i, width, n, sharing)
    p_out = p_pairs + row * nt * nt + o_b[:, None] * nt + o_c[None, :]
    tl.store(p_out, b_pairs, mask=m_b[:, None] & m_c[None, :])
    if not MAX:
        tl.store(p_shifts + row, shift, mask=tile == 0)


@triton.jit(do_not_specialize=["width", "batch", "n", "sharing"])
def step_kernel(
    p_meets, p_words, p_word_sigmas, p_tops, p_lengths, p_products, p_betas, p_sigmas, p_pairs,
    p_shifts, p_low, width, batch, n, sharing, nt, pt, MAX: tl.constexpr, TINY: tl.constexpr,
    A: tl.constexpr, AC: tl.constexpr, B: tl.constexpr, C: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Settles the spans of `width` and gathers the pairs of the next width, if there are any."""
    program = tl.program_id(0)
    count = n - width + 1
    if program < batch * count:
        settle_span(
            (program // count).to(tl.int64), program % count, p_meets, p_words, p_word_sigmas,
            p_tops, p_lengths, p_products, p_shifts, p_betas, p_sigmas, p_low, width, n, nt, pt,
            sharing, MAX, TINY, A, AC,
        )  # fmt: skip
    else:
        tiles = tl.cdiv(nt, B) * tl.cdiv(nt, C)
        span = (program - batch * count) // tiles
        tile = (program - batch * count) % tiles
        gather_tile(
            (span // (count - 1)).to(tl.int64), span % (count - 1), tile, p_lengths, p_betas,
            p_sigmas, p_pairs, p_shifts, width + 1, n, nt, sharing, MAX, B, C, N,
        )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def best_product_kernel(
    p_x, p_y, p_out, stride, rows, size, columns, M: tl.constexpr, A: tl.constexpr, K: tl.constexpr
):
    """out [g rows columns] = best over k of x [g rows size] + y [g columns size]."""
    group = tl.program_id(2).to(tl.int64)
    o_a, o_m = tl.program_id(0) * A + tl.arange(0, A), tl.program_id(1) * M + tl.arange(0, M)
    m_m, m_a = o_m < rows, o_a < columns
    p_x += group * stride + o_m[:, None].to(tl.int64) * size
    p_y += (group * columns + o_a[:, None]) * size
    minus_inf = float("-inf")
    b_best = tl.full([M, A, K], minus_inf, p_out.dtype.element_ty)
    for first in range(0, size, K):
        o_k = first + tl.arange(0, K)
        m_k = (o_k < size)[None, :]
        b_x = tl.load(p_x + o_k[None, :], mask=m_m[:, None] & m_k, other=minus_inf)
        b_y = tl.load(p_y + o_k[None, :], mask=m_a[:, None] & m_k, other=minus_inf)
        b_best = tl.maximum(b_best, b_x[:, None, :] + b_y[None, :, :])
    p_out += (group * rows + o_m[:, None]) * columns + o_a[None, :]
    tl.store(p_out, tl.max(b_best, axis=2), mask=m_m[:, None] & m_a[None, :])


@triton.jit
def weigh_kernel(p_values, p_lengths, p_weights, p_tops, rows, size, S: tl.constexpr):
    """exp(values - top) and top of each row of values [b rows size]; nothing beyond a length."""
    row = tl.program_id(0).to(tl.int64)
    o_s = tl.arange(0, S)
    real = row % rows < tl.load(p_lengths + row // rows)
    m_s = o_s < tl.where(real, size, 0)
    b_values = tl.load(p_values + row * size + o_s, mask=m_s, other=float("-inf"))
    top = tl.max(b_values, axis=0)
    tl.store(p_weights + row * size + o_s, tl.exp(b_values - finite(top)), mask=o_s < size)
    tl.store(p_tops + row, top.to(tl.float64))


@triton.jit(do_not_specialize=["n"])
def root_kernel(
    p_root, p_root_tops, p_lengths, p_betas, p_sigmas, p_total, p_log_z, p_low,
    n, nt, TINY: tl.constexpr, A: tl.constexpr,
):  # fmt: skip
    """Total weight [b] in the scale of the whole span, and log Z [b]; a small total is low."""
    e = tl.program_id(0).to(tl.int64)
    o_a = tl.arange(0, A)
    length = tl.load(p_lengths + e)
    m_a = o_a < tl.where(length > 1, nt, 0)
    whole = e * n * n + length - 1
    b_beta = tl.load(p_betas + whole * nt + o_a, mask=m_a, other=0.0)
    total = tl.sum(b_beta * tl.load(p_root + e * nt + o_a, mask=m_a, other=0.0), axis=0)
    sigma = tl.load(p_sigmas + whole, mask=length > 1, other=float("-inf"))
    log_z = tl.log(tl.where(total > 0, total, 1.0).to(tl.float64))
    log_z += tl.load(p_root_tops + e) + sigma
    tl.store(p_total + e, total)
    tl.store(p_log_z + e, tl.where(total > 0, log_z, float("-inf")))
    tl.store(p_low + e, 1, mask=~(total >= TINY) & (sigma > float("-inf")))


@triton.jit
def share(p_left, p_right, p_parent, top, dtype: tl.constexpr):
    """The factor with which two children's betas enter their parent's, from their log scales."""
    children, parent = tl.load(p_left) + tl.load(p_right), tl.load(p_parent)
    exponent = tl.where(parent == float("-inf"), parent, children - parent + top)
    return tl.exp(exponent.to(dtype))


@triton.jit(do_not_specialize=["width", "batch", "n", "sharing"])
def pull_kernel(
    p_meets, p_word_sigmas, p_tops, p_lengths, p_betas, p_sigmas, p_shifts, p_root_gradient,
    p_grad_pairs, p_gradients, p_scaled, width, batch, n, sharing, nt, pt,
    A: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """Gradients by the betas of one width, from those of all wider spans.

    Also those in the scale of the span's pairs, whose product with the pairs is the rules'.
    """
    dtype = p_betas.dtype.element_ty
    count, tiles, s = n - width + 1, tl.cdiv(nt, T), nt + pt
    span, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    e, i = (span // count).to(tl.int64), span % count
    j = i + width - 1
    o_a, o_t = tl.arange(0, A), tile * T + tl.arange(0, T)
    m_a, m_t = o_a < nt, o_t < nt
    m_block, m_across = m_t[:, None] & m_a[None, :], m_a[:, None] & m_t[None, :]
    length = tl.load(p_lengths + e)
    top = tl.load(p_tops + e // sharing)
    p_beta, p_sigma, p_word = p_betas + e * n * n * nt, p_sigmas + e * n * n, p_word_sigmas + e * n
    p_meet = p_meets + e * n * nt * (s + nt) + o_a[:, None] * (s + nt) + o_t[None, :]
    p_own = p_sigma + i * n + j
    b_gradient = tl.zeros([T], dtype)
    if j < length:
        if width == length:
            b_gradient = tl.load(p_root_gradient + e * nt + o_t, mask=m_t, other=0.0)
        b_rows, b_columns = tl.zeros([T, A], dtype), tl.zeros([A, T], dtype)
        if i > 0:  # below (i - 1, j), beside a word
            factor = share(p_word + i - 1, p_own, p_own - n, top, dtype)
            row = row_of(e, i - 1, width + 1, n, sharing)
            b_above = tl.load(p_gradients + row * nt + o_a, mask=m_a, other=0.0)
            b_block = tl.load(p_meet + (i - 1) * nt * (s + nt), mask=m_across, other=0.0)
            b_columns += (factor * b_above)[:, None] * b_block
        if j + 1 < length:  # below (i, j + 1), beside a word
            factor = share(p_own, p_word + j + 1, p_own + 1, top, dtype)
            row = row_of(e, i, width + 1, n, sharing)
            b_above = tl.load(p_gradients + row * nt + o_a, mask=m_a, other=0.0)
            b_block = tl.load(p_meet + (j + 1) * nt * (s + nt) + s, mask=m_across, other=0.0)
            b_columns += (factor * b_above)[:, None] * b_block
        for last in tl.range(j + 2, length, loop_unroll_factor=2):  # below (i, last), on the left
            p_other = p_sigma + (j + 1) * n + last
            factor = share(p_own, p_other, p_sigma + i * n + last, top, dtype)
            p_vector = p_beta + ((j + 1) * n + last) * nt + o_a
            p_block = p_grad_pairs + row_of(e, i, last - i + 1, n, sharing) * nt * nt
            p_block += o_t[:, None] * nt + o_a[None, :]
            b_vector = factor * tl.load(p_vector, mask=m_a, other=0.0)
            b_rows += tl.load(p_block, mask=m_block, other=0.0) * b_vector[None, :]
        for first in tl.range(0, i - 1, loop_unroll_factor=2):  # below (first, j), on the right
            p_other = p_sigma + first * n + i - 1
            factor = share(p_other, p_own, p_sigma + first * n + j, top, dtype)
            p_vector = p_beta + (first * n + i - 1) * nt + o_a
            p_block = p_grad_pairs + row_of(e, first, j - first + 1, n, sharing) * nt * nt
            p_block += o_a[:, None] * nt + o_t[None, :]
            b_vector = factor * tl.load(p_vector, mask=m_a, other=0.0)
            b_columns += b_vector[:, None] * tl.load(p_block, mask=m_across, other=0.0)
        b_gradient += tl.sum(b_rows, axis=1) + tl.sum(b_columns, axis=0)
    # Of an impossible symbol's gradient nothing reaches the weights, but it might overflow.
    m_real = o_t < tl.where(j < length, nt, 0)
    b_beta = tl.load(p_beta + (i * n + j) * nt + o_t, mask=m_real, other=0.0)
    b_gradient = tl.where(b_beta > 0, b_gradient, 0.0)
    row = row_of(e, i, width, n, sharing)
    tl.store(p_gradients + row * nt + o_t, b_gradient, mask=m_t)
    if width > 3:
        own = tl.load(p_own)
        exponent = tl.where(own == float("-inf"), own, tl.load(p_shifts + row) - own + top)
        factor = tl.exp(exponent.to(dtype))
        tl.store(p_scaled + row * nt + o_t, factor * b_gradient, mask=m_t)


@triton.jit(do_not_specialize=["n", "sharing"])
def meets_gradient_kernel(
    p_words, p_word_sigmas, p_tops, p_lengths, p_betas, p_sigmas, p_gradients, p_out,
    n, sharing, nt, pt, B: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Gradient by the words' matrices [b n nt s+nt]: sums over spans that have p at a border."""
    dtype = p_betas.dtype.element_ty
    e, p = (tl.program_id(0) // n).to(tl.int64), tl.program_id(0) % n
    o_b = tl.program_id(1) * B + tl.arange(0, B)
    m_b = o_b < nt
    length = tl.load(p_lengths + e)
    top = tl.load(p_tops + e // sharing)
    p_beta, p_sigma, p_word = p_betas + e * n * n * nt, p_sigmas + e * n * n, p_word_sigmas + e * n
    # Three sections of columns: nonterminals and words to the right, nonterminals to the left.
    tile, tiles = tl.program_id(2), tl.cdiv(nt, C)
    beside = tile < tiles
    before = tile >= tiles + tl.cdiv(pt, C)
    start = tl.where(beside, 0, tl.where(before, tiles + tl.cdiv(pt, C), tiles))
    size = tl.where(beside | before, nt, pt)
    o_c = (tile - start) * C + tl.arange(0, C)
    m_c = o_c < size
    b_out = tl.zeros([B, C], dtype)
    if before:
        for i in tl.range(0, tl.where(p < length, p - 1, 0), loop_unroll_factor=4):
            factor = share(p_sigma + i * n + p - 1, p_word + p, p_sigma + i * n + p, top, dtype)
            row = row_of(e, i, p - i + 1, n, sharing)
            b_above = tl.load(p_gradients + row * nt + o_b, mask=m_b, other=0.0)
            b_vector = tl.load(p_beta + (i * n + p - 1) * nt + o_c, mask=m_c, other=0.0)
            b_out += (factor * b_above)[:, None] * b_vector[None, :]
    elif beside:
        for j in tl.range(p + 2, length, loop_unroll_factor=4):
            factor = share(p_word + p, p_sigma + (p + 1) * n + j, p_sigma + p * n + j, top, dtype)
            row = row_of(e, p, j - p + 1, n, sharing)
            b_above = tl.load(p_gradients + row * nt + o_b, mask=m_b, other=0.0)
            b_vector = tl.load(p_beta + ((p + 1) * n + j) * nt + o_c, mask=m_c, other=0.0)
            b_out += (factor * b_above)[:, None] * b_vector[None, :]
    elif p + 1 < length:
        factor = share(p_word + p, p_word + p + 1, p_sigma + p * n + p + 1, top, dtype)
        row = row_of(e, p, 2, n, sharing)
        b_above = tl.load(p_gradients + row * nt + o_b, mask=m_b, other=0.0)
        b_vector = tl.load(p_words + (e * n + p + 1) * pt + o_c, mask=m_c, other=0.0)
        b_out += (factor * b_above)[:, None] * b_vector[None, :]
    column = tl.where(beside, 0, tl.where(before, nt + pt, nt))
    p_out += ((e * n + p) * nt + o_b[:, None]) * (2 * nt + pt) + column + o_c[None, :]
    tl.store(p_out, b_out, mask=m_b[:, None] & m_c[None, :])


@triton.jit(do_not_specialize=["n", "sharing"])
def words_gradient_kernel(
    p_meets, p_words, p_word_sigmas, p_tops, p_lengths, p_sigmas, p_gradients, p_out,
    n, sharing, nt, pt, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Adds to out [b n pt] what comes from a word on the left, and multiplies by the weights."""
    e, p = (tl.program_id(0) // n).to(tl.int64), tl.program_id(0) % n
    o_p, s = tl.arange(0, P), nt + pt
    m_p = o_p < pt
    p_row = p_out + (e * n + p) * pt + o_p
    b_out = tl.load(p_row, mask=m_p, other=0.0)
    if (p > 0) & (p < tl.load(p_lengths + e)):
        p_sigma, p_word = p_sigmas + e * n * n + (p - 1) * n + p, p_word_sigmas + e * n + p
        top = tl.load(p_tops + e // sharing)
        factor = share(p_word - 1, p_word, p_sigma, top, p_out.dtype.element_ty)
        row = row_of(e, p - 1, 2, n, sharing)
        for first in range(0, nt, C):
            o_a = first + tl.arange(0, C)
            m_a = o_a < nt
            b_above = factor * tl.load(p_gradients + row * nt + o_a, mask=m_a, other=0.0)
            p_block = p_meets + ((e * n + p - 1) * nt + o_a[:, None]) * (s + nt) + nt
            m_block = m_a[:, None] & m_p[None, :]
            b_block = tl.load(p_block + o_p[None, :], mask=m_block, other=0.0)
            b_out += tl.sum(b_above[:, None] * b_block, axis=0)
    b_words = tl.load(p_words + (e * n + p) * pt + o_p, mask=m_p, other=0.0)
    tl.store(p_row, b_words * b_out, mask=m_p)


@triton.jit
def choose(b_weights, o_s, uniform, MAX: tl.constexpr):
    """A place in proportion to the weights, or the first of the largest."""
    if MAX:
        place = tl.argmax(b_weights, axis=0).to(tl.int32)
    else:
        # Rounding may leave the target above the sum: then the last possible one.
        b_sums = tl.cumsum(b_weights, axis=0)
        target = uniform * tl.max(b_sums, axis=0)
        m_some = b_weights > 0
        last = tl.max(tl.where(m_some, o_s, 0), axis=0)
        place = tl.min(tl.where(m_some & (b_sums > target), o_s, last), axis=0)
    return place


@triton.jit
def times(x, y, MAX: tl.constexpr):
    """The product of two weights."""
    return x + y if MAX else x * y


@triton.jit
def descend_kernel(
    p_root, p_rules, p_words, p_meets, p_word_sigmas, p_lengths, p_betas, p_sigmas, p_pairs,
    p_uniform, p_events, batch, n, sharing, nt, pt,
    MAX: tl.constexpr, S: tl.constexpr, C: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Trees from the root down, drawn or (with MAX) the best: events [m b n n], -1 before.

    At a span first between a word on the left, two nonterminals, and a word on the right; then
    the left or only nonterminal, the other symbol, and the split. Four uniform numbers each.
    """
    sample = tl.program_id(0).to(tl.int64)
    e = sample % batch
    dtype = p_betas.dtype.element_ty
    zero = float("-inf") if MAX else 0.0
    s = nt + pt
    o_s, o_n = tl.arange(0, S), tl.arange(0, N)
    m_nt, m_pt = o_s < nt, o_s < pt
    length = tl.load(p_lengths + e).to(tl.int32)
    p_beta, p_sigma, p_word = p_betas + e * n * n * nt, p_sigmas + e * n * n, p_word_sigmas + e * n
    p_meet, p_event = p_meets + e * n * nt * (s + nt), p_events + sample * n * n
    p_weight, p_draw = p_words + e * n * pt, p_uniform + sample * n * 4
    p_rule = p_rules + (e // sharing) * nt * s * s
    m_root = o_s < tl.where(length > 1, nt, 0)
    b_top = tl.load(p_beta + (length - 1) * nt + o_s, mask=m_root, other=zero)
    b_top = times(b_top, tl.load(p_root + e * nt + o_s, mask=m_root, other=zero), MAX)
    uniform = tl.zeros([], dtype)
    if not MAX:
        uniform = tl.load(p_draw)
    symbol = choose(b_top, o_s, uniform, MAX)
    # The spans still to do, a stack in registers.
    b_first, b_last = tl.zeros([N], tl.int32), tl.where(o_n == 0, length - 1, 0)
    b_symbol = tl.where(o_n == 0, symbol, 0)
    depth = 1
    steps = tl.where(tl.max(b_top, axis=0) > zero, length - 1, 0)
    for step in range(steps):
        depth -= 1
        i = tl.sum(tl.where(o_n == depth, b_first, 0), axis=0)
        j = tl.sum(tl.where(o_n == depth, b_last, 0), axis=0)
        a = tl.sum(tl.where(o_n == depth, b_symbol, 0), axis=0)
        tl.store(p_event + i * n + j, a.to(tl.int64))
        u_kind, u_first, u_second, u_split = uniform, uniform, uniform, uniform
        if not MAX:
            p_four = p_draw + (step + 1) * 4
            u_kind, u_first = tl.load(p_four), tl.load(p_four + 1)
            u_second, u_split = tl.load(p_four + 2), tl.load(p_four + 3)
        p_head = p_rule + a * s * s
        p_left = p_meet + (i * nt + a) * (s + nt) + o_s
        p_right = p_meet + (j * nt + a) * (s + nt) + s + o_s
        p_pair = p_pairs + row_of(e, i, j - i + 1, n, sharing) * nt * nt
        kind, split = 0, i
        b_chosen = tl.full([S], zero, dtype)
        if j == i + 1:
            b_chosen = tl.load(p_left + nt, mask=m_pt, other=zero)
            b_word = tl.load(p_weight + j * pt + o_s, mask=m_pt, other=zero)
            b_chosen = times(b_chosen, b_word, MAX)
        else:
            b_one = tl.load(p_left, mask=m_nt, other=zero)
            b_beta = tl.load(p_beta + ((i + 1) * n + j) * nt + o_s, mask=m_nt, other=zero)
            b_one = times(b_one, b_beta, MAX)
            b_three = tl.load(p_right, mask=m_nt, other=zero)
            b_beta = tl.load(p_beta + (i * n + j - 1) * nt + o_s, mask=m_nt, other=zero)
            b_three = times(b_three, b_beta, MAX)
            b_two = tl.full([S], zero, dtype)
            if j > i + 2:
                # Sums over C of rule(a, B, C) pairs(B, C).
                b_sums = tl.full([S, C], zero, dtype)
                for first in range(0, nt, C):
                    o_c = first + tl.arange(0, C)
                    m_block = m_nt[:, None] & (o_c < nt)[None, :]
                    p_block = p_head + o_s[:, None] * s + o_c[None, :]
                    b_rule = tl.load(p_block, mask=m_block, other=zero)
                    p_block = p_pair + o_s[:, None] * nt + o_c[None, :]
                    b_pair = tl.load(p_block, mask=m_block, other=zero)
                    if MAX:
                        b_sums = tl.maximum(b_sums, b_rule + b_pair)
                    else:
                        b_sums += b_rule * b_pair
                b_two = tl.max(b_sums, axis=1) if MAX else tl.sum(b_sums, axis=1)
            if MAX:
                one, two, three = tl.max(b_one), tl.max(b_two), tl.max(b_three)
            else:
                scale_one = tl.load(p_word + i) + tl.load(p_sigma + (i + 1) * n + j)
                scale_three = tl.load(p_sigma + i * n + j - 1) + tl.load(p_word + j)
                scale_two = tl.max(scales_of_splits(p_sigma, i, j, n, N), axis=0)
                base = finite(tl.maximum(tl.maximum(scale_one, scale_two), scale_three))
                one = tl.sum(b_one, axis=0) * tl.exp((scale_one - base).to(dtype))
                two = tl.sum(b_two, axis=0) * tl.exp((scale_two - base).to(dtype))
                three = tl.sum(b_three, axis=0) * tl.exp((scale_three - base).to(dtype))
            o_kind = tl.arange(0, 4)
            b_kinds = tl.where(o_kind == 0, one, tl.where(o_kind == 1, two, three))
            b_kinds = tl.where(o_kind == 3, zero, b_kinds).to(dtype)
            kind = choose(b_kinds, o_kind, u_kind, MAX)
            b_chosen = tl.where(kind == 0, b_one, tl.where(kind == 1, b_two, b_three))
        symbol = choose(b_chosen, o_s, u_first, MAX)
        if kind == 1:
            left = symbol
            b_chosen = times(
                tl.load(p_head + left * s + o_s, mask=m_nt, other=zero),
                tl.load(p_pair + left * nt + o_s, mask=m_nt, other=zero),
                MAX,
            )
            right = choose(b_chosen, o_s, u_second, MAX)
            o_k = i + 1 + o_n
            m_k = o_k < j - 1
            b_splits = times(
                tl.load(p_beta + (i * n + o_k) * nt + left, mask=m_k, other=zero),
                tl.load(p_beta + ((o_k + 1) * n + j) * nt + right, mask=m_k, other=zero),
                MAX,
            )
            if not MAX:
                b_scales = scales_of_splits(p_sigma, i, j, n, N)
                b_splits *= tl.exp((b_scales - finite(tl.max(b_scales, axis=0))).to(dtype))
            split = i + 1 + choose(b_splits, o_n, u_split, MAX)
        elif kind == 0:
            right = symbol + tl.where(j == i + 1, nt, 0)
            b_word = tl.load(p_weight + i * pt + o_s, mask=m_pt, other=zero)
            p_column = p_head + (nt + o_s) * s + right
            b_word = times(b_word, tl.load(p_column, mask=m_pt, other=zero), MAX)
            left = nt + choose(b_word, o_s, u_second, MAX)
        else:
            left, split = symbol, j - 1
            b_word = tl.load(p_weight + j * pt + o_s, mask=m_pt, other=zero)
            b_word = times(
                b_word, tl.load(p_head + left * s + nt + o_s, mask=m_pt, other=zero), MAX
            )
            right = nt + choose(b_word, o_s, u_second, MAX)
        if split == i:
            tl.store(p_event + i * n + i, left.to(tl.int64))
        else:
            b_first = tl.where(o_n == depth, i, b_first)
            b_last = tl.where(o_n == depth, split, b_last)
            b_symbol = tl.where(o_n == depth, left, b_symbol)
            depth += 1
        if split + 1 == j:
            tl.store(p_event + j * n + j, right.to(tl.int64))
        else:
            b_first = tl.where(o_n == depth, split + 1, b_first)
            b_last = tl.where(o_n == depth, j, b_last)
            b_symbol = tl.where(o_n == depth, right, b_symbol)
            depth += 1


@dataclass(frozen=True)
class Weights:
    """Weights relative to the largest of each block and the logarithms of these (float64).

    root [b nt], rules [g nt s s], words [b n pt]; root_tops [b], tops [g], word_tops [b n], -inf
    for words and roots without anything possible. In max-plus algebra they are logarithms (MAX).
    """

    root: Tensor
    rules: Tensor
    words: Tensor
    lengths: Tensor
    root_tops: Tensor
    tops: Tensor
    word_tops: Tensor
    maximal: bool = False


def _power(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


def _warps(power: int) -> int:
    return 4 if power < 128 else 8


def _columns(power: int, values: Tensor) -> int:
    """Columns of a block [power, columns] that leaves 64 bytes to a thread: more would spill."""
    return max(16, 64 * 32 * _warps(power) // (power * values.element_size()))


def weigh(root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> Weights:
    """Scaled weights of potentials root [b nt], rules [g nt s s], words [b n pt]."""
    made = []
    for values in (root, words):
        rows = values.shape[:-1]
        weights, tops = torch.empty_like(values), values.new_empty(rows, dtype=torch.float64)
        size, per = values.shape[-1], values[0].numel() // values.shape[-1]
        weigh_kernel[(rows.numel(),)](values, lengths, weights, tops, per, size, S=_power(size))
        made.append((weights, tops))
    tops = rules.amax((1, 2, 3), keepdim=True)
    tops = torch.where(tops == -torch.inf, 0.0, tops)
    (root, root_tops), (words, word_tops) = made
    flat_tops = tops.reshape(-1).double()
    return Weights(root, (rules - tops).exp_(), words, lengths, root_tops, flat_tops, word_tops)


def possibilities(root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> Weights:
    """1 for all that is possible, with scales of 1: nothing can be lost."""
    real = torch.arange(words.shape[1], device=words.device) < lengths[:, None]
    some = [root > -torch.inf, rules > -torch.inf, (words > -torch.inf) & real[..., None]]
    root, rules, words = (x.to(words.dtype) for x in some)
    word_tops = torch.where(some[2].any(-1), 0.0, -torch.inf).double()
    tops = word_tops.new_zeros(max(len(root), len(rules)))
    return Weights(root, rules, words, lengths, tops, tops, word_tops)


def logarithms(root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> Weights:
    """The potentials themselves, in float64, for max-plus algebra."""
    root, rules, words = (x.double() for x in (root, rules, words))
    real = torch.arange(words.shape[1], device=words.device) < lengths[:, None]
    words = torch.where(real[..., None], words, -torch.inf)
    unused = root.new_zeros(1)
    return Weights(root, rules, words, lengths, unused, unused, unused, maximal=True)


def multiply(x: Tensor, y: Tensor, out: Tensor) -> None:
    """out [.. m a] = x [.. m k] y [.. k a], where .. is g or nothing."""
    # Unlike bmm, mm splits long sums among the processors.
    (torch.mm if x.ndim == 2 else torch.bmm)(x, y, out=out)


def multiply_best(x: Tensor, y: Tensor, out: Tensor) -> None:
    """The same in max-plus algebra, for y with contiguous columns."""
    rows, size, columns = *x.shape[-2:], y.shape[-1]
    g, stride = (1, 0) if x.ndim == 2 else (len(x), x.stride(0))
    block = 16
    grid = (triton.cdiv(columns, block), triton.cdiv(rows, block), g)
    best_product_kernel[grid](x, y, out, stride, rows, size, columns, M=block, A=block, K=block)


class Chart:
    """Betas [b n n nt] and sigmas [b n n] of all spans; `tiny` = 0: possibility only.

    In max-plus algebra betas are logarithms and there are no sigmas. O(b n² nt²) memory for the
    pairs, which gradients and samples need.
    """

    def __init__(self, weights: Weights, tiny: float) -> None:
        self.weights, self.tiny = weights, tiny
        (b, n, pt), nt = weights.words.shape, weights.root.shape[1]
        g, new = len(weights.rules), weights.words.new_empty
        self.size = b, n, nt, pt
        self.sharing = b // g
        # One set of rules has no dimension of its own, so that products are of matrices.
        self.sets = () if g == 1 else (g,)
        spans = n * (n - 1) // 2
        self.betas = new((b, n, n, nt)).zero_()
        self.sigmas = new((b, n, n) if not weights.maximal else 1, dtype=torch.float64)
        self.pairs = new((*self.sets, self.sharing * spans, nt * nt))
        self.shifts = new(b * spans, dtype=torch.float64)
        self.meets = new((b, n, nt, 2 * nt + pt))
        self.low = new(b, dtype=torch.int32).zero_()
        rules = weights.rules
        # [.. nt nt*nt] and, for the words' matrices, [.. nt*(s+nt) pt]
        self.both = rules[:, :, :nt, :nt].reshape(*self.sets, nt, nt * nt)
        with_words = torch.cat([rules[:, :, nt:].transpose(2, 3), rules[:, :, :nt, nt:]], 2)
        self.with_words = with_words.view(*self.sets, -1, pt)
        self._inside()

    def _by_set(self, values: Tensor) -> Tensor:
        """Values [b n ...] as matrices [.. u*n x]."""
        return values.view(*self.sets, self.sharing * self.size[1], -1)

    def _width(self, rows: Tensor, width: int) -> Tensor:
        """The part of [.. u*spans x] that is of one width."""
        n, u = self.size[1], self.sharing
        first = (width - 2) * n - (width - 2) * (width - 1) // 2
        return rows.narrow(-2, u * first, u * (n - width + 1))

    def _inside(self) -> None:
        weights, (b, n, nt, pt) = self.weights, self.size
        times = multiply_best if weights.maximal else multiply
        times(self._by_set(weights.words), self.with_words.mT, self._by_set(self.meets))
        products, rules = weights.words.new_empty(b * n * nt), self.both.mT
        power = _power(nt)
        columns = _columns(power, products)
        tile_b, tile_c = min(power, 32), min(power, 2 * columns)
        tiles = triton.cdiv(nt, tile_b) * triton.cdiv(nt, tile_c)
        options = {
            "MAX": weights.maximal, "TINY": self.tiny, "A": power,
            "AC": min(columns, _power(max(nt, pt))), "B": tile_b, "C": tile_c, "N": _power(n),
            "num_warps": _warps(power),
        }  # fmt: skip
        for width in range(2, n + 1):
            count = n - width + 1
            gathers = b * (count - 1) * tiles if width > 2 else 0
            step_kernel[(b * count + gathers,)](
                self.meets, weights.words, weights.word_tops, weights.tops, weights.lengths,
                products, self.betas, self.sigmas, self.pairs, self.shifts, self.low,
                width, b, n, self.sharing, nt, pt, **options,
            )  # fmt: skip
            if gathers:
                out = products[: b * (count - 1) * nt].view(*self.sets, -1, nt)
                times(self._width(self.pairs, width + 1), rules, out)

    def totals(self) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
        """(Z in the scale of the whole span, log Z in float64)."""
        weights, (b, n, nt, _) = self.weights, self.size
        total = weights.root.new_empty(b)
        log_z = weights.root.new_empty(b, dtype=torch.float64)
        root_kernel[(b,)](
            weights.root, weights.root_tops, weights.lengths, self.betas, self.sigmas,
            total, log_z, self.low, n, nt, TINY=self.tiny, A=_power(nt),
        )  # fmt: skip
        return total, log_z

    def at_root(self) -> Float[Tensor, "b nt"]:
        """Betas of the whole elements."""
        last = self.weights.lengths.long() - 1
        return self.betas[:, 0].gather(1, last[:, None, None].expand(-1, 1, self.size[2]))[:, 0]

    def outside(self, root_gradient: Float[Tensor, "b nt"]) -> tuple[Tensor, Tensor]:
        """Gradients [.. u*spans nt] of the sum of root_gradient . betas of whole elements.

        By all betas; and the same in the scales of the pairs.
        """
        weights, (b, n, nt, pt) = self.weights, self.size
        gradients = self.pairs.new_empty((*self.pairs.shape[:-1], nt))
        grad_pairs, scaled = torch.empty_like(self.pairs), torch.empty_like(gradients)
        power = _power(nt)
        tile = min(power, max(16, _columns(power, gradients) // 2))
        for width in range(n, 1, -1):
            pull_kernel[(b * (n - width + 1) * triton.cdiv(nt, tile),)](
                self.meets, weights.word_tops, weights.tops, weights.lengths, self.betas,
                self.sigmas, self.shifts, root_gradient, grad_pairs, gradients, scaled,
                width, b, n, self.sharing, nt, pt, A=power, T=tile, num_warps=_warps(power),
            )  # fmt: skip
            if width > 3:
                multiply(self._width(gradients, width), self.both, self._width(grad_pairs, width))
        return gradients, scaled

    def gradients(
        self, root_gradient: Float[Tensor, "b nt"]
    ) -> tuple[Float[Tensor, "g nt s s"], Float[Tensor, "b n pt"]]:
        """Gradients of the sum of root_gradient . betas by log rules and log words."""
        weights, (_, n, nt, pt) = self.weights, self.size
        s = nt + pt
        gradients, scaled = self.outside(root_gradient)
        by_both = torch.zeros_like(self.both)
        if n > 3:
            narrow = self.sharing * (2 * n - 3)  # rows of widths 2 and 3, which have no pairs
            multiply(scaled[..., narrow:, :].mT, self.pairs[..., narrow:, :], by_both)
        by_with_words, words = self._through_words(gradients)
        rules = torch.empty_like(weights.rules)
        rules[:, :, :nt, :nt] = by_both.view(-1, nt, nt, nt)
        rules[:, :, nt:] = by_with_words[:, :, :s].transpose(2, 3)
        rules[:, :, :nt, nt:] = by_with_words[:, :, s:]
        return rules.mul_(weights.rules), words

    def _through_words(self, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients by the rules with words [g nt s+nt pt] and by log words [b n pt]."""
        weights, (b, n, nt, pt) = self.weights, self.size
        scales = weights.word_tops, weights.tops, weights.lengths
        grad_meets = torch.empty_like(self.meets)
        tile = min(32, _power(nt))
        columns = 2 * triton.cdiv(nt, tile) + triton.cdiv(pt, tile)
        meets_gradient_kernel[(b * n, triton.cdiv(nt, tile), columns)](
            weights.words, *scales, self.betas, self.sigmas, gradients, grad_meets,
            n, self.sharing, nt, pt, B=tile, C=tile,
        )  # fmt: skip
        by_meets, own = self._by_set(grad_meets), self._by_set(weights.words)
        words, rules = torch.empty_like(weights.words), torch.empty_like(self.with_words)
        multiply(by_meets, self.with_words, self._by_set(words))
        power = _power(pt)
        words_gradient_kernel[(b * n,)](
            self.meets, weights.words, *scales, self.sigmas, gradients, words,
            n, self.sharing, nt, pt, P=power, C=min(_power(nt), _columns(power, words)),
            num_warps=_warps(power),
        )  # fmt: skip
        multiply(by_meets.mT, own, rules)
        return rules.view(-1, nt, 2 * nt + pt, pt), words

    def by_span(self, rows: Tensor) -> Float[Tensor, "b n n x"]:
        """Rows [.. u*spans x] as a chart, 0 where there is no span."""
        b, n, _, _ = self.size
        chart = rows.new_zeros((b, n, n, rows.shape[-1]))
        for width in range(2, n + 1):
            own = self._width(rows, width).reshape(b, n - width + 1, -1)
            chart.diagonal(width - 1, 1, 2).copy_(own.mT)
        return chart

    def descend(self, count: int, uniform: Tensor) -> Int[Tensor, "m b n n"]:
        """Trees drawn with uniform numbers [m b n 4], or (max-plus) the best, once."""
        weights, (b, n, nt, pt) = self.weights, self.size
        events = torch.full((count, b, n, n), -1, device=self.betas.device)
        power = _power(max(nt, pt))
        descend_kernel[(count * b,)](
            weights.root, weights.rules, weights.words, self.meets, weights.word_tops,
            weights.lengths, self.betas, self.sigmas, self.pairs, uniform, events,
            b, n, self.sharing, nt, pt, MAX=weights.maximal, S=power,
            C=min(_power(nt), _columns(power, self.betas)), N=_power(n), num_warps=_warps(power),
        )  # fmt: skip
        return events
