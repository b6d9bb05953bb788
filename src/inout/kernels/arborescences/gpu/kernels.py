"""Elimination of the words and its adjoint on a GPU: one Triton program for each element.

The method and its range are those of `cpu/elimination.py`. Column k of the rows keeps the weights
of the heads of word k, not their shares: these are the weights over the pivot. An element that is
out of range, or may have no tree, is not `good`; what is written for it means nothing.
p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inout.kernels.limits import ARBORESCENCE_FAR, ARBORESCENCE_HUGE, ARBORESCENCE_TINY

FAR = tl.constexpr(ARBORESCENCE_FAR)
TINY = tl.constexpr(ARBORESCENCE_TINY)
HUGE = tl.constexpr(ARBORESCENCE_HUGE)


@triton.jit
def load_arcs(p_scores, n, length, o_i, o_j):
    """Scores [H N] of arcs from the heads o_i to the words o_j, -inf where there is none."""
    m_arc = (o_i <= length)[:, None] & (o_j < length)[None, :] & (o_i[:, None] != o_j[None, :] + 1)
    o_arc = o_i[:, None] * n + o_j[None, :]
    return tl.load(p_scores + o_arc, mask=m_arc, other=float("-inf"))


@triton.jit(do_not_specialize=["n"])
def eliminate_kernel(
    p_scores, p_lengths, p_rows, p_pivots, p_shifts, p_log_z, p_good, n,
    SINGLE: tl.constexpr, H: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Fills rows [b n+1 n], pivots [b n], shifts [b n+1], log Z and good [b]."""
    b = tl.program_id(0).to(tl.int64)
    length = tl.load(p_lengths + b).to(tl.int32)
    m = n + 1
    p_scores += b * m * n
    p_rows += b * m * n
    p_pivots += b * n
    p_shifts += b * m
    first: tl.constexpr = 1 if SINGLE else 0
    minus_inf = float("-inf")
    o_j = tl.arange(0, N)
    m_j = o_j < length
    # The best head of each word, and of the root the best word.
    b_tops = tl.full([H, N], minus_inf, dtype=tl.float64)
    b_lows = tl.full([H, N], float("inf"), dtype=tl.float64)
    for start in range(0, length + 1, H):
        o_i = start + tl.arange(0, H)
        b_arcs = load_arcs(p_scores, n, length, o_i, o_j)
        m_head = (o_i >= first)[:, None]
        b_tops = tl.maximum(b_tops, tl.where(m_head, b_arcs, minus_inf))
        b_lows = tl.minimum(b_lows, tl.where(m_head & (b_arcs > minus_inf), b_arcs, float("inf")))
    b_top = tl.max(b_tops, axis=0)
    b_low = tl.min(b_lows, axis=0)
    if SINGLE:
        b_top = tl.where(length == 1, 0.0, b_top)
    b_root = tl.load(p_scores + o_j, mask=m_j, other=minus_inf)
    root = tl.max(b_root - tl.where(m_j, b_top, 0.0), axis=0) if SINGLE else 0.0
    b_bad = m_j & ((b_top == minus_inf) | (b_low < b_top - FAR))
    if SINGLE:
        b_bad = (
            b_bad
            | (root == minus_inf)
            | (m_j & (b_root > minus_inf) & (b_root - b_top - root < -FAR))
        )
    bad = tl.max(b_bad.to(tl.int32), axis=0)
    b_top = tl.where(m_j & (b_top > minus_inf), b_top, 0.0)
    root = tl.where(root > minus_inf, root, 0.0) if SINGLE else 0.0
    tl.store(p_shifts, root)
    tl.store(p_shifts + 1 + o_j, b_top, mask=m_j)
    for start in range(0, length + 1, H):
        o_i = start + tl.arange(0, H)
        b_arcs = load_arcs(p_scores, n, length, o_i, o_j) - b_top[None, :]
        b_weights = tl.exp(tl.where((o_i == 0)[:, None], b_arcs - root, b_arcs))
        m_arc = (o_i <= length)[:, None] & m_j[None, :]
        tl.store(p_rows + o_i[:, None] * n + o_j[None, :], b_weights, mask=m_arc)
    # Rows are at most 1 now: what is lost below TINY does not matter beside a pivot of about 1.
    b_far = tl.zeros([H, N], dtype=tl.int32)
    for back in range(length - 1):
        k = length - 1 - back
        tl.debug_barrier()  # the rows were written by other threads of this program
        m_i = (o_j >= first) & (o_j <= k)
        pivot = tl.sum(tl.load(p_rows + o_j * n + k, mask=m_i, other=0.0), axis=0)
        bad = tl.where(pivot > 0, bad, 1)
        pivot = tl.where(pivot > 0, pivot, 1.0)
        tl.store(p_pivots + k, pivot)
        m_row = o_j < k
        b_row = tl.load(p_rows + (k + 1) * n + o_j, mask=m_row, other=0.0)
        for start in range(0, k + 1, H):
            o_i = start + tl.arange(0, H)
            b_share = tl.load(p_rows + o_i * n + k, mask=o_i <= k, other=0.0) / pivot
            p_own = p_rows + o_i[:, None] * n + o_j[None, :]
            m_own = (o_i <= k)[:, None] & m_row[None, :] & (o_i[:, None] != o_j[None, :] + 1)
            b_gain = b_share[:, None] * b_row[None, :]
            b_own = tl.load(p_own, mask=m_own, other=0.0) + b_gain
            m_new = m_own & (b_share > 0)[:, None] & (b_row > 0)[None, :]
            b_far |= (m_new & ((b_own < TINY) | (b_own > HUGE))).to(tl.int32)
            tl.store(p_own, b_own, mask=m_own)
    tl.debug_barrier()
    last = tl.load(p_rows)
    bad = tl.where(last > 0, bad, 1)
    tl.store(p_pivots, last)
    bad = tl.maximum(bad, tl.max(tl.max(b_far, axis=1), axis=0))
    tl.debug_barrier()
    b_pivots = tl.load(p_pivots + o_j, mask=m_j, other=1.0)
    b_total = tl.log(tl.where(b_pivots > 0, b_pivots, 1.0)) + tl.where(m_j, b_top, 0.0)
    tl.store(p_log_z + b, root + tl.sum(b_total, axis=0))
    tl.store(p_good + b, ((bad == 0) & (length > 0)).to(tl.int32))


