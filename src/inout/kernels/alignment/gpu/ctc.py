"""CTC on a GPU: two Triton programs for each batch element, which meet in the middle.

One goes through the first half of the frames, the other backwards through the rest, which is the
same with the target reversed: log Z is there in half the steps. Each leaves the shares of the moves
in the states they lead to. For the gradient, the chances of the states where they met are divided
among the states before by these shares, and so on, each program back through its own half. What is
not bound to the order of frames is done by other kernels for all of them at once: gathering the
scores of the labels before, and adding up the chances of each label afterwards, in the order of the
target.

A program has a lane for each label of the target and the blank behind it; lane 0 is the blank
before all of them. Numbers have exponents of their own (`arithmetic.py`).

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.alignment.gpu.arithmetic import (
    both_shares,
    brought_together,
    exponential,
    finite,
    logarithm,
    power,
    settled,
    share_of_two,
    total_of,
)


@triton.jit
def gather_kernel(
    p_scores, p_given, p_mantissas, p_exponents, t, u, blank,
    stride_element, stride_frame, stride_label, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """exp of the scores of the blank and the labels of the target, [b t u+1]."""
    b = tl.program_id(1).to(tl.int64)
    n, m = tl.load(p_given + b * (u + 2)), tl.load(p_given + b * (u + 2) + 1)
    o_t = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    o_row = (b * t + o_t) * (u + 1)
    o_frame = o_t.to(tl.int64) * stride_frame
    for start in range(0, m + 1, COLUMNS):
        o_c = start + tl.arange(0, COLUMNS)
        b_label = tl.load(p_given + b * (u + 2) + 1 + o_c, mask=(o_c > 0) & (o_c <= m), other=blank)
        o_score = o_frame[:, None] + b_label[None, :] * stride_label
        m_both = (o_t < n)[:, None] & (o_c <= m)[None, :]
        b_scores = tl.load(
            p_scores + b * stride_element + o_score, mask=m_both, other=float("-inf")
        )
        b_m, b_e = exponential(b_scores)
        tl.store(p_mantissas + o_row[:, None] + o_c[None, :], b_m, mask=m_both)
        tl.store(p_exponents + o_row[:, None] + o_c[None, :], b_e, mask=m_both)


@triton.jit
def from_before(b_x, o_w, first):
    """What the lane before has; `first` in lane 0."""
    return tl.where(o_w == 0, first, tl.gather(b_x, tl.maximum(o_w - 1, 0), 0))


@triton.jit
def number_before(b_m, b_e, o_w):
    """The number that the lane before has; 0 in lane 0."""
    if b_m.dtype == tl.float32:  # one exchange among the threads is faster than two
        b_both = b_e.to(tl.int32, bitcast=True).to(tl.int64) << 32
        b_both |= b_m.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
        b_both = tl.gather(b_both, tl.maximum(o_w - 1, 0), 0)
        b_m = b_both.to(tl.int32).to(tl.float32, bitcast=True)
        b_e = (b_both >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        return tl.where(o_w == 0, 0.0, b_m), tl.where(o_w == 0, float("-inf"), b_e)
    return from_before(b_m, o_w, 0.0), from_before(b_e, o_w, float("-inf"))


@triton.jit
def from_behind(b_x, o_w, W: tl.constexpr):
    """What the next lane has; 0 in the last."""
    return tl.where(o_w == W - 1, 0.0, tl.gather(b_x, tl.minimum(o_w + 1, W - 1), 0))


@triton.jit
def steps_of(n, side):
    """The frames that a side goes through."""
    return tl.where(side == 0, n - n // 2, n // 2)


@triton.jit
def follows(p_target, o_w, m, side):
    """Whether the label of the next lane can follow that of the lane without a blank [W]."""
    m_both = (o_w > 0) & (o_w < m)
    place = tl.where(side == 0, o_w - 1, m - o_w)
    after = tl.where(side == 0, place + 1, place - 1)
    b_label = tl.load(p_target + place, mask=m_both, other=0)
    return m_both & (b_label != tl.load(p_target + after, mask=m_both, other=0))


@triton.jit
def sweep_kernel(
    p_mantissas, p_exponents, p_given, p_shares, p_fronts, t, u,
    W: tl.constexpr, STAGES: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """What both sides have at the middle, and the shares of moves on the way there.

    Fronts [b 2 4 W] are mantissas and exponents of blanks, then of labels; the target of the second
    side is reversed. Shares [b t 3 W] say how the states of a lane came about.
    """
    b, side = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n, m = tl.load(p_given + b * (u + 2)), tl.load(p_given + b * (u + 2) + 1)
    o_w = tl.arange(0, W)
    m_label = (o_w > 0) & (o_w <= m)
    column = tl.where(side == 0, o_w, m + 1 - o_w)
    b_follows = follows(p_given + b * (u + 2) + 2, o_w, m, side)
    blank_m = tl.where(o_w == 0, 1.0, 0.0).to(p_mantissas.dtype.element_ty)  # [W]
    blank_e = tl.where(o_w == 0, 0.0, float("-inf")).to(blank_m.dtype)
    label_m = tl.zeros([W], dtype=blank_m.dtype)
    label_e = label_m + float("-inf")
    p_shares += b * t * 3 * W + o_w
    for step in tl.range(0, steps_of(n, side), num_stages=STAGES):
        frame = tl.where(side == 0, step, n - 1 - step)
        row = (b * t + frame) * (u + 1)
        b_m = tl.load(p_mantissas + row + column, mask=m_label, other=0.0)
        b_e = tl.load(p_exponents + row + column, mask=m_label, other=float("-inf"))
        own_m, own_e = tl.load(p_mantissas + row), tl.load(p_exponents + row)
        # What can begin the next label.
        skip_e = tl.where(b_follows, label_e, float("-inf"))
        b_1, b_2, next_e = brought_together(blank_m, blank_e, label_m, skip_e)
        next_m = b_1 + b_2
        begin_share = share_of_two(b_1, b_2, next_m)
        # The blank.
        b_1, b_2, blank_e = brought_together(blank_m, blank_e, label_m, label_e)
        blank_m = b_1 + b_2
        rest_share = share_of_two(b_1, b_2, blank_m)
        blank_m, blank_e = settled(blank_m * own_m, blank_e + own_e)
        # The label.
        next_m, next_e = number_before(next_m, next_e, o_w)
        b_1, b_2, label_e = brought_together(label_m, label_e, next_m, next_e)
        label_m = b_1 + b_2
        stay_share = share_of_two(b_1, b_2, label_m)
        label_m, label_e = settled(label_m * b_m, label_e + b_e)
        if KEEP:
            p_share = p_shares + frame * 3 * W
            tl.store(p_share, begin_share)
            tl.store(p_share + W, rest_share)
            tl.store(p_share + 2 * W, stay_share)
    p_front = p_fronts + (b * 2 + side) * 4 * W + o_w
    tl.store(p_front, blank_m)
    tl.store(p_front + W, blank_e)
    tl.store(p_front + 2 * W, label_m)
    tl.store(p_front + 3 * W, label_e)


@triton.jit
def weights_of(b_m, b_e, p_other, place, m, W: tl.constexpr, possible):
    """The numbers of a side's states times those of the other side's states at `place`."""
    m_place = possible & (place >= 0) & (place <= m)
    other_m = tl.load(p_other + place, mask=m_place, other=0.0)
    other_e = tl.load(p_other + W + place, mask=m_place, other=float("-inf"))
    return b_m * other_m, b_e + other_e


@triton.jit
def sum_of_two(m_1, e_1, m_2, e_2):
    """The sum of two numbers."""
    b_1, b_2, top = brought_together(m_1, e_1, m_2, e_2)
    return settled(b_1 + b_2, top)


@triton.jit
def met(p_fronts, b_follows, o_w, m, b, side, W: tl.constexpr):
    """The weights of all paths through a side's states at the middle: of blanks, of labels."""
    p_own = p_fronts + (b * 2 + side) * 4 * W
    p_blank = p_fronts + (b * 2 + 1 - side) * 4 * W
    p_label = p_blank + 2 * W
    blank_m, blank_e = tl.load(p_own + o_w), tl.load(p_own + W + o_w)
    label_m, label_e = tl.load(p_own + 2 * W + o_w), tl.load(p_own + 3 * W + o_w)
    m_w = o_w <= m
    # From the other side, blank j is m - j and label j is m + 1 - j.
    same, after = m - o_w, m + 1 - o_w
    m_1, e_1 = weights_of(blank_m, blank_e, p_blank, same, m, W, m_w)
    m_2, e_2 = weights_of(blank_m, blank_e, p_label, same, m, W, o_w < m)
    m_blank, e_blank = sum_of_two(m_1, e_1, m_2, e_2)
    m_1, e_1 = weights_of(label_m, label_e, p_label, after, m, W, m_w & (o_w > 0))
    m_2, e_2 = weights_of(label_m, label_e, p_blank, same, m, W, m_w)
    m_1, e_1 = sum_of_two(m_1, e_1, m_2, e_2)
    m_2, e_2 = weights_of(label_m, label_e, p_label, same, m, W, b_follows)
    m_label, e_label = sum_of_two(m_1, e_1, m_2, e_2)
    return m_blank, e_blank, m_label, e_label


