"""Eisner's algorithm on a GPU in real arithmetic, for sentences whose numbers stay in range.

The layout is that of `logspace.py`. Weights of arcs are relative to a scale for each dependent.
Every item that covers the same words has the same dependents, so scales cancel: nothing is
rescaled on the way. A number above 0 but outside of the range in which products can neither
overflow nor underflow raises the sentence's flag, and log space repeats the sentence.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inout.kernels.dependencies.gpu.logspace import finite
from inout.kernels.limits import DEPENDENCIES_GPU_HUGE, DEPENDENCIES_GPU_LEAST, DEPENDENCIES_GROWTH

LEAST = tl.constexpr(DEPENDENCIES_GPU_LEAST)
HUGE = tl.constexpr(DEPENDENCIES_GPU_HUGE)
GROWTH = tl.constexpr(DEPENDENCIES_GROWTH)


@triton.jit
def out_of_range(b_values):
    """Whether numbers above 0 are too small or too large (or NaN)."""
    return ((b_values > 0) & (b_values < LEAST)) | ~(b_values <= HUGE)


@triton.jit
def scale_of_columns(p_scores, length, n, o_d, m_d, K: tl.constexpr, N: tl.constexpr):
    """Log-scales [N] of the arcs into words o_d: what one more word multiplies Z by, about.

    With h equally good heads for every word, trees are GROWTH^n / h^n of all choices of heads, or
    most of them if h is small.
    """
    minus_inf = float("-inf")
    b_tops = tl.full([K, N], minus_inf, dtype=tl.float64)
    for head in range(0, length + 1, K):
        o_h = head + tl.arange(0, K)
        m_arc = (o_h <= length)[:, None] & m_d[None, :] & (o_h[:, None] != o_d[None, :] + 1)
        b_arcs = tl.load(p_scores + o_h[:, None] * n + o_d[None, :], mask=m_arc, other=minus_inf)
        b_tops = tl.maximum(b_tops, b_arcs)
    b_top = finite(tl.max(b_tops, axis=0))
    b_totals = tl.zeros([K, N], dtype=tl.float64)
    b_means = tl.zeros([K, N], dtype=tl.float64)
    for head in range(0, length + 1, K):
        o_h = head + tl.arange(0, K)
        m_arc = (o_h <= length)[:, None] & m_d[None, :] & (o_h[:, None] != o_d[None, :] + 1)
        b_arcs = tl.load(p_scores + o_h[:, None] * n + o_d[None, :], mask=m_arc, other=minus_inf)
        b_arcs -= b_top[None, :]
        b_shares = tl.exp(b_arcs)
        b_totals += b_shares
        b_means += b_shares * finite(b_arcs)
    b_total = tl.sum(b_totals, axis=0)
    b_total = tl.where(b_total > 0, b_total, 1.0)
    b_entropy = tl.log(b_total) - tl.sum(b_means, axis=0) / b_total
    return b_top + tl.log(b_total) - b_entropy + tl.minimum(b_entropy, GROWTH)


@triton.jit
def pair_sum(
    p_left, p_right, width, gap, m, first, past, o_i, m_i,
    ONE_ROOT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Sum over left children of widths first <= a < past of the products of both, [N]."""
    o_k = tl.arange(0, K)
    p_l = p_left + (first + o_k)[:, None] * m + o_i[None, :]
    p_r = (
        p_right
        + (width - gap - first - o_k)[:, None] * m
        + (o_i[None, :] + (first + gap + o_k)[:, None])
    )
    b_totals = tl.zeros([K, N], dtype=tl.float64)
    for a in range(first, past, K):
        m_pair = (a + o_k < past)[:, None] & m_i[None, :]
        if ONE_ROOT:
            m_pair = m_pair & ((a + o_k == 0)[:, None] | (o_i > 0)[None, :])
        b_totals += tl.load(p_l, mask=m_pair, other=0.0) * tl.load(p_r, mask=m_pair, other=0.0)
        p_l += K * m
        p_r += K - K * m
    return tl.sum(b_totals, axis=0)