@triton.jit(do_not_specialize=["n"])
def marginals_kernel(
    p_scores, p_lengths, p_rows, p_pivots, p_shifts, p_good, p_weights, p_slopes, p_sums, p_out, n,
    SINGLE: tl.constexpr, H: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """weights[b] * P(arc) [b n+1 n] of good elements.

    `p_slopes` [b n+1 n], which must be 0, and `p_sums` [b n+1] are scratch.
    """
    b = tl.program_id(0).to(tl.int64)
    if tl.load(p_good + b) == 0:
        return
    length = tl.load(p_lengths + b).to(tl.int32)
    m = n + 1
    p_scores += b * m * n
    p_rows += b * m * n
    p_slopes += b * m * n
    p_out += b * m * n
    p_pivots += b * n
    p_shifts += b * m
    p_sums += b * m
    o_j = tl.arange(0, N)
    m_j = o_j < length
    tl.store(p_slopes, 1.0 / tl.load(p_pivots))
    for k in range(1, length):
        tl.debug_barrier()  # as in `eliminate_kernel`
        pivot = tl.load(p_pivots + k)
        m_row = o_j < k
        b_row = tl.load(p_rows + (k + 1) * n + o_j, mask=m_row, other=0.0)
        b_back = tl.zeros([H, N], dtype=tl.float64)
        for start in range(0, k + 1, H):
            o_i = start + tl.arange(0, H)
            m_own = (o_i <= k)[:, None] & m_row[None, :]
            p_own = p_slopes + o_i[:, None] * n + o_j[None, :]
            b_slopes = tl.load(p_own, mask=m_own, other=0.0)
            b_share = tl.load(p_rows + o_i * n + k, mask=o_i <= k, other=0.0) / pivot
            b_back += b_share[:, None] * b_slopes
            b_sum = tl.sum(b_slopes * b_row[None, :], axis=1)
            tl.store(p_sums + o_i, b_sum, mask=o_i <= k)
        # No loop: the slope of a word's arc to itself stays 0.
        tl.store(p_slopes + (k + 1) * n + o_j, tl.sum(b_back, axis=0), mask=m_row)
        tl.debug_barrier()
        m_i = o_j <= k
        b_sums = tl.load(p_sums + o_j, mask=m_i, other=0.0)
        b_heads = tl.load(p_rows + o_j * n + k, mask=m_i, other=0.0) / pivot
        through = tl.sum(b_heads * b_sums, axis=0)
        b_own = tl.where(o_j > 0, 1 - through, 0.0) if SINGLE else 1 - through
        tl.store(p_slopes + o_j * n + k, (b_own + b_sums) / pivot, mask=m_i)
    tl.debug_barrier()
    weight = tl.load(p_weights + b)
    root = tl.load(p_shifts)
    b_top = tl.load(p_shifts + 1 + o_j, mask=m_j, other=0.0)
    for start in range(0, length + 1, H):
        o_i = start + tl.arange(0, H)
        b_arcs = load_arcs(p_scores, n, length, o_i, o_j) - b_top[None, :]
        b_weights = tl.exp(tl.where((o_i == 0)[:, None], b_arcs - root, b_arcs))
        m_arc = (o_i <= length)[:, None] & m_j[None, :]
        o_arc = o_i[:, None] * n + o_j[None, :]
        b_chance = b_weights * tl.load(p_slopes + o_arc, mask=m_arc, other=0.0)
        # Rounding may leave a probability just outside 0..1.
        b_chance = tl.minimum(tl.maximum(b_chance, 0.0), 1.0)
        tl.store(p_out + o_arc, weight * b_chance, mask=m_arc)
