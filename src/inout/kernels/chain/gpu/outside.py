"""Gradients of linear chains on a GPU, from the messages of `inside.py`; method as there."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from inout.kernels.chain.gpu.inside import (
    HUGE,
    MINUS_INF,
    TINY,
    finite,
    largest_term,
    load_step,
    log_sum,
    options,
    reciprocal,
    strides,
)
from inout.kernels.shapes import Emissions, Lengths, PerElement, Transitions


@triton.jit
def put_pairs(b_pairs, b_total, p_pair, t, s, m_block, STATIONARY: tl.constexpr):
    """Writes the gradients [S S] of the pairs at t, or adds them to a total; returns that."""
    if STATIONARY:
        b_total += b_pairs
    else:
        tl.store(p_pair + (t - 1) * s * s, b_pairs, mask=m_block)
    return b_total


@triton.jit
def rescaled(b_message, norm, good, shift):
    """(A message with 1 as its largest entry, its norm in that unit, still good, the new shift)."""
    top = tl.max(b_message, axis=0)
    b_message *= reciprocal(top)
    mass = norm * reciprocal(top)
    # NaN is no good either.
    good = tl.where((norm >= TINY) & (mass >= TINY) & (top < HUGE), good, 0)
    return b_message, mass, good, shift + finite(tl.log(top))


@triton.jit
def first_half_in_real(
    p_row, p_block, p_alpha, b_beta, p_node, p_pair, weight, middle, s, stride_position,
    m_s, m_block, S: tl.constexpr, STAGES: tl.constexpr, STATIONARY: tl.constexpr,
):  # fmt: skip
    """As `first_half_in_log`; whether the range was too wide for that."""
    b_total = tl.zeros([S, S], dtype=p_pair.dtype.element_ty)
    b_beta = tl.exp(b_beta)
    b_alpha = tl.exp(tl.load(p_alpha + middle * s, mask=m_s, other=MINUS_INF))
    mass = tl.sum(b_alpha * b_beta, axis=0)
    good = tl.where(mass >= TINY, 1, 0)
    shift = largest_term(p_row, p_block, middle, s, stride_position, m_s, m_block, middle > 0)
    for back in tl.range(0, middle, num_stages=STAGES):
        t = middle - back
        b_block, b_emission = load_step(p_row, p_block, t, s, stride_position, m_s, m_block)
        tl.store(p_node + t * s, b_alpha * b_beta * (weight * reciprocal(mass)), mask=m_s)
        b_alpha = tl.exp(tl.load(p_alpha + (t - 1) * s, mask=m_s, other=MINUS_INF))
        b_terms = tl.exp(b_block + (b_emission - shift)[None, :]) * b_beta[None, :]  # [S S]
        b_beta = tl.sum(b_terms, axis=1)
        norm = tl.sum(b_alpha * b_beta, axis=0)
        b_pairs = b_terms * (b_alpha * (weight * reciprocal(norm)))[:, None]
        b_total = put_pairs(b_pairs, b_total, p_pair, t, s, m_block, STATIONARY)
        b_beta, mass, good, shift = rescaled(b_beta, norm, good, shift)
    tl.store(p_node, b_alpha * b_beta * (weight * reciprocal(mass)), mask=m_s)
    if STATIONARY:
        tl.store(p_pair, b_total, mask=m_block)
    return good == 0


@triton.jit
def first_half_in_log(
    p_row, p_block, p_alpha, p_scale, b_beta, p_node, p_pair, weight, middle, s, stride_position,
    m_s, m_block, S: tl.constexpr, STAGES: tl.constexpr, STATIONARY: tl.constexpr,
):  # fmt: skip
    """Gradients of the nodes up to the middle and of the pairs before it; betas go on."""
    b_total = tl.zeros([S, S], dtype=p_pair.dtype.element_ty)
    for back in tl.range(0, middle, num_stages=STAGES):
        t = middle - back
        b_block, b_emission = load_step(p_row, p_block, t, s, stride_position, m_s, m_block)
        b_alpha = tl.load(p_alpha + t * s, mask=m_s, other=MINUS_INF)
        b_before = tl.load(p_alpha + (t - 1) * s, mask=m_s, other=MINUS_INF)
        # Where nothing is possible the terms below are all exp(-inf).
        b_both = b_alpha + b_beta
        mass = finite(log_sum(b_both))
        tl.store(p_node + t * s, weight * tl.exp(b_both - mass), mask=m_s)
        b_sums = b_block + (b_emission + b_beta)[None, :]  # [S S]
        b_top = finite(tl.max(b_sums, axis=1))
        b_shares = tl.exp(b_sums - b_top[:, None])
        b_beta = tl.log(tl.sum(b_shares, axis=1)) + b_top
        mass += finite(tl.load(p_scale + t))
        # Not where a row has no share in anything: the factor alone may be beyond all range.
        b_factor = tl.where(b_beta == MINUS_INF, 0.0, tl.exp(b_before + b_top - mass))
        b_pairs = b_shares * (weight * b_factor)[:, None]
        b_total = put_pairs(b_pairs, b_total, p_pair, t, s, m_block, STATIONARY)
        b_beta -= finite(tl.max(b_beta, axis=0))
    b_both = tl.load(p_alpha, mask=m_s, other=MINUS_INF) + b_beta
    tl.store(p_node, weight * tl.exp(b_both - finite(log_sum(b_both))), mask=m_s)
    if STATIONARY:
        tl.store(p_pair, b_total, mask=m_block)


@triton.jit
def second_half_in_real(
    p_row, p_block, p_beta, b_alpha, p_node, p_pair, weight, length, middle, s, stride_position,
    m_s, m_block, S: tl.constexpr, STAGES: tl.constexpr, STATIONARY: tl.constexpr,
):  # fmt: skip
    """As `second_half_in_log`; whether the range was too wide for that."""
    b_total = tl.zeros([S, S], dtype=p_pair.dtype.element_ty)
    b_alpha = tl.exp(b_alpha)
    good = 1
    some = length > middle + 1
    shift = largest_term(p_row, p_block, middle + 1, s, stride_position, m_s, m_block, some)
    for t in tl.range(middle + 1, length, num_stages=STAGES):
        b_block, b_emission = load_step(p_row, p_block, t, s, stride_position, m_s, m_block)
        b_beta = tl.exp(tl.load(p_beta + t * s, mask=m_s, other=MINUS_INF))
        b_terms = tl.exp(b_block + (b_emission - shift)[None, :]) * b_alpha[:, None]  # [S S]
        b_alpha = tl.sum(b_terms, axis=0)
        b_both = b_alpha * b_beta
        norm = tl.sum(b_both, axis=0)
        factor = weight * reciprocal(norm)
        tl.store(p_node + t * s, b_both * factor, mask=m_s)
        b_pairs = b_terms * (b_beta * factor)[None, :]
        b_total = put_pairs(b_pairs, b_total, p_pair, t, s, m_block, STATIONARY)
        b_alpha, _, good, shift = rescaled(b_alpha, norm, good, shift)
    if STATIONARY:
        tl.store(p_pair, b_total, mask=m_block)
    return good == 0


@triton.jit
def second_half_in_log(
    p_row, p_block, p_beta, b_alpha, p_node, p_pair, weight, length, middle, s, stride_position,
    m_s, m_block, S: tl.constexpr, STAGES: tl.constexpr, STATIONARY: tl.constexpr,
):  # fmt: skip
    """Gradients of the nodes and pairs after the middle; alphas go on."""
    b_total = tl.zeros([S, S], dtype=p_pair.dtype.element_ty)
    for t in tl.range(middle + 1, length, num_stages=STAGES):
        b_block, b_emission = load_step(p_row, p_block, t, s, stride_position, m_s, m_block)
        b_beta = tl.load(p_beta + t * s, mask=m_s, other=MINUS_INF)
        b_sums = b_alpha[:, None] + b_block  # [S S]
        b_top = finite(tl.max(b_sums, axis=0))
        b_shares = tl.exp(b_sums - b_top[None, :])
        b_alpha = tl.log(tl.sum(b_shares, axis=0)) + b_top + b_emission
        b_both = b_alpha + b_beta
        mass = finite(log_sum(b_both))
        tl.store(p_node + t * s, weight * tl.exp(b_both - mass), mask=m_s)
        b_factor = tl.exp(b_top + b_emission + b_beta - mass)
        b_factor = tl.where(b_alpha == MINUS_INF, 0.0, b_factor)
        b_pairs = b_shares * (weight * b_factor)[None, :]
        b_total = put_pairs(b_pairs, b_total, p_pair, t, s, m_block, STATIONARY)
        b_alpha -= finite(tl.max(b_alpha, axis=0))
    if STATIONARY:
        tl.store(p_pair, b_total, mask=m_block)


@triton.jit
def gradient_kernel(
    p_emissions, p_transitions, p_lengths, p_messages, p_scales, p_middles, p_weights,
    p_nodes, p_pairs, n, s, stride_element, stride_position,
    S: tl.constexpr, STAGES: tl.constexpr, STATIONARY: tl.constexpr,
):  # fmt: skip
    """Gradients of weights . log Z: nodes [b n s], pairs [b n-1 s s] (or [b 2 s s], to be added).

    Betas go on from the middle to the start, alphas to the end.
    """
    b = tl.program_id(0).to(tl.int64)
    o_s = tl.arange(0, S)
    m_s = o_s < s
    m_block = m_s[:, None] & m_s[None, :]
    length = tl.load(p_lengths + b)
    middle = length // 2
    weight = tl.load(p_weights + b)
    p_row = p_emissions + b * n * s + o_s
    p_node = p_nodes + b * n * s + o_s
    o_block = o_s[:, None] * s + o_s[None, :]
    p_block = p_transitions + b * stride_element + o_block
    p_pair = p_pairs + b * s * s * (2 if STATIONARY else n - 1) + o_block
    if tl.program_id(1) == 0:
        p_alpha = p_messages + b * n * s + o_s
        b_beta = tl.load(p_middles + (b * 2 + 1) * s + o_s, mask=m_s, other=MINUS_INF)
        m_own = o_s < tl.minimum(length, 1) * s  # nothing in an empty chain
        bad = first_half_in_real(
            p_row, p_block, p_alpha, b_beta, p_node, p_pair, weight, middle, s, stride_position,
            m_own, m_block, S, STAGES, STATIONARY,
        )  # fmt: skip
        if bad:
            first_half_in_log(
                p_row, p_block, p_alpha, p_scales + b * n, b_beta, p_node, p_pair, weight, middle,
                s, stride_position, m_own, m_block, S, STAGES, STATIONARY,
            )  # fmt: skip
    else:
        p_beta = p_messages + b * n * s + o_s
        p_other = p_pair + (s * s if STATIONARY else 0)
        b_alpha = tl.load(p_middles + b * 2 * s + o_s, mask=m_s, other=MINUS_INF)
        bad = second_half_in_real(
            p_row, p_block, p_beta, b_alpha, p_node, p_other, weight, length, middle, s,
            stride_position, m_s, m_block, S, STAGES, STATIONARY,
        )  # fmt: skip
        if bad:
            second_half_in_log(
                p_row, p_block, p_beta, b_alpha, p_node, p_other, weight, length, middle, s,
                stride_position, m_s, m_block, S, STAGES, STATIONARY,
            )  # fmt: skip
        for t in range(length, n):
            tl.store(p_node + t * s, tl.zeros([S], dtype=p_nodes.dtype.element_ty), mask=m_s)
        if not STATIONARY:
            b_zero = tl.zeros([S, S], dtype=p_pairs.dtype.element_ty)
            for t in range(tl.maximum(length, 1), n):
                tl.store(p_pair + (t - 1) * s * s, b_zero, mask=m_block)


def gradients(
    emissions: Emissions,
    transitions: Transitions,
    lengths: Lengths,
    messages: Emissions,
    scales: Float[Tensor, "b n"],
    middles: Float[Tensor, "b 2 s"],
    weights: PerElement,
) -> tuple[Emissions, Float[Tensor, "b nt s s"]]:
    """Gradients of weights . log Z for nodes and, element by element, pairs."""
    b, n, s = emissions.shape
    stationary = transitions.shape[1] == 1
    nodes = torch.empty_like(emissions)
    pairs = emissions.new_empty((b, 2 if stationary else n - 1, s, s))
    gradient_kernel[(b, 2)](
        emissions, transitions, lengths, messages, scales, middles, weights, nodes, pairs,
        n, s, *strides(transitions), STATIONARY=stationary, **options(emissions),
    )  # fmt: skip
    return nodes, pairs.sum(1, keepdim=True) if stationary else pairs