@triton.jit
def total_met(b_blank_m, b_blank_e, b_label_m, b_label_e):
    """Z as mantissa and exponent."""
    b_m, b_e = sum_of_two(b_blank_m, b_blank_e, b_label_m, b_label_e)
    return total_of(b_m, b_e)


@triton.jit
def log_z_kernel(p_given, p_fronts, p_log_z, u, W: tl.constexpr):
    """log Z [b] in double precision."""
    b = tl.program_id(0).to(tl.int64)
    m = tl.load(p_given + b * (u + 2) + 1)
    o_w = tl.arange(0, W)
    b_follows = follows(p_given + b * (u + 2) + 2, o_w, m, 0)
    blank_m, blank_e, label_m, label_e = met(p_fronts, b_follows, o_w, m, b, 0, W)
    total, top = total_met(blank_m, blank_e, label_m, label_e)
    tl.store(p_log_z + b, logarithm(total, top))


@triton.jit
def link(
    p_given, p_first, p_next, b, m, u, v,
    BLOCK: tl.constexpr, OTHERS: tl.constexpr, LABELS: tl.constexpr,
):  # fmt: skip
    """Where labels are in the target, from 1: the first place [v], the next one [u]; 0 for none."""
    far = 2**31 - 1
    p_targets, p_first, p_next = p_given + b * (u + 2) + 2, p_first + b * v, p_next + b * u
    for start in range(0, v, LABELS):
        o_v = start + tl.arange(0, LABELS)
        tl.store(p_first + o_v, tl.zeros([LABELS], dtype=tl.int32), mask=o_v < v)
    tl.debug_barrier()
    for start in range(0, m, BLOCK):
        o_j = (start + tl.arange(0, BLOCK)).to(tl.int32)
        m_j = o_j < m
        b_label = tl.load(p_targets + o_j, mask=m_j, other=-1)
        b_before = tl.zeros([BLOCK], dtype=tl.int32)
        b_next = tl.full([BLOCK], far, dtype=tl.int32)
        for other in range(0, m, OTHERS):
            o_k = (other + tl.arange(0, OTHERS)).to(tl.int32)
            b_other = tl.load(p_targets + o_k, mask=o_k < m, other=-2)
            same = b_label[:, None] == b_other[None, :]  # [BLOCK OTHERS]
            before = same & (o_k[None, :] < o_j[:, None])
            b_before += tl.sum(before.to(tl.int32), axis=1)
            b_after = tl.where(same & (o_k[None, :] > o_j[:, None]), (o_k + 1)[None, :], far)
            b_next = tl.minimum(b_next, tl.min(b_after, axis=1))
        tl.store(p_next + o_j, tl.where(b_next == far, 0, b_next), mask=m_j)
        tl.store(p_first + b_label, o_j + 1, mask=m_j & (b_before == 0))


