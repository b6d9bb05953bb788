"""Eisner's algorithm on a GPU: one Triton program for each sentence does all widths.

Log space in float64. Positions 0..n, the root first. Values of spans are kept by width: the cell
width (n + 1) + start, so what a program reads for neighbouring starts lies side by side, for both
children of a span and for all its parents. A log-sum takes two passes over its terms, one for the
maximum: the chart is in the cache, and neither pass exchanges anything between threads before its
end. Going down, an item pulls its outside value from its parents: no atomics, so the same numbers
every time.

A chart [b 4 n+1 n+1] has the complete spans headed by their left and by their right end, and the
same two of incomplete ones, whose other end has just become a dependent of the head. Lengths are
at least 1.
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
def pair_sums(p_left, p_right, width, gap, m, o_a, o_i, m_pair):
    """Values of a left child of widths o_a [K] and of the right one behind it, added: [K N].

    The right child starts `gap` positions behind the end of the left one and fills the span.
    """
    minus_inf = float("-inf")
    o_left = o_a[:, None] * m + o_i[None, :]
    o_right = (width - gap - o_a)[:, None] * m + (o_i[None, :] + o_a[:, None] + gap)
    b_left = tl.load(p_left + o_left, mask=m_pair, other=minus_inf)
    return b_left + tl.load(p_right + o_right, mask=m_pair, other=minus_inf)


@triton.jit
def pair_log_sum(
    p_left, p_right, width, gap, m, first, past, o_i, m_i,
    ONE_ROOT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """log of the sum over left children of widths first <= a < past, [N].

    With ONE_ROOT the left child that starts at the root must be empty.
    """
    minus_inf = float("-inf")
    b_tops = tl.full([K, N], minus_inf, dtype=tl.float64)
    for a in range(first, past, K):
        o_a = a + tl.arange(0, K)
        m_pair = (o_a < past)[:, None] & m_i[None, :]
        if ONE_ROOT:
            m_pair = m_pair & ((o_a == 0)[:, None] | (o_i > 0)[None, :])
        b_sums = pair_sums(p_left, p_right, width, gap, m, o_a, o_i, m_pair)
        b_tops = tl.maximum(b_tops, b_sums)
    b_top = finite(tl.max(b_tops, axis=0))
    b_totals = tl.zeros([K, N], dtype=tl.float64)
    for a in range(first, past, K):
        o_a = a + tl.arange(0, K)
        m_pair = (o_a < past)[:, None] & m_i[None, :]
        if ONE_ROOT:
            m_pair = m_pair & ((o_a == 0)[:, None] | (o_i > 0)[None, :])
        b_sums = pair_sums(p_left, p_right, width, gap, m, o_a, o_i, m_pair)
        b_totals += tl.exp(b_sums - b_top[None, :])
    return b_top + tl.log(tl.sum(b_totals, axis=0))


@triton.jit
def load_arcs(p_scores, n, width, o_i, m_i):
    """Scores of the arcs from o_i to o_i + width, and back (none to the root)."""
    minus_inf = float("-inf")
    o_j = o_i + width
    b_right = tl.load(p_scores + o_i * n + o_j - 1, mask=m_i, other=minus_inf)
    b_left = tl.load(p_scores + o_j * n + o_i - 1, mask=m_i & (o_i > 0), other=minus_inf)
    return b_right, b_left


@triton.jit(do_not_specialize=["n", "wanted"])
def inside_kernel(
    p_scores, p_lengths, p_chart, p_flags, p_log_z, n, wanted,
    ONE_ROOT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Chart of the log-weights below each item, and log Z [b], of sentences with this flag."""
    b = tl.program_id(0).to(tl.int64)
    if tl.load(p_flags + b) != wanted:
        return
    length = tl.load(p_lengths + b).to(tl.int32)
    m = n + 1
    p_scores += b * m * n
    p_right = p_chart + b * 4 * m * m
    p_left = p_right + m * m
    p_right_open = p_left + m * m
    p_left_open = p_right_open + m * m
    for start in range(0, length + 1, N):
        o_i = start + tl.arange(0, N)
        tl.store(p_right + o_i, tl.zeros([N], dtype=tl.float64), mask=o_i <= length)
        tl.store(p_left + o_i, tl.zeros([N], dtype=tl.float64), mask=o_i <= length)
    for width in range(1, length + 1):
        tl.debug_barrier()  # the cells read below were written by other threads of this program
        for start in range(0, length - width + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= length - width
            b_inner = pair_log_sum(p_right, p_left, width, 1, m, 0, width, o_i, m_i, ONE_ROOT, K, N)
            b_arc, b_back = load_arcs(p_scores, n, width, o_i, m_i)
            tl.store(p_right_open + width * m + o_i, b_inner + b_arc, mask=m_i)
            tl.store(p_left_open + width * m + o_i, b_inner + b_back, mask=m_i)
        tl.debug_barrier()
        for start in range(0, length - width + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= length - width
            b_right = pair_log_sum(
                p_right_open, p_right, width, 0, m, 1, width + 1, o_i, m_i, False, K, N
            )
            b_left = pair_log_sum(p_left, p_left_open, width, 0, m, 0, width, o_i, m_i, False, K, N)
            tl.store(p_right + width * m + o_i, b_right, mask=m_i)
            tl.store(p_left + width * m + o_i, b_left, mask=m_i)
    tl.debug_barrier()
    tl.store(p_log_z + b, tl.load(p_right + length * m))


@triton.jit
def wider_to_the_right(p_outer, p_inner, width, gap, length, m, o_c, o_i, m_i):
    """Parents with the same start, siblings of widths o_c [K] behind: outside + inside, [K N]."""
    minus_inf = float("-inf")
    o_behind = o_i[None, :] + width + gap
    m_pair = m_i[None, :] & (o_behind + o_c[:, None] <= length)
    b_outer = tl.load(
        p_outer + (width + gap + o_c)[:, None] * m + o_i[None, :], mask=m_pair, other=minus_inf
    )
    o_inner = o_c[:, None] * m + o_behind
    return b_outer + tl.load(p_inner + o_inner, mask=m_pair, other=minus_inf)


@triton.jit
def wider_to_the_left(p_outer, p_inner, width, gap, m, o_a, o_i, m_i, ONE_ROOT: tl.constexpr):
    """Parents with the same end, siblings of widths o_a [K] before: outside + inside, [K N]."""
    minus_inf = float("-inf")
    o_start = o_i[None, :] - o_a[:, None] - gap
    m_pair = m_i[None, :] & (o_start >= 0)
    if ONE_ROOT:
        m_pair = m_pair & ((o_start > 0) | (o_a == 0)[:, None])
    b_outer = tl.load(
        p_outer + (width + gap + o_a)[:, None] * m + o_start, mask=m_pair, other=minus_inf
    )
    return b_outer + tl.load(p_inner + o_a[:, None] * m + o_start, mask=m_pair, other=minus_inf)


@triton.jit
def complete_outside(
    p_outer_open, p_outer_own, p_sibling, p_open, width, length, m, o_i, m_i,
    RIGHT: tl.constexpr, ONE_ROOT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Outside values [N] of complete spans, headed left (RIGHT) or right, of one width.

    A parent is an incomplete span, made together with a complete one of the other kind, or a
    complete one of the same kind, made together with an incomplete one.
    """
    minus_inf = float("-inf")
    b_tops = tl.full([K, N], minus_inf, dtype=tl.float64)
    for a in range(0, length - width + 1, K):
        o_a = a + tl.arange(0, K)
        if RIGHT:
            m_s = m_i & ((o_i > 0) | (width == 0)) if ONE_ROOT else m_i
            b_s = wider_to_the_right(p_outer_open, p_sibling, width, 1, length, m, o_a, o_i, m_s)
            b_c = wider_to_the_left(p_outer_own, p_open, width, 0, m, o_a + 1, o_i, m_i, False)
        else:
            b_s = wider_to_the_left(p_outer_open, p_sibling, width, 1, m, o_a, o_i, m_i, ONE_ROOT)
            b_c = wider_to_the_right(p_outer_own, p_open, width, 0, length, m, o_a + 1, o_i, m_i)
        b_tops = tl.maximum(b_tops, tl.maximum(b_s, b_c))
    b_top = finite(tl.max(b_tops, axis=0))
    b_totals = tl.zeros([K, N], dtype=tl.float64)
    for a in range(0, length - width + 1, K):
        o_a = a + tl.arange(0, K)
        if RIGHT:
            m_s = m_i & ((o_i > 0) | (width == 0)) if ONE_ROOT else m_i
            b_s = wider_to_the_right(p_outer_open, p_sibling, width, 1, length, m, o_a, o_i, m_s)
            b_c = wider_to_the_left(p_outer_own, p_open, width, 0, m, o_a + 1, o_i, m_i, False)
        else:
            b_s = wider_to_the_left(p_outer_open, p_sibling, width, 1, m, o_a, o_i, m_i, ONE_ROOT)
            b_c = wider_to_the_right(p_outer_own, p_open, width, 0, length, m, o_a + 1, o_i, m_i)
        b_totals += tl.exp(b_s - b_top[None, :]) + tl.exp(b_c - b_top[None, :])
    return b_top + tl.log(tl.sum(b_totals, axis=0))


@triton.jit
def open_outside(
    p_outer, p_sibling, b_own, width, length, m, o_i, m_i,
    RIGHT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Outside values [N] of incomplete spans; b_own [N] is that of the complete one of this width.

    A parent is a complete span of the same head, made together with a complete one of the
    dependent.
    """
    minus_inf = float("-inf")
    b_tops = tl.full([K, N], minus_inf, dtype=tl.float64)
    for a in range(1, length - width + 1, K):
        o_a = a + tl.arange(0, K)
        if RIGHT:
            b_sums = wider_to_the_right(p_outer, p_sibling, width, 0, length, m, o_a, o_i, m_i)
        else:
            b_sums = wider_to_the_left(p_outer, p_sibling, width, 0, m, o_a, o_i, m_i, False)
        b_tops = tl.maximum(b_tops, b_sums)
    b_top = finite(tl.maximum(tl.max(b_tops, axis=0), b_own))
    b_totals = tl.zeros([K, N], dtype=tl.float64)
    for a in range(1, length - width + 1, K):
        o_a = a + tl.arange(0, K)
        if RIGHT:
            b_sums = wider_to_the_right(p_outer, p_sibling, width, 0, length, m, o_a, o_i, m_i)
        else:
            b_sums = wider_to_the_left(p_outer, p_sibling, width, 0, m, o_a, o_i, m_i, False)
        b_totals += tl.exp(b_sums - b_top[None, :])
    return b_top + tl.log(tl.sum(b_totals, axis=0) + tl.exp(b_own - b_top))


@triton.jit(do_not_specialize=["n"])
def outside_kernel(
    p_scores, p_lengths, p_chart, p_outer, p_flags, p_weights, p_out, n,
    ONE_ROOT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """weights[b] * P(arc) [b n+1 n] of sentences with a flag.

    `p_outer` [b 3 n+1 n+1] is scratch: outside values of complete spans, and those of what
    incomplete spans are made of before an arc is added.
    """
    b = tl.program_id(0).to(tl.int64)
    if tl.load(p_flags + b) == 0:
        return
    length = tl.load(p_lengths + b).to(tl.int32)
    weight = tl.load(p_weights + b)
    m = n + 1
    minus_inf = float("-inf")
    p_scores += b * m * n
    p_out += b * m * n
    p_right = p_chart + b * 4 * m * m
    p_left = p_right + m * m
    p_right_open = p_left + m * m
    p_left_open = p_right_open + m * m
    p_outer_right = p_outer + b * 3 * m * m
    p_outer_left = p_outer_right + m * m
    p_outer_open = p_outer_left + m * m
    log_z = tl.load(p_right + length * m)
    # Outside values are relative to Z; if it is 0, inside or outside is 0 at every arc.
    goal = -finite(log_z)
    for back in range(length):
        width = length - back
        tl.debug_barrier()  # as in `inside_kernel`
        for start in range(0, back + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= back
            b_right = complete_outside(
                p_outer_open, p_outer_right, p_left, p_right_open, width, length, m, o_i, m_i,
                True, ONE_ROOT, K, N,
            )  # fmt: skip
            b_left = complete_outside(
                p_outer_open, p_outer_left, p_right, p_left_open, width, length, m, o_i, m_i,
                False, ONE_ROOT, K, N,
            )  # fmt: skip
            b_right = tl.where(back == 0, goal, b_right)
            tl.store(p_outer_right + width * m + o_i, b_right, mask=m_i)
            tl.store(p_outer_left + width * m + o_i, b_left, mask=m_i)
            b_right_open = open_outside(
                p_outer_right, p_right, b_right, width, length, m, o_i, m_i, True, K, N
            )
            b_left_open = open_outside(
                p_outer_left, p_left, b_left, width, length, m, o_i, m_i, False, K, N
            )
            b_arc, b_back = load_arcs(p_scores, n, width, o_i, m_i)
            b_arc += b_right_open
            b_back += b_left_open
            b_top = finite(tl.maximum(b_arc, b_back))
            b_open = b_top + tl.log(tl.exp(b_arc - b_top) + tl.exp(b_back - b_top))
            tl.store(p_outer_open + width * m + o_i, b_open, mask=m_i)
            o_j = o_i + width
            b_inside = tl.load(p_right_open + width * m + o_i, mask=m_i, other=minus_inf)
            b_both = b_right_open + b_inside
            b_out = tl.where(b_both > minus_inf, weight * tl.exp(b_both), 0.0)
            tl.store(p_out + o_i * n + o_j - 1, b_out, mask=m_i)
            b_inside = tl.load(p_left_open + width * m + o_i, mask=m_i, other=minus_inf)
            b_both = b_left_open + b_inside
            b_out = tl.where(b_both > minus_inf, weight * tl.exp(b_both), 0.0)
            tl.store(p_out + o_j * n + o_i - 1, b_out, mask=m_i & (o_i > 0))
