"""Trees whose spans have one score, on a GPU: one Triton program for each element does all widths.

Log space in float64. Charts are kept by width: the cell (width - 1) n + start. So what a program
reads for neighbouring starts lies side by side, for both children of a span and for both kinds of
parents. A log-sum takes two passes over its terms, one for the maximum: the chart is in the cache,
and neither pass exchanges anything between threads before its end. Going down, a span pulls its
outside value from its parents: no atomics, so the same numbers every time.

Scores [b n n], of which those with i <= j < length count; lengths of at least 1.
p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inout.kernels.shapes import LabelledSpans, Lengths, PerElement, Spans


@triton.jit
def finite(x):
    """x, or 0 where it is -inf, so that it can be subtracted."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def split_sums(p_chart, width, n, o_left, o_start, m_start):
    """Values of both children added, [K N]: left children of widths o_left [K] at o_start [N]."""
    minus_inf = float("-inf")
    m_split = (o_left < width)[:, None] & m_start[None, :]
    o_a, o_i = o_left[:, None], o_start[None, :]
    b_left = tl.load(p_chart + (o_a - 1) * n + o_i, mask=m_split, other=minus_inf)
    b_right = tl.load(p_chart + (width - o_a - 1) * n + o_i + o_a, mask=m_split, other=minus_inf)
    return b_left + b_right


@triton.jit
def parent_sums(p_chart, p_outer, width, length, n, o_other, o_start, m_start):
    """Outside values of parents plus inside ones of siblings, [K N]: as left child, as right child.

    The siblings have widths o_other [K].
    """
    minus_inf = float("-inf")
    o_a, o_i = o_other[:, None], o_start[None, :]
    o_parent = (width + o_a - 1) * n + o_i
    m_left = m_start[None, :] & (o_i + width + o_a <= length)
    m_right = m_start[None, :] & (o_a <= o_i) & (width + o_a <= length)
    b_left = tl.load(p_outer + o_parent, mask=m_left, other=minus_inf)
    b_left += tl.load(p_chart + (o_a - 1) * n + o_i + width, mask=m_left, other=minus_inf)
    b_right = tl.load(p_outer + o_parent - o_a, mask=m_right, other=minus_inf)
    b_right += tl.load(p_chart + (o_a - 1) * n + o_i - o_a, mask=m_right, other=minus_inf)
    return b_left, b_right


