"""Best trees and samples on a GPU; the layout is that of `logspace.py`.

Splits are kept as the width of the left child. An item that is used by a tree is replaced by its
two children until only arcs are left.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inout.kernels.dependencies.gpu.logspace import load_arcs, pair_sums
from inout.kernels.spans.gpu.kernels import advance


@triton.jit
def best_pair(
    p_left, p_right, width, gap, m, first, past, o_i, m_i,
    ONE_ROOT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """The best sum of both children [N] and the width of its left child; ties go to the first."""
    minus_inf = float("-inf")
    b_tops = tl.full([K, N], minus_inf, dtype=tl.float64)
    b_widths = tl.full([K, N], first, dtype=tl.int32)
    for a in range(first, past, K):
        o_a = a + tl.arange(0, K)
        m_pair = (o_a < past)[:, None] & m_i[None, :]
        if ONE_ROOT:
            m_pair = m_pair & ((o_a == 0)[:, None] | (o_i > 0)[None, :])
        b_sums = pair_sums(p_left, p_right, width, gap, m, o_a, o_i, m_pair)
        b_widths = tl.where(b_sums > b_tops, o_a[:, None], b_widths)
        b_tops = tl.maximum(b_tops, b_sums)
    b_top = tl.max(b_tops, axis=0)
    return b_top, tl.min(tl.where(b_tops == b_top[None, :], b_widths, past), axis=0)


@triton.jit(do_not_specialize=["n"])
def viterbi_kernel(
    p_scores, p_lengths, p_best, p_splits, p_chosen, p_heads, n,
    ONE_ROOT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Heads [b n] of the best tree, unwritten where there is none.

    `p_best` [b 4 n+1 n+1] and `p_splits` [b 3 n+1 n+1] are scratch, `p_chosen` [b 4 n+1 n+1] too
    and must be 0.
    """
    b = tl.program_id(0).to(tl.int64)
    length = tl.load(p_lengths + b).to(tl.int32)
    m = n + 1
    size = m * m
    p_scores += b * m * n
    p_heads += b * n
    p_right = p_best + b * 4 * size
    p_left = p_right + size
    p_right_open = p_left + size
    p_left_open = p_right_open + size
    p_split_right = p_splits + b * 3 * size
    p_split_left = p_split_right + size
    p_split_open = p_split_left + size
    for start in range(0, length + 1, N):
        o_i = start + tl.arange(0, N)
        tl.store(p_right + o_i, tl.zeros([N], dtype=tl.float64), mask=o_i <= length)
        tl.store(p_left + o_i, tl.zeros([N], dtype=tl.float64), mask=o_i <= length)
    for width in range(1, length + 1):
        tl.debug_barrier()  # the cells read below were written by other threads of this program
        for start in range(0, length - width + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= length - width
            o_cell = width * m + o_i
            b_inner, b_split = best_pair(
                p_right, p_left, width, 1, m, 0, width, o_i, m_i, ONE_ROOT, K, N
            )
            b_arc, b_back = load_arcs(p_scores, n, width, o_i, m_i)
            tl.store(p_right_open + o_cell, b_inner + b_arc, mask=m_i)
            tl.store(p_left_open + o_cell, b_inner + b_back, mask=m_i)
            tl.store(p_split_open + o_cell, b_split, mask=m_i)
        tl.debug_barrier()
        for start in range(0, length - width + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= length - width
            o_cell = width * m + o_i
            b_right, b_split = best_pair(
                p_right_open, p_right, width, 0, m, 1, width + 1, o_i, m_i, False, K, N
            )
            tl.store(p_right + o_cell, b_right, mask=m_i)
            tl.store(p_split_right + o_cell, b_split, mask=m_i)
            b_left, b_split = best_pair(
                p_left, p_left_open, width, 0, m, 0, width, o_i, m_i, False, K, N
            )
            tl.store(p_left + o_cell, b_left, mask=m_i)
            tl.store(p_split_left + o_cell, b_split, mask=m_i)
    tl.debug_barrier()
    p_in_right = p_chosen + b * 4 * size
    p_in_left = p_in_right + size
    p_in_right_open = p_in_left + size
    p_in_left_open = p_in_right_open + size
    if tl.load(p_right + length * m) > float("-inf"):
        tl.store(p_in_right + length * m, 1)
    for back in range(length):
        width = length - back
        tl.debug_barrier()
        for start in range(0, back + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= back
            o_cell = width * m + o_i
            m_in = tl.load(p_in_right + o_cell, mask=m_i, other=0) > 0
            b_a = tl.load(p_split_right + o_cell, mask=m_in, other=0)
            tl.store(p_in_right_open + b_a * m + o_i, 1, mask=m_in)
            tl.store(p_in_right + (width - b_a) * m + o_i + b_a, 1, mask=m_in)
            m_in = tl.load(p_in_left + o_cell, mask=m_i, other=0) > 0
            b_a = tl.load(p_split_left + o_cell, mask=m_in, other=0)
            tl.store(p_in_left + b_a * m + o_i, 1, mask=m_in)
            tl.store(p_in_left_open + (width - b_a) * m + o_i + b_a, 1, mask=m_in)
        tl.debug_barrier()  # an incomplete span may be as wide as the complete one above it
        for start in range(0, back + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= back
            o_cell = width * m + o_i
            m_right = tl.load(p_in_right_open + o_cell, mask=m_i, other=0) > 0
            m_left = tl.load(p_in_left_open + o_cell, mask=m_i, other=0) > 0
            tl.store(p_heads + o_i + width - 1, o_i.to(tl.int64), mask=m_right)
            tl.store(p_heads + o_i - 1, (o_i + width).to(tl.int64), mask=m_left)
            m_in = m_right | m_left
            b_a = tl.load(p_split_open + o_cell, mask=m_in, other=0)
            tl.store(p_in_right + b_a * m + o_i, 1, mask=m_in)
            tl.store(p_in_left + (width - b_a - 1) * m + o_i + b_a + 1, 1, mask=m_in)


@triton.jit(do_not_specialize=["batch", "n"])
def sample_kernel(
    p_scores, p_lengths, p_chart, p_uniform, p_stack, p_heads, batch, n,
    ONE_ROOT: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """Heads [m b n] of sampled trees, from a chart in log space; unwritten where there is none.

    Each program takes one tree apart. `p_stack` [m b n+2] holds items: kind (n+1)² + cell, kinds
    in the order of the chart. `p_uniform` [m b 2n].
    """
    sample = tl.program_id(0).to(tl.int64)
    b = sample % batch
    m = n + 1
    size = m * m
    minus_inf = float("-inf")
    p_scores += b * m * n
    p_chart += b * 4 * size
    p_uniform += sample * 2 * n
    p_stack += sample * (n + 2)
    p_heads += sample * n
    length = tl.load(p_lengths + b).to(tl.int32)
    item = length * m  # the goal: complete, headed by the root
    waiting = length * 0
    for turn in range(tl.where(tl.load(p_chart + item) > minus_inf, 2 * length, 0)):
        kind, cell = item // size, item % size
        width, i = cell // m, cell % m
        j = i + width
        if kind >= 2:  # incomplete: an arc, and two complete spans
            head, dependent = tl.where(kind == 2, i, j), tl.where(kind == 2, j, i)
            tl.store(p_heads + dependent - 1, head.to(tl.int64))
            total = tl.load(p_chart + item) - tl.load(p_scores + head * n + dependent - 1)
        else:
            total = tl.load(p_chart + item)
        first = tl.where(kind == 0, 1, 0)
        past = tl.where(kind == 0, width + 1, width)
        if ONE_ROOT:
            past = tl.where((kind == 2) & (i == 0), 1, past)
        gap = tl.where(kind >= 2, 1, 0)
        # Which tables the children are in: right and left complete ones for an arc, a right
        # incomplete and a right complete one, or a left complete and a left incomplete one.
        left_kind = tl.where(kind == 0, 2, tl.where(kind == 1, 1, 0))
        right_kind = tl.where(kind == 0, 0, tl.where(kind == 1, 3, 1))
        uniform = tl.load(p_uniform + turn)
        passed = tl.zeros([], dtype=tl.float64)
        reached, last = tl.zeros([], dtype=tl.int32), tl.zeros([], dtype=tl.int32)
        for narrowest in range(first, past, K):
            o_a = narrowest + tl.arange(0, K)
            m_a = o_a < past
            o_left = left_kind * size + o_a * m + i
            o_right = right_kind * size + (width - gap - o_a) * m + i + o_a + gap
            b_sums = tl.load(p_chart + o_left, mask=m_a, other=minus_inf)
            b_sums += tl.load(p_chart + o_right, mask=m_a, other=minus_inf)
            b_shares = tl.exp(b_sums - total)
            passed, reached, last = advance(b_shares, o_a - first, uniform, passed, reached, last)
        a = first + tl.minimum(reached, last)
        right_width = width - gap - a
        left_item = left_kind * size + a * m + i
        right_item = right_kind * size + right_width * m + i + a + gap
        # Empty spans have no parts.
        if a > 0:
            if right_width > 0:
                tl.store(p_stack + waiting, right_item)
                waiting += 1
            item = left_item
        elif right_width > 0:
            item = right_item
        else:
            waiting -= 1
            tl.debug_barrier()  # all threads read what one of them wrote
            item = tl.load(p_stack + waiting, mask=waiting >= 0, other=0)
