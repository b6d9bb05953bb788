"""Kernels of the gradients of weighted grammars on a GPU; the whole is in `chart.py`.

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inout.kernels.pcfg.gpu.inside import row_of


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