@triton.jit
def inside_kernel(
    p_scores, p_lengths, p_chart, p_log_z, n, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Chart [b n n] of the log-weights below each span, and log Z [b]."""
    b = tl.program_id(0).to(tl.int64)
    length = tl.load(p_lengths + b).to(tl.int32)
    p_scores += b * n * n
    p_chart += b * n * n
    for width in range(1, length + 1):
        tl.debug_barrier()  # the cells read below were written by other threads of this program
        for start in range(0, length - width + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= length - width
            b_tops = tl.full([K, N], float("-inf"), dtype=tl.float64)
            for left in range(1, width, K):
                o_a = left + tl.arange(0, K)
                b_tops = tl.maximum(b_tops, split_sums(p_chart, width, n, o_a, o_i, m_i))
            b_top = finite(tl.max(b_tops, axis=0))
            b_totals = tl.zeros([K, N], dtype=tl.float64)
            for left in range(1, width, K):
                o_a = left + tl.arange(0, K)
                b_sums = split_sums(p_chart, width, n, o_a, o_i, m_i)
                b_totals += tl.exp(b_sums - b_top[None, :])
            b_inner = b_top + tl.log(tl.sum(b_totals, axis=0))
            b_score = tl.load(p_scores + o_i * (n + 1) + width - 1, mask=m_i, other=0.0)
            b_value = b_score + tl.where(width == 1, 0.0, b_inner)
            tl.store(p_chart + (width - 1) * n + o_i, b_value, mask=m_i)
    tl.debug_barrier()
    tl.store(p_log_z + b, tl.load(p_chart + (length - 1) * n))


@triton.jit
def outside_kernel(
    p_scores, p_lengths, p_chart, p_outer, p_weights, p_out, n,
    K: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """weights[b] * P(span) [b n n]; `p_outer` [b n n] is scratch: outside value and score."""
    b = tl.program_id(0).to(tl.int64)
    length = tl.load(p_lengths + b).to(tl.int32)
    weight = tl.load(p_weights + b)
    p_scores += b * n * n
    p_chart += b * n * n
    p_outer += b * n * n
    p_out += b * n * n
    minus_inf = float("-inf")
    log_z = tl.load(p_chart + (length - 1) * n)
    # Outside values are relative to Z; if it is 0, inside or outside is 0 at every span.
    root = -finite(log_z)
    for back in range(length):
        width = length - back
        tl.debug_barrier()  # as in `inside_kernel`
        for start in range(0, back + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= back
            b_tops = tl.full([K, N], minus_inf, dtype=tl.float64)
            for other in range(1, back + 1, K):
                o_a = other + tl.arange(0, K)
                b_left, b_right = parent_sums(p_chart, p_outer, width, length, n, o_a, o_i, m_i)
                b_tops = tl.maximum(b_tops, tl.maximum(b_left, b_right))
            b_top = finite(tl.max(b_tops, axis=0))
            b_totals = tl.zeros([K, N], dtype=tl.float64)
            for other in range(1, back + 1, K):
                o_a = other + tl.arange(0, K)
                b_left, b_right = parent_sums(p_chart, p_outer, width, length, n, o_a, o_i, m_i)
                b_totals += tl.exp(b_left - b_top[None, :]) + tl.exp(b_right - b_top[None, :])
            b_outside = tl.where(back == 0, root, b_top + tl.log(tl.sum(b_totals, axis=0)))
            o_score = o_i * (n + 1) + width - 1
            b_score = tl.load(p_scores + o_score, mask=m_i, other=minus_inf)
            tl.store(p_outer + (width - 1) * n + o_i, b_outside + b_score, mask=m_i)
            b_inside = tl.load(p_chart + (width - 1) * n + o_i, mask=m_i, other=minus_inf)
            b_both = b_outside + b_inside
            b_out = tl.where(b_both > minus_inf, weight * tl.exp(b_both), 0.0)
            tl.store(p_out + o_score, b_out, mask=m_i)


@triton.jit
def viterbi_kernel(
    p_scores, p_lengths, p_best, p_splits, p_chosen, n, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Sets chosen [b n n] to 1 at the spans of the best tree.

    `p_best` and `p_splits` (width of the left child) [b n n] are scratch.
    """
    b = tl.program_id(0).to(tl.int64)
    length = tl.load(p_lengths + b).to(tl.int32)
    p_scores += b * n * n
    p_best += b * n * n
    p_splits += b * n * n
    p_chosen += b * n * n
    minus_inf = float("-inf")
    for width in range(1, length + 1):
        tl.debug_barrier()  # as in `inside_kernel`
        for start in range(0, length - width + 1, N):
            o_i = start + tl.arange(0, N)
            m_i = o_i <= length - width
            b_tops = tl.full([K, N], minus_inf, dtype=tl.float64)
            b_lefts = tl.zeros([K, N], dtype=tl.int32)
            for left in range(1, width, K):
                o_a = left + tl.arange(0, K)
                b_sums = split_sums(p_best, width, n, o_a, o_i, m_i)
                b_lefts = tl.where(b_sums > b_tops, o_a[:, None], b_lefts)
                b_tops = tl.maximum(b_tops, b_sums)
            b_top = tl.max(b_tops, axis=0)
            # Ties go to the first split.
            b_left = tl.min(tl.where(b_tops == b_top[None, :], b_lefts, length), axis=0)
            b_score = tl.load(p_scores + o_i * (n + 1) + width - 1, mask=m_i, other=0.0)
            b_value = b_score + tl.where(width == 1, 0.0, b_top)
            tl.store(p_best + (width - 1) * n + o_i, b_value, mask=m_i)
            tl.store(p_splits + (width - 1) * n + o_i, b_left, mask=m_i)
    tl.debug_barrier()
    if tl.load(p_best + (length - 1) * n) > minus_inf:
        tl.store(p_chosen + length - 1, 1)
    for back in range(length - 1):
        width = length - back
        tl.debug_barrier()
        for start in range(0, back + 1, N):
            o_i = start + tl.arange(0, N)
            # Chosen spans of one width are apart, and so are their children.
            m_i = o_i <= back
            m_i = tl.load(p_chosen + o_i * (n + 1) + width - 1, mask=m_i, other=0) > 0
            b_left = tl.load(p_splits + (width - 1) * n + o_i, mask=m_i, other=1)
            tl.store(p_chosen + o_i * (n + 1) + b_left - 1, 1, mask=m_i)
            tl.store(p_chosen + (o_i + b_left) * n + o_i + width - 1, 1, mask=m_i)


@triton.jit
def advance(b_shares, o_place, uniform, passed, reached, last):
    """One block of a draw by running sums: (sum so far, places reached, last possible place).

    Places of weight zero leave the running sum as it is, and so are never reached first. At the
    end rounding may have left the sum short of 1: then the last possible place is meant.
    """
    b_sums = passed + tl.cumsum(b_shares, axis=0)
    reached += tl.sum((b_sums <= uniform).to(tl.int32), axis=0)
    last = tl.maximum(last, tl.max(tl.where(b_shares > 0, o_place, 0), axis=0))
    return passed + tl.sum(b_shares, axis=0), reached, last


@triton.jit
def sample_kernel(
    p_scores, p_potentials, p_lengths, p_chart, p_uniform, p_ends, p_labels, batch, n, s,
    K: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """Labels [m b n n] of sampled trees, written where these have spans.

    Each program walks down one tree, left children first. A right child waits for what is left of
    it: `p_ends` [m b n] keeps where it ends, at the place where it starts. `p_uniform` [m b 2n 2].
    """
    sample = tl.program_id(0).to(tl.int64)
    b = sample % batch
    minus_inf = float("-inf")
    p_scores += b * n * n
    p_potentials += b * n * n * s
    p_chart += b * n * n
    p_uniform += sample * n * 4
    p_ends += sample * n
    p_labels += sample * n * n
    length = tl.load(p_lengths + b).to(tl.int32)
    log_z = tl.load(p_chart + (length - 1) * n)
    i, j = length * 0, length - 1
    for turn in range(tl.where(log_z > minus_inf, 2 * length - 1, 0)):
        width = j - i + 1
        score = tl.load(p_scores + i * n + j)
        zero, none = tl.zeros([], dtype=tl.float64), tl.zeros([], dtype=tl.int32)
        uniform, passed, reached, last = tl.load(p_uniform + 2 * turn), zero, none, none
        for label in range(0, s, L):
            o_label = label + tl.arange(0, L)
            p_label = p_potentials + (i * n + j).to(tl.int64) * s + o_label
            b_label = tl.load(p_label, mask=o_label < s, other=minus_inf)
            b_shares = tl.exp(b_label.to(tl.float64) - score)
            passed, reached, last = advance(b_shares, o_label, uniform, passed, reached, last)
        tl.store(p_labels + i * n + j, tl.minimum(reached, last).to(tl.int64))
        # The log-sum over the splits is known.
        total = tl.load(p_chart + (width - 1) * n + i) - score
        uniform, passed, reached, last = tl.load(p_uniform + 2 * turn + 1), zero, none, none
        for left in range(1, width, K):
            o_a = left + tl.arange(0, K)
            m_a = o_a < width
            b_sums = tl.load(p_chart + (o_a - 1) * n + i, mask=m_a, other=minus_inf)
            o_right = (width - o_a - 1) * n + i + o_a
            b_sums += tl.load(p_chart + o_right, mask=m_a, other=minus_inf)
            b_shares = tl.exp(b_sums - total)
            passed, reached, last = advance(b_shares, o_a - 1, uniform, passed, reached, last)
        split = i + tl.minimum(reached, last)
        if width > 1:
            tl.store(p_ends + split + 1, j)
            j = split
        else:
            i = j + 1
        tl.debug_barrier()  # all threads read what one of them wrote
        if width == 1:
            j = tl.load(p_ends + i, mask=i < length, other=0)


def _options(n: int) -> dict[str, int]:
    """Tile [K N] of splits and starts, and warps."""
    starts = max(16, min(64, triton.next_power_of_2(n)))
    splits = max(16, min(32, triton.next_power_of_2(n)))
    return {"K": splits, "N": starts, "num_warps": max(1, starts * splits // 256)}


def inside(scores: Spans, lengths: Lengths) -> tuple[PerElement, Spans]:
    """(log Z, chart by width)."""
    b, n, _ = scores.shape
    chart, log_z = torch.empty_like(scores), scores.new_empty(b)
    inside_kernel[(b,)](scores, lengths, chart, log_z, n, **_options(n))
    return log_z, chart


def marginals(scores: Spans, lengths: Lengths, chart: Spans, weights: PerElement) -> Spans:
    """weights[b] * P(span i..j is in the tree)."""
    b, n, _ = scores.shape
    outer, out = torch.empty_like(scores), torch.zeros_like(scores)
    outside_kernel[(b,)](scores, lengths, chart, outer, weights, out, n, **_options(n))
    return out


def best_tree(scores: Spans, lengths: Lengths) -> Bool[Tensor, "b n n"]:
    """The spans of the tree with the highest score; none where no tree is possible."""
    b, n, _ = scores.shape
    best = torch.empty_like(scores)
    splits = torch.empty_like(scores, dtype=torch.int32)
    chosen = torch.zeros_like(scores, dtype=torch.int8)
    viterbi_kernel[(b,)](scores, lengths, best, splits, chosen, n, **_options(n))
    return chosen.bool()


def sample_trees(
    scores: Spans,
    potentials: LabelledSpans,
    lengths: Lengths,
    chart: Spans,
    uniform: Float[Tensor, "m b turns 2"],
) -> Int[Tensor, "m b n n"]:
    """Labelled trees: labels of spans, -1 elsewhere; `uniform` has 2n turns."""
    b, n, _, s = potentials.shape
    m = len(uniform)
    labels = torch.full((m, b, n, n), -1, device=scores.device)
    ends = torch.empty((m, b, n), dtype=torch.int32, device=scores.device)
    sample_kernel[(m * b,)](
        scores, potentials, lengths, chart, uniform, ends, labels, b, n, s,
        K=max(32, min(256, triton.next_power_of_2(n))),
        L=max(32, min(256, triton.next_power_of_2(s))),
        num_warps=1,
    )  # fmt: skip
    return labels
