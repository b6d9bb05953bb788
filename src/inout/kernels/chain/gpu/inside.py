"""Linear chains on a GPU: two Triton programs for each batch element, which meet in the middle.

One goes forwards from the start and one backwards from the end, half the positions each: log Z is
there in half the steps. For the gradient each goes on through the other's half, where the
messages it needs are already written. Every block of transitions is read twice and its gradient
written once; a program holds one block [s s] in registers while the next ones are on their way,
for up to 128 labels. Best paths and samples are in `decode.py`.

A program first works in real arithmetic: messages with 1 as their largest entry, and terms
exp(transition + emission - shift), where the shift follows the scale of the step before, so that
nothing but the sums stands between one position and the next. It keeps an eye on the range of what
it meets. If that was too wide it does its half again in log space, with the maxima taken out of
each row or column, which takes about twice as long and any range. Either way the messages are
written as logarithms with 0 as the largest, and their scales beside them.

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from inout.kernels.limits import (
    CHAIN_EXACT,
    CHAIN_GPU_HUGE,
    CHAIN_GPU_LEAST,
    CHAIN_GPU_LOWEST,
    CHAIN_GPU_SHARED_MEMORY,
)
from inout.kernels.shapes import Emissions, Lengths, Transitions

LOWEST, LEAST = tl.constexpr(CHAIN_GPU_LOWEST), tl.constexpr(CHAIN_GPU_LEAST)
TINY, HUGE = tl.constexpr(CHAIN_EXACT.float32), tl.constexpr(CHAIN_GPU_HUGE)
MINUS_INF = tl.constexpr(float("-inf"))


@triton.jit
def finite(x):
    """x, or 0 where it is -inf, so that it can be subtracted."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def log_sum(b_values):
    """log of the sum of exp of a vector, -inf for none."""
    top = finite(tl.max(b_values, axis=0))
    return tl.log(tl.sum(tl.exp(b_values - top), axis=0)) + top


@triton.jit
def only_if(condition, m_values):
    """The mask, or nothing unless the condition holds."""
    return tl.where(condition, m_values, False)


@triton.jit
def load_step(p_row, p_block, t, s, stride_position, m_s, m_block):
    """Transitions [S S] from t - 1 to t, and emissions [S] at t."""
    b_block = tl.load(p_block + (t - 1) * stride_position, mask=m_block, other=MINUS_INF)
    return b_block, tl.load(p_row + t * s, mask=m_s, other=MINUS_INF)


@triton.jit
def largest_term(p_row, p_block, t, s, stride_position, m_s, m_block, there):
    """The largest of transition to t + emission at t, if they are there; 0 for none."""
    m_row, m_both = only_if(there, m_s), only_if(there, m_block)
    b_block, b_emission = load_step(p_row, p_block, t, s, stride_position, m_row, m_both)
    return finite(tl.max(tl.max(b_block + b_emission[None, :], axis=1), axis=0))


@triton.jit
def reciprocal(x):
    """1 / x, or 0 where x is 0."""
    return tl.where(x > 0, 1.0 / tl.where(x > 0, x, 1.0), 0.0)


@triton.jit
def possible(b_message):
    """A message, or 1 where it is 0; and 0 where it is NaN, which is no good."""
    return tl.where(b_message > 0, b_message, tl.where(b_message == 0, 1.0, 0.0))


@triton.jit
def too_small(b_lowest, b_least):
    """Whether some terms or entries of messages were."""
    lowest = tl.min(tl.min(b_lowest, axis=1), axis=0)
    return (lowest < LOWEST) | (tl.min(b_least, axis=0) < LEAST)


@triton.jit
def settled(b_message, b_least, good, shift):
    """(A message with 1 as its largest entry, the least entries met, still good, its log scale)."""
    top = tl.max(b_message, axis=0)
    b_message *= reciprocal(top)
    b_least = tl.minimum(b_least, possible(b_message))
    return b_message, b_least, tl.where(top < HUGE, good, 0), shift + tl.log(top)


