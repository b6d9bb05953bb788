"""log Z and all arcs' probabilities at once, by an inverse that one program holds in registers.

The words are eliminated as in `kernels.py`, but stay in the table, which so becomes the inverse of
the Laplacian (Gauss-Jordan): with X the table, p the pivot of word k, and S the words before k,
X[i, j] += X[i, k] X[k, j] / p, and row and column k are divided by p. All is positive: between
words of S are entries of the inverse of their part of the Laplacian, outside of S the weights of
arcs in a graph without S, in between the products of both. Pivots are sums of what is left of a
column, so nothing is subtracted.

Where the root has one dependent, the word that it likes best stays to the end: the others form
trees below it. Probabilities are differences; where their terms are so large that digits would be
lost, and where there may be no tree, the element is not `good`.
p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inout.kernels.limits import ARBORESCENCE_GPU_TERMS

TERMS = tl.constexpr(ARBORESCENCE_GPU_TERMS)


@triton.jit
def add_both(a, b, c, d):
    """Two sums at once."""
    return a + c, b + d


@triton.jit(do_not_specialize=["n"])
def invert_kernel(
    p_scores, p_lengths, p_inverse, p_chances, p_log_z, p_good, n,
    SINGLE: tl.constexpr, H: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Fills P(arc) [b n+1 n], log Z and good [b]. `p_inverse` [b 2 N N] is scratch."""
    b = tl.program_id(0).to(tl.int64)
    length = tl.load(p_lengths + b).to(tl.int32)
    p_scores += b * (n + 1) * n
    p_chances += b * (n + 1) * n
    p_inverse += b * 2 * N * N
    minus_inf = float("-inf")
    o = tl.arange(0, N)
    m_word = o < length
    m_arc = m_word[:, None] & m_word[None, :] & (o[:, None] != o[None, :])
    b_table = tl.load(
        p_scores + (o[:, None] + 1) * n + o[None, :], mask=m_arc, other=minus_inf
    )  # [heads words]
    b_root = tl.load(p_scores + o, mask=m_word, other=minus_inf)
    # Relative to the best head of each word, and of the root to its best word.
    b_top = tl.max(b_table, axis=0)
    if not SINGLE:
        b_top = tl.maximum(b_top, b_root)
    b_top = tl.where(b_top > minus_inf, b_top, 0.0)
    shift = 0.0
    last = N
    if SINGLE:
        b_likes = b_root - b_top
        shift = tl.max(b_likes, axis=0)
        shift = tl.where(shift > minus_inf, shift, 0.0)
        last = tl.min(tl.where(b_likes == shift, o, N - 1), axis=0)
    b_table = tl.exp(b_table - b_top[None, :])
    b_first = tl.exp(b_root - b_top - shift)
    b_root = b_first
    b_pivots = tl.full([N], 1.0, dtype=tl.float64)
    for step in range(length - 1 if SINGLE else length):
        k = step + tl.where(step >= last, 1, 0)
        # Whoever holds them writes down row and column k, by turns in one of two tables, so that
        # nobody still reads what is overwritten.
        p_own = p_inverse + step % 2 * N * N
        m_cross = (o == k)[:, None] | (o == k)[None, :]
        tl.store(p_own + o[:, None] * N + o[None, :], b_table, mask=m_cross)
        tl.debug_barrier()
        b_column = tl.load(p_own + o * N + k)
        b_row = tl.load(p_own + k * N + o)
        m_left = (o > k) | (o == last)
        pivot, rooted = tl.reduce(
            (tl.where(m_left, b_column, 0.0), tl.where(o == k, b_root, 0.0)), 0, add_both
        )
        if not SINGLE:
            pivot += rooted
        b_pivots = tl.where(o == k, pivot, b_pivots)
        inverse = 1.0 / pivot
        b_share = tl.where(o == k, inverse, b_column * inverse)
        b_row = tl.where(o == k, 1.0, b_row)
        m_old = (o != k)[:, None] & (o != k)[None, :]
        b_table = tl.where(m_old, b_table, 0.0) + b_share[:, None] * b_row[None, :]
        b_root = tl.where(o == k, 0.0, b_root) + rooted * inverse * b_row
    # Rows are dependents now, and columns their heads.
    m_in = m_word & (o != last)
    tl.debug_barrier()
    tl.store(p_inverse + o[:, None] * N + o[None, :], b_table)
    tl.debug_barrier()  # what is read below was written by other threads of this program
    b_own = tl.load(p_inverse + o * (N + 1), mask=m_in, other=0.0)
    total = 1.0
    b_below = b_own
    if SINGLE:
        total = tl.sum(tl.where(o == last, b_root, 0.0), axis=0)
        b_below = tl.load(p_inverse + o * N + last, mask=m_word, other=0.0)
        b_below = tl.where(o == last, 1.0, b_below) / total
        b_root = tl.where(m_in, b_root, 0.0)
        tl.debug_barrier()
        tl.store(p_inverse + last * N + o, b_root)  # a row that is needed no more
        tl.debug_barrier()
    b_first = tl.where(m_word, b_first * b_below, 0.0)
    tl.store(p_chances + o, tl.minimum(b_first, 1.0), mask=o < n)
    b_worst = tl.where(m_word, b_first, 0.0)
    for start in range(0, n, H):
        o_i = start + tl.arange(0, H)
        m_i = o_i < length
        m_tile = m_i[:, None] & m_word[None, :] & (o_i[:, None] != o[None, :])
        m_both = m_tile & m_in[None, :] & (o_i != last)[:, None]
        b_less = tl.load(p_inverse + o[None, :] * N + o_i[:, None], mask=m_both, other=0.0)
        b_more = tl.broadcast_to(b_own[None, :], [H, N])
        if SINGLE:
            b_rooted = tl.load(p_inverse + last * N + o_i, mask=m_i, other=0.0)
            b_more += b_rooted[:, None] * b_below[None, :]
            b_less += (b_below * b_root)[None, :]
        o_arc = (o_i[:, None] + 1) * n + o[None, :]
        b_arcs = tl.load(p_scores + o_arc, mask=m_tile, other=minus_inf)
        b_weights = tl.exp(b_arcs - b_top[None, :])
        b_terms = tl.where(m_tile, b_weights * (b_more + b_less), 0.0)
        b_chances = tl.minimum(tl.maximum(b_weights * (b_more - b_less), 0.0), 1.0)
        b_chances = tl.where(m_tile, b_chances, 0.0)
        tl.store(p_chances + o_arc, b_chances, mask=(o_i < n)[:, None] & (o < n)[None, :])
        # NaN is in no range.
        b_terms = tl.where(b_terms <= TERMS, b_terms, float("inf"))
        b_worst = tl.maximum(b_worst, tl.max(b_terms, axis=0))
    good = (length > 0) & (tl.max((~(b_worst <= TERMS)).to(tl.int32), axis=0) == 0)
    good = good & (tl.min((b_pivots > 0).to(tl.int32), axis=0) > 0) & (total > 0)
    tl.store(p_good + b, good.to(tl.int32))
    b_logs = tl.log(tl.where(b_pivots > 0, b_pivots, 1.0)) + tl.where(m_word, b_top, 0.0)
    tl.store(p_log_z + b, tl.sum(b_logs, axis=0) + shift + tl.log(tl.where(total > 0, total, 1.0)))
