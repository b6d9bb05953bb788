"""Kernels of the inside pass of weighted grammars on a GPU; the whole is in `chart.py`.

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
