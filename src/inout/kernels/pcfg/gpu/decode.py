"""The kernel that draws trees of weighted grammars, or finds the best, on a GPU; see `chart.py`.

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inout.kernels.pcfg.gpu.inside import finite, row_of, scales_of_splits


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