@triton.jit
def link_kernel(
    p_given, p_first, p_next, u, v,
    BLOCK: tl.constexpr, OTHERS: tl.constexpr, LABELS: tl.constexpr,
):  # fmt: skip
    """The places of all labels, [b v] and [b u]."""
    b = tl.program_id(0).to(tl.int64)
    m = tl.load(p_given + b * (u + 2) + 1)
    link(p_given, p_first, p_next, b, m, u, v, BLOCK, OTHERS, LABELS)


@triton.jit
def count(
    p_given, p_shares, p_fronts, p_counts, p_log_z, b, side, n, m, t, u,
    W: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The chances of a side's states at all of its frames; log Z."""
    o_w = tl.arange(0, W)
    b_follows = follows(p_given + b * (u + 2) + 2, o_w, m, side)
    blank_m, blank_e, label_m, label_e = met(p_fronts, b_follows, o_w, m, b, side, W)
    total, top = total_met(blank_m, blank_e, label_m, label_e)
    if side == 0:
        tl.store(p_log_z + b, logarithm(total, top))
    factor = tl.where(total > 0, 1.0 / tl.where(total > 0, total, 1.0), 0.0)
    top = finite(top)
    b_blank = blank_m * power(blank_e - top) * factor
    b_label = label_m * power(label_e - top) * factor
    column = tl.where(side == 0, o_w, m + 1 - o_w)
    m_label = (o_w > 0) & (o_w <= m)
    blank_column = tl.where(side == 0, o_w, m - o_w)
    p_shares += b * t * 3 * W + o_w
    p_counts += b * t * 2 * W
    steps = steps_of(n, side)
    for back in tl.range(0, steps, num_stages=STAGES):
        step = steps - 1 - back
        frame = tl.where(side == 0, step, n - 1 - step)
        p_share = p_shares + frame * 3 * W
        begin_share, rest_share = tl.load(p_share), tl.load(p_share + W)
        stay_share = tl.load(p_share + 2 * W)
        tl.store(p_counts + frame * 2 * W + blank_column, b_blank, mask=o_w <= m)
        tl.store(p_counts + (frame * 2 + 1) * W + column, b_label, mask=m_label)
        stay, begun = both_shares(stay_share)
        b_begun = from_behind(b_label * begun, o_w, W)
        stay_blank, rest = both_shares(rest_share)
        from_blank, from_label = both_shares(begin_share)
        b_label = b_label * stay + b_begun * from_label + b_blank * rest
        b_blank = b_blank * stay_blank + b_begun * from_blank


@triton.jit
def count_kernel(
    p_given, p_shares, p_fronts, p_counts, p_log_z, p_first, p_next, t, u, v,
    W: tl.constexpr, STAGES: tl.constexpr, LABELS: tl.constexpr,
):  # fmt: skip
    """The chances of blanks and labels at all frames [b t 2 W], log Z [b], and `link`."""
    b, side = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n, m = tl.load(p_given + b * (u + 2)), tl.load(p_given + b * (u + 2) + 1)
    if side == 2:
        link(p_given, p_first, p_next, b, m, u, v, 128, 32, LABELS)
    else:
        count(p_given, p_shares, p_fronts, p_counts, p_log_z, b, side, n, m, t, u, W, STAGES)


@triton.jit
def gradient_kernel(
    p_counts, p_given, p_weights, p_first, p_next, p_out, t, u, v, w, blank, stride_weight,
    ROWS: tl.constexpr, W: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """weights[b] times the sums of the counts [b t 2 w] of each label, in the target's order."""
    b = tl.program_id(1).to(tl.int64)
    n, m = tl.load(p_given + b * (u + 2)), tl.load(p_given + b * (u + 2) + 1)
    weight = tl.load(p_weights + b * stride_weight)
    for row in range(ROWS):
        frame = tl.program_id(0) * ROWS + row
        if frame < t:
            p_count = p_counts + (b * t + frame) * 2 * w
            real = frame < n
            b_blanks = tl.zeros([W], dtype=p_counts.dtype.element_ty)
            for start in range(0, m + 1, W):
                o_w = start + tl.arange(0, W)
                b_blanks += tl.load(p_count + o_w, mask=real & (o_w <= m), other=0.0)
            of_blank = tl.sum(b_blanks, axis=0)
            for start in range(0, v, V):
                o_v = start + tl.arange(0, V)
                b_place = tl.load(p_first + b * v + o_v, mask=real & (o_v < v), other=0)
                b_sum = tl.where(o_v == blank, of_blank, 0.0)
                while tl.max(b_place, axis=0) > 0:
                    m_v = b_place > 0
                    b_sum += tl.load(p_count + w + b_place, mask=m_v, other=0.0)
                    b_place = tl.load(p_next + b * u + b_place - 1, mask=m_v, other=0)
                tl.store(p_out + (b * t + frame) * v + o_v, weight * b_sum, mask=o_v < v)


def width(u: int) -> int:
    """Lanes of a program."""
    return max(32, int(triton.next_power_of_2(u + 1)))


def options(u: int) -> dict[str, int]:
    """Lanes, steps whose loads are on their way, and warps (measured)."""
    size = width(u)
    return {"W": size, "STAGES": 6, "num_warps": min(16, max(1, size // 32))}


class Chances(NamedTuple):
    """What the gradient is made of."""

    counts: Tensor  # [b t 2 w], the chances of blanks from 0 on, of labels from 1 on
    first: Tensor  # [b v], where labels are first in the target, from 1; 0 for none
    following: Tensor  # [b u], where the label of a place is next


def forward(
    scores: Float[Tensor, "b t v"], given: Int[Tensor, "b _"], blank: int, keep: bool
) -> tuple[Float[Tensor, " b"], Chances | None]:
    """log Z in double precision, and with `keep` the chances of all states."""
    b, t, v = scores.shape
    u = given.shape[1] - 2
    mantissas, exponents = scores.new_empty((2, b, t, u + 1)).unbind(0)
    gather_kernel[(triton.cdiv(t, 4), b)](
        scores, given, mantissas, exponents, t, u, blank, *scores.stride(),
        ROWS=4, COLUMNS=min(256, width(u)), num_warps=4 if u > 128 else 2,
    )  # fmt: skip
    how = options(u)
    shares = scores.new_empty((b, t, 3, how["W"]) if keep else 0)
    fronts = scores.new_empty((b, 2, 4, how["W"]))
    sweep_kernel[(b, 2)](mantissas, exponents, given, shares, fronts, t, u, KEEP=keep, **how)
    log_z = scores.new_empty(b, dtype=torch.float64)
    if not keep:
        log_z_kernel[(b,)](given, fronts, log_z, u, W=how["W"])
        return log_z, None
    found = Chances(scores.new_empty((b, t, 2, how["W"])), *places(b, u, v, scores.device))
    count_kernel[(b, 3)](
        given, shares, fronts, found.counts, log_z, *found[1:], t, u, v,
        LABELS=label_block(v), **how,
    )  # fmt: skip
    return log_z, found


def places(b: int, u: int, v: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Room for the places of labels."""
    both = torch.empty(b * (v + u), dtype=torch.int32, device=device)
    return both[: b * v].view(b, v), both[b * v :].view(b, u)


def linked(counts: Float[Tensor, "b t 2 w"], given: Int[Tensor, "b _"], v: int) -> Chances:
    """The same of counts that were made otherwise."""
    b, u = len(given), given.shape[1] - 2
    found = Chances(counts, *places(b, u, v, counts.device))
    link_kernel[(b,)](given, *found[1:], u, v, BLOCK=128, OTHERS=32, LABELS=label_block(v))
    return found


def label_block(v: int) -> int:
    """Labels at a time."""
    return min(1024, int(triton.next_power_of_2(v)))


def by_label(
    found: Chances, given: Int[Tensor, "b _"], weights: Float[Tensor, " b"], v: int, blank: int
) -> Float[Tensor, "b t v"]:
    """weights[b] times the counts of the states of each label; always in the same order."""
    b, t, _, w = found.counts.shape
    out = found.counts.new_empty((b, t, v))
    gradient_kernel[(triton.cdiv(t, 4), b)](
        found.counts, given, weights, *found[1:], out, t, given.shape[1] - 2, v, w, blank,
        weights.stride(0), ROWS=4, W=min(1024, triton.next_power_of_2(w)), V=label_block(v),
        num_warps=1,
    )  # fmt: skip
    return out