@triton.jit
def alphas_in_real(
    p_row, p_block, p_alpha, p_scale, p_middle, p_total, middle, s, stride_position,
    m_first, m_s, m_block, S: tl.constexpr, STAGES: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Alphas up to the middle as `alphas_in_log` has them; whether the range was too wide."""
    b_first = tl.load(p_row, mask=m_first, other=MINUS_INF)  # [S]
    scale = finite(tl.max(b_first, axis=0))
    b_alpha = tl.exp(b_first - scale)
    b_least = tl.where(b_first > MINUS_INF, b_alpha, 1.0)
    good = 1
    total = scale.to(tl.float64)
    # The first shift is exact, the others are guessed from the step before.
    shift = largest_term(p_row, p_block, 1, s, stride_position, m_s, m_block, middle > 0)
    b_lowest = tl.zeros([S, S], dtype=b_alpha.dtype)
    for t in tl.range(1, middle + 1, num_stages=STAGES):
        if KEEP:
            tl.store(p_alpha + (t - 1) * s, tl.log(b_alpha), mask=m_s)
            tl.store(p_scale + t - 1, scale)
        b_block, b_emission = load_step(p_row, p_block, t, s, stride_position, m_s, m_block)
        b_terms = b_block + (b_emission - shift)[None, :]  # [S S]
        b_lowest = tl.minimum(b_lowest, finite(b_terms))
        b_alpha = tl.sum(b_alpha[:, None] * tl.exp(b_terms), axis=0)
        b_alpha, b_least, good, scale = settled(b_alpha, b_least, good, shift)
        total += scale.to(tl.float64)
        shift = finite(scale)
    if KEEP:
        tl.store(p_alpha + middle * s, tl.log(b_alpha), mask=m_first)
        tl.store(p_scale + tl.maximum(middle, 0), scale)
    tl.store(p_middle, tl.log(b_alpha), mask=m_s)
    tl.store(p_total, total)
    return too_small(b_lowest, b_least) | (good == 0)


@triton.jit
def alphas_in_log(
    p_row, p_block, p_alpha, p_scale, p_middle, p_total, middle, s, stride_position,
    m_first, m_s, m_block, STAGES: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Log alphas up to the middle, with maximum 0, and their log scales; the sum of the latter."""
    total = tl.zeros([], dtype=tl.float64)
    b_alpha = tl.load(p_row, mask=m_first, other=MINUS_INF)  # [S]
    for t in tl.range(1, middle + 1, num_stages=STAGES):
        scale = finite(tl.max(b_alpha, axis=0))
        b_alpha -= scale
        total += scale.to(tl.float64)
        if KEEP:
            tl.store(p_alpha + (t - 1) * s, b_alpha, mask=m_s)
            tl.store(p_scale + t - 1, scale)
        b_block, b_emission = load_step(p_row, p_block, t, s, stride_position, m_s, m_block)
        b_sums = b_alpha[:, None] + b_block  # [S S]
        b_top = finite(tl.max(b_sums, axis=0))
        b_alpha = tl.log(tl.sum(tl.exp(b_sums - b_top[None, :]), axis=0)) + b_top + b_emission
    scale = finite(tl.max(b_alpha, axis=0))
    b_alpha -= scale
    if KEEP:
        tl.store(p_alpha + middle * s, b_alpha, mask=m_first)
        tl.store(p_scale + tl.maximum(middle, 0), scale)
    tl.store(p_middle, b_alpha, mask=m_s)
    tl.store(p_total, total + scale.to(tl.float64))


@triton.jit
def betas_in_real(
    p_row, p_block, p_beta, p_middle, p_total, length, middle, s, stride_position,
    m_s, m_block, S: tl.constexpr, STAGES: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Betas down to the middle as `betas_in_log` has them; whether the range was too wide."""
    total = tl.zeros([], dtype=tl.float64)
    # The first shift is exact, the others are guessed from the step before.
    some = length - 1 > middle
    shift = largest_term(p_row, p_block, length - 1, s, stride_position, m_s, m_block, some)
    b_beta = tl.where(m_s, 1.0, 0.0).to(shift.dtype)  # [S]
    b_least = b_beta * 0 + 1
    good = 1
    b_lowest = tl.zeros([S, S], dtype=shift.dtype)
    for back in tl.range(1, length - middle, num_stages=STAGES):
        t = length - back
        if KEEP:
            tl.store(p_beta + t * s, tl.log(b_beta), mask=m_s)
        b_block, b_emission = load_step(p_row, p_block, t, s, stride_position, m_s, m_block)
        b_terms = b_block + (b_emission - shift)[None, :]  # [S S]
        b_lowest = tl.minimum(b_lowest, finite(b_terms))
        b_beta = tl.sum(tl.exp(b_terms) * b_beta[None, :], axis=1)
        b_beta, b_least, good, scale = settled(b_beta, b_least, good, shift)
        total += scale.to(tl.float64)
        shift = finite(scale)
    tl.store(p_middle, tl.log(b_beta), mask=m_s)
    tl.store(p_total, total)
    return too_small(b_lowest, b_least) | (good == 0)


@triton.jit
def betas_in_log(
    p_row, p_block, p_beta, p_middle, p_total, length, middle, s, stride_position,
    m_s, m_block, STAGES: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Log betas down to the middle, with maximum 0; the sum of the log scales taken out."""
    total = tl.zeros([], dtype=tl.float64)
    b_beta = tl.where(m_s, 0.0, MINUS_INF).to(p_row.dtype.element_ty)  # [S]
    for back in tl.range(1, length - middle, num_stages=STAGES):
        t = length - back
        if KEEP:
            tl.store(p_beta + t * s, b_beta, mask=m_s)
        b_block, b_emission = load_step(p_row, p_block, t, s, stride_position, m_s, m_block)
        b_sums = b_block + (b_emission + b_beta)[None, :]  # [S S]
        b_top = finite(tl.max(b_sums, axis=1))
        b_beta = tl.log(tl.sum(tl.exp(b_sums - b_top[:, None]), axis=1)) + b_top
        scale = finite(tl.max(b_beta, axis=0))
        b_beta -= scale
        total += scale.to(tl.float64)
    tl.store(p_middle, b_beta, mask=m_s)
    tl.store(p_total, total)


@triton.jit
def sweep_kernel(
    p_emissions, p_transitions, p_lengths, p_messages, p_scales, p_middles, p_totals,
    n, s, stride_element, stride_position,
    S: tl.constexpr, STAGES: tl.constexpr, MEET: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Log alphas up to the middle and log betas after it, [b n s], with maximum 0.

    And the log scales [b n] of the alphas; both messages at the middle [b 2 s] with what was
    taken out of them, [b 2]. Without MEET the middle is the end.
    """
    b = tl.program_id(0).to(tl.int64)
    o_s = tl.arange(0, S)
    m_s = o_s < s
    m_block = m_s[:, None] & m_s[None, :]
    length = tl.load(p_lengths + b)
    middle = length // 2 if MEET else length - 1
    p_row = p_emissions + b * n * s + o_s
    p_block = p_transitions + b * stride_element + o_s[:, None] * s + o_s[None, :]
    p_middle = p_middles + b * 2 * s + o_s
    p_total = p_totals + b * 2
    if tl.program_id(1) == 0:
        p_alpha = p_messages + b * n * s + o_s
        p_scale = p_scales + b * n
        m_first = o_s < tl.minimum(length, 1) * s  # the first position, if there is one
        bad = alphas_in_real(
            p_row, p_block, p_alpha, p_scale, p_middle, p_total, middle, s, stride_position,
            m_first, m_s, m_block, S, STAGES, KEEP,
        )  # fmt: skip
        if bad:
            alphas_in_log(
                p_row, p_block, p_alpha, p_scale, p_middle, p_total, middle, s, stride_position,
                m_first, m_s, m_block, STAGES, KEEP,
            )  # fmt: skip
    else:
        p_beta = p_messages + b * n * s + o_s
        bad = betas_in_real(
            p_row, p_block, p_beta, p_middle + s, p_total + 1, length, middle, s, stride_position,
            m_s, m_block, S, STAGES, KEEP,
        )  # fmt: skip
        if bad:
            betas_in_log(
                p_row, p_block, p_beta, p_middle + s, p_total + 1, length, middle, s,
                stride_position, m_s, m_block, STAGES, KEEP,
            )  # fmt: skip


@triton.jit
def meet_kernel(p_lengths, p_middles, p_totals, p_log_z, s, S: tl.constexpr):
    """log Z [b] from both messages at the middle; 0 for the empty chain."""
    b = tl.program_id(0).to(tl.int64)
    o_s = tl.arange(0, S)
    m_s = o_s < s
    b_alpha = tl.load(p_middles + b * 2 * s + o_s, mask=m_s, other=float("-inf"))
    b_beta = tl.load(p_middles + (b * 2 + 1) * s + o_s, mask=m_s, other=float("-inf"))
    log_z = log_sum(b_alpha + b_beta).to(tl.float64)
    log_z += tl.load(p_totals + b * 2) + tl.load(p_totals + b * 2 + 1)
    tl.store(p_log_z + b, tl.where(tl.load(p_lengths + b) == 0, 0.0, log_z))


def strides(transitions: Tensor) -> tuple[int, int]:
    """Elements to skip for the next batch element and the next position; 0 where shared."""
    bt, nt, s, _ = transitions.shape
    return (0 if bt == 1 else nt * s * s), (0 if nt == 1 else s * s)


def options(potentials: Tensor) -> dict[str, int]:
    """Block size, how many blocks may be on their way in shared memory, and warps (measured)."""
    size = max(16, triton.next_power_of_2(potentials.shape[-1]))
    stages = CHAIN_GPU_SHARED_MEMORY // (size * size * potentials.element_size())
    return {"S": size, "STAGES": max(1, min(4, stages)), "num_warps": 4 if size < 128 else 8}


def sweep(
    emissions: Tensor, transitions: Tensor, lengths: Tensor, *, meet: bool, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Messages, scales of the alphas, messages at the middle, and what was taken out of these."""
    b, n, s = emissions.shape
    messages = torch.empty_like(emissions) if keep else emissions.new_empty(0)
    scales = emissions.new_empty((b, n) if keep else 0)
    middles = emissions.new_empty((b, 2, s))
    totals = emissions.new_empty((b, 2), dtype=torch.float64)
    sweep_kernel[(b, 2 if meet else 1)](
        emissions, transitions, lengths, messages, scales, middles, totals,
        n, s, *strides(transitions), MEET=meet, KEEP=keep, **options(emissions),
    )  # fmt: skip
    return messages, scales, middles, totals


def meet_in_the_middle(
    emissions: Emissions, transitions: Transitions, lengths: Lengths, keep: bool
) -> tuple[Tensor, ...]:
    """(log Z [b] in float64, log messages [b n s], log scales [b n], middles [b 2 s]).

    Messages are alphas up to the middle of each element and betas after it; without `keep` there
    are none but those at the middle.
    """
    *messages, totals = sweep(emissions, transitions, lengths, meet=True, keep=keep)
    b, _, s = emissions.shape
    log_z = emissions.new_empty(b, dtype=torch.float64)
    size = triton.next_power_of_2(s)
    meet_kernel[(b,)](lengths, messages[-1], totals, log_z, s, S=size, num_warps=1)
    return log_z, *messages