@triton.jit
def add_both(a, b, c, d):
    """Two sums at once."""
    return a + c, b + d


@triton.jit
def add_four(a, b, c, d, e, f, g, h):
    """Four sums at once."""
    return a + e, b + f, c + g, d + h


@triton.jit
def complete_sums(
    p_right, p_left, p_right_open, p_left_open, width, m, o_i, m_i,
    K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Both complete spans [N]: an incomplete one and a complete one that its dependent heads.

    Those headed left have an incomplete left child of width a, those headed right an incomplete
    right one of width + 1 - a, for 1 <= a <= width.
    """
    o_k = tl.arange(0, K)
    o_a = o_i[None, :] + (1 + o_k)[:, None] * m
    o_b = o_i[None, :] + (1 + o_k)[:, None] + (width - 1 - o_k)[:, None] * m
    b_right = tl.zeros([K, N], dtype=tl.float64)
    b_left = tl.zeros([K, N], dtype=tl.float64)
    for a in range(1, width + 1, K):
        m_pair = (a + o_k <= width)[:, None] & m_i[None, :]
        b_head = tl.load(p_right_open + o_a, mask=m_pair, other=0.0)
        b_below = tl.load(p_right + o_b, mask=m_pair, other=0.0)
        b_other = tl.load(p_left + o_a - m, mask=m_pair, other=0.0)
        b_open = tl.load(p_left_open + o_b + m - 1, mask=m_pair, other=0.0)
        b_right += b_head * b_below
        b_left += b_other * b_open
        o_a += K * m
        o_b += K - K * m
    return tl.reduce((b_right, b_left), 0, add_both)


@triton.jit
def load_weights(p_scores, p_scales, n, width, o_i, m_i):
    """Weights of the arcs from o_i to o_i + width, and back (none to the root); any out of range.

    A weight that underflows to 0 is out of range as well, unless its arc is forbidden.
    """
    minus_inf = float("-inf")
    o_j = o_i + width
    m_back = m_i & (o_i > 0)
    b_arc = tl.load(p_scores + o_i * n + o_j - 1, mask=m_i, other=minus_inf)
    b_back = tl.load(p_scores + o_j * n + o_i - 1, mask=m_back, other=minus_inf)
    b_right = tl.exp(b_arc - tl.load(p_scales + o_j - 1, mask=m_i, other=0.0))
    b_left = tl.exp(b_back - tl.load(p_scales + o_i - 1, mask=m_back, other=0.0))
    b_bad = ((b_arc > minus_inf) & (b_right < LEAST)) | ((b_back > minus_inf) & (b_left < LEAST))
    return b_right, b_left, b_bad | (b_right > HUGE) | (b_left > HUGE)


@triton.jit(do_not_specialize=["n"])
def inside_kernel(
    p_scores, p_lengths, p_scales, p_chart, p_flags, p_log_z, n,
    ONE_ROOT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Chart of the weights below each item, scales [b n], flags and log Z [b]."""
    b = tl.program_id(0).to(tl.int64)
    length = tl.load(p_lengths + b).to(tl.int32)
    m = n + 1
    p_scores += b * m * n
    p_scales += b * n
    p_right = p_chart + b * 4 * m * m
    p_left = p_right + m * m
    p_right_open = p_left + m * m
    p_left_open = p_right_open + m * m
    b_scale = tl.zeros([N], dtype=tl.float64)
    b_bad = tl.zeros([N], dtype=tl.int32)
    for start in range(0, length + 1, N):
        o_i = start + tl.arange(0, N)
        tl.store(p_right + o_i, tl.full([N], 1.0, dtype=tl.float64), mask=o_i <= length)
        tl.store(p_left + o_i, tl.full([N], 1.0, dtype=tl.float64), mask=o_i <= length)
        b_scales = scale_of_columns(p_scores, length, n, o_i, o_i < length, K, N)
        tl.store(p_scales + o_i, b_scales, mask=o_i < length)
        b_scale += tl.where(o_i < length, b_scales, 0.0)
    for width in range(1, length + 1):
        tl.debug_barrier()  # the cells read below were written by other threads of this program
        for start in range(0, length - width + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= length - width
            b_inner = pair_sum(p_right, p_left, width, 1, m, 0, width, o_i, m_i, ONE_ROOT, K, N)
            b_arc, b_back, b_far = load_weights(p_scores, p_scales, n, width, o_i, m_i)
            b_bad |= b_far.to(tl.int32)
            b_arc *= b_inner
            b_back *= b_inner
            b_bad |= (out_of_range(b_arc) | out_of_range(b_back)).to(tl.int32)
            tl.store(p_right_open + width * m + o_i, b_arc, mask=m_i)
            tl.store(p_left_open + width * m + o_i, b_back, mask=m_i)
        tl.debug_barrier()
        for start in range(0, length - width + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= length - width
            b_right, b_left = complete_sums(
                p_right, p_left, p_right_open, p_left_open, width, m, o_i, m_i, K, N
            )
            b_bad |= (out_of_range(b_right) | out_of_range(b_left)).to(tl.int32)
            tl.store(p_right + width * m + o_i, b_right, mask=m_i)
            tl.store(p_left + width * m + o_i, b_left, mask=m_i)
    tl.debug_barrier()
    tl.store(p_flags + b, tl.max(b_bad, axis=0))
    z = tl.load(p_right + length * m)
    tl.store(p_log_z + b, tl.log(z) + tl.sum(b_scale, axis=0))


@triton.jit
def parent_sums(
    p_right, p_left, p_right_open, p_left_open, p_outer_right, p_outer_left, p_outer_open,
    width, length, m, start, m_i, ONE_ROOT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """What parents of width + 1 + c give to the spans of a width: four sums [N].

    To complete spans headed by their left end and by their right end; and to the same two of
    incomplete ones, by complete ones of the same head. Parents with the same start have their other
    child behind the span, those with the same end before it.
    """
    o_k, o_i = tl.arange(0, K), start + tl.arange(0, N)
    b_right = tl.zeros([K, N], dtype=tl.float64)
    b_left = tl.zeros([K, N], dtype=tl.float64)
    b_right_open = tl.zeros([K, N], dtype=tl.float64)
    b_left_open = tl.zeros([K, N], dtype=tl.float64)
    # With one root word, the root's side of its arc is empty: no parent has a wider one.
    m_s = m_i & (o_i > 0) if ONE_ROOT else m_i
    o_outer = o_i[None, :] + (width + 1 + o_k)[:, None] * m
    o_inner = o_i[None, :] + width + o_k[:, None] * m
    for c in range(0, length - width - start, K):
        m_in = o_i[None, :] + width + (c + o_k)[:, None] < length
        m_pair = m_i[None, :] & m_in
        b_outer = tl.load(p_outer_open + o_outer, mask=m_s[None, :] & m_in, other=0.0)
        b_inner = tl.load(p_left + o_inner + 1, mask=m_s[None, :] & m_in, other=0.0)
        b_right += b_outer * b_inner
        b_outer = tl.load(p_outer_left + o_outer, mask=m_pair, other=0.0)
        b_inner = tl.load(p_left_open + o_inner + m, mask=m_pair, other=0.0)
        b_left += b_outer * b_inner
        b_outer = tl.load(p_outer_right + o_outer, mask=m_pair, other=0.0)
        b_inner = tl.load(p_right + o_inner + m, mask=m_pair, other=0.0)
        b_right_open += b_outer * b_inner
        o_outer += K * m
        o_inner += K * m
    o_start = o_i[None, :] - 1 - o_k[:, None]
    o_outer = o_start + (width + 1 + o_k)[:, None] * m
    o_inner = o_start + o_k[:, None] * m
    for c in range(0, tl.minimum(length - width, start + N - 1), K):
        m_pair = m_i[None, :] & (o_start >= 0)
        m_open = m_pair & ((o_start > 0) | (c + o_k == 0)[:, None]) if ONE_ROOT else m_pair
        b_outer = tl.load(p_outer_open + o_outer, mask=m_open, other=0.0)
        b_inner = tl.load(p_right + o_inner, mask=m_open, other=0.0)
        b_left += b_outer * b_inner
        b_outer = tl.load(p_outer_right + o_outer, mask=m_pair, other=0.0)
        b_inner = tl.load(p_right_open + o_inner + m, mask=m_pair, other=0.0)
        b_right += b_outer * b_inner
        b_outer = tl.load(p_outer_left + o_outer, mask=m_pair, other=0.0)
        b_inner = tl.load(p_left + o_inner + m, mask=m_pair, other=0.0)
        b_left_open += b_outer * b_inner
        o_start -= K
        o_outer += K * m - K
        o_inner += K * m - K
    return tl.reduce((b_right, b_left, b_right_open, b_left_open), 0, add_four)


@triton.jit(do_not_specialize=["n"])
def outside_kernel(
    p_scores, p_lengths, p_scales, p_chart, p_outer, p_flags, p_weights, p_out, n,
    ONE_ROOT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """weights[b] * P(arc) [b n+1 n] of sentences without a flag; raises more flags.

    `p_outer` [b 3 n+1 n+1] is scratch, as in log space.
    """
    b = tl.program_id(0).to(tl.int64)
    # A sentence that is repeated anyway needs no work.
    length = tl.where(tl.load(p_flags + b) == 0, tl.load(p_lengths + b).to(tl.int32), 0)
    weight = tl.load(p_weights + b)
    m = n + 1
    p_scores += b * m * n
    p_scales += b * n
    p_out += b * m * n
    p_right = p_chart + b * 4 * m * m
    p_left = p_right + m * m
    p_right_open = p_left + m * m
    p_left_open = p_right_open + m * m
    p_outer_right = p_outer + b * 3 * m * m
    p_outer_left = p_outer_right + m * m
    p_outer_open = p_outer_left + m * m
    z = tl.load(p_right + length * m)
    # Outside values are relative to Z; if it is 0, inside or outside is 0 at every arc.
    goal = 1.0 / tl.where(z > 0, z, 1.0)
    b_bad = tl.zeros([N], dtype=tl.int32)
    for back in range(length):
        width = length - back
        tl.debug_barrier()  # as in `inside_kernel`
        for start in range(0, back + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= back
            b_right, b_left, b_right_more, b_left_more = parent_sums(
                p_right, p_left, p_right_open, p_left_open,
                p_outer_right, p_outer_left, p_outer_open,
                width, length, m, start, m_i, ONE_ROOT, K, N,
            )  # fmt: skip
            b_right = tl.where(back == 0, goal, b_right)
            tl.store(p_outer_right + width * m + o_i, b_right, mask=m_i)
            tl.store(p_outer_left + width * m + o_i, b_left, mask=m_i)
            b_bad |= (out_of_range(b_right) | out_of_range(b_left)).to(tl.int32)
            b_right += b_right_more
            b_left += b_left_more
            b_arc, b_back, _ = load_weights(p_scores, p_scales, n, width, o_i, m_i)
            b_open = b_arc * b_right + b_back * b_left
            b_bad |= (out_of_range(b_open) | out_of_range(b_right) | out_of_range(b_left)).to(
                tl.int32
            )
            tl.store(p_outer_open + width * m + o_i, b_open, mask=m_i)
            o_j = o_i + width
            b_right *= tl.load(p_right_open + width * m + o_i, mask=m_i, other=0.0)
            b_left *= tl.load(p_left_open + width * m + o_i, mask=m_i, other=0.0)
            tl.store(p_out + o_i * n + o_j - 1, weight * b_right, mask=m_i)
            tl.store(p_out + o_j * n + o_i - 1, weight * b_left, mask=m_i & (o_i > 0))
    if tl.max(b_bad, axis=0) > 0:
        tl.store(p_flags + b, 2)
