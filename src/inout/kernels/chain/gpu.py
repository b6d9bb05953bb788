"""Linear chains on a GPU: one Triton program for each batch element, positions in sequence.

Everything is in log space with the maximum of each row or column taken out, so no range of
potentials needs a fallback. Alphas and betas are kept with their largest entry at 0, the scale
beside them: their digits do not drown in a large log Z. A program holds one block of transitions
[s s] in registers while the next ones are on their way, for up to 128 labels.

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

SHARED_MEMORY = 160 * 1024


@triton.jit
def finite(x):
    """x, or 0 where it is -inf, so that it can be subtracted."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def forward_kernel(
    p_emissions, p_transitions, p_lengths, p_alphas, p_scales, p_log_z,
    n, s, stride_element, stride_position, S: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Log alphas [b n s] with maximum 0, their log scales [b n], and log Z [b]."""
    b = tl.program_id(0).to(tl.int64)
    o_s = tl.arange(0, S)
    m_s = o_s < s
    m_block = m_s[:, None] & m_s[None, :]
    minus_inf = float("-inf")
    length = tl.load(p_lengths + b)
    p_row = p_emissions + b * n * s + o_s
    p_alpha = p_alphas + b * n * s + o_s
    p_scale = p_scales + b * n
    p_block = p_transitions + b * stride_element + o_s[:, None] * s + o_s[None, :]
    log_z = tl.zeros([], dtype=tl.float64)
    b_alpha = tl.load(p_row, mask=m_s, other=minus_inf)  # [S]
    for t in tl.range(1, length, num_stages=STAGES):
        scale = finite(tl.max(b_alpha, axis=0))
        b_alpha -= scale
        log_z += scale.to(tl.float64)
        tl.store(p_alpha + (t - 1) * s, b_alpha, mask=m_s)
        tl.store(p_scale + t - 1, scale)
        b_block = tl.load(p_block + (t - 1) * stride_position, mask=m_block, other=minus_inf)
        b_emission = tl.load(p_row + t * s, mask=m_s, other=minus_inf)
        b_sums = b_alpha[:, None] + b_block  # [S S]
        b_top = finite(tl.max(b_sums, axis=0))
        b_alpha = tl.log(tl.sum(tl.exp(b_sums - b_top[None, :]), axis=0)) + b_top + b_emission
    scale = finite(tl.max(b_alpha, axis=0))
    b_alpha -= scale
    tl.store(p_alpha + (length - 1) * s, b_alpha, mask=m_s)
    tl.store(p_scale + length - 1, scale)
    log_sum = tl.log(tl.sum(tl.exp(b_alpha), axis=0))
    tl.store(p_log_z + b, log_z + scale.to(tl.float64) + log_sum.to(tl.float64))


@triton.jit
def backward_kernel(
    p_emissions, p_transitions, p_lengths, p_alphas, p_scales, p_weights, p_nodes, p_pairs,
    n, s, stride_element, stride_position,
    S: tl.constexpr, STAGES: tl.constexpr, STATIONARY: tl.constexpr,
):  # fmt: skip
    """Gradients of weights . log Z: nodes [b n s], pairs [b n-1 s s] (or [b 1 s s])."""
    b = tl.program_id(0).to(tl.int64)
    o_s = tl.arange(0, S)
    m_s = o_s < s
    m_block = m_s[:, None] & m_s[None, :]
    minus_inf = float("-inf")
    length = tl.load(p_lengths + b)
    weight = tl.load(p_weights + b)
    p_row = p_emissions + b * n * s + o_s
    p_alpha = p_alphas + b * n * s + o_s
    p_node = p_nodes + b * n * s + o_s
    o_block = o_s[:, None] * s + o_s[None, :]
    p_block = p_transitions + b * stride_element + o_block
    p_pair = p_pairs + b * s * s * (1 if STATIONARY else n - 1) + o_block
    b_zero = tl.zeros([S, S], dtype=p_pairs.dtype.element_ty)
    b_total = b_zero
    for t in range(length, n):
        tl.store(p_node + t * s, tl.zeros([S], dtype=p_nodes.dtype.element_ty), mask=m_s)
        if not STATIONARY:
            tl.store(p_pair + (t - 1) * s * s, b_zero, mask=m_block)
    b_beta = tl.where(m_s, 0.0, minus_inf).to(p_nodes.dtype.element_ty)  # [S]
    for back in tl.range(1, length, num_stages=STAGES):
        t = length - back
        b_block = tl.load(p_block + (t - 1) * stride_position, mask=m_block, other=minus_inf)
        b_emission = tl.load(p_row + t * s, mask=m_s, other=minus_inf)
        b_alpha = tl.load(p_alpha + t * s, mask=m_s, other=minus_inf)
        b_before = tl.load(p_alpha + (t - 1) * s, mask=m_s, other=minus_inf)
        # log of sum(alpha * beta); where nothing is possible the terms below are all exp(-inf).
        b_both = b_alpha + b_beta
        top = finite(tl.max(b_both, axis=0))
        mass = finite(tl.log(tl.sum(tl.exp(b_both - top), axis=0)) + top)
        tl.store(p_node + t * s, weight * tl.exp(b_both - mass), mask=m_s)
        b_sums = b_block + (b_emission + b_beta)[None, :]  # [S S]
        b_top = finite(tl.max(b_sums, axis=1))
        b_shares = tl.exp(b_sums - b_top[:, None])
        total = mass + tl.load(p_scales + b * n + t)
        b_pairs = b_shares * (weight * tl.exp(b_before + b_top - total))[:, None]
        if STATIONARY:
            b_total += b_pairs
        else:
            tl.store(p_pair + (t - 1) * s * s, b_pairs, mask=m_block)
        b_beta = tl.log(tl.sum(b_shares, axis=1)) + b_top
        b_beta -= finite(tl.max(b_beta, axis=0))
    b_both = tl.load(p_alpha, mask=m_s, other=minus_inf) + b_beta
    top = finite(tl.max(b_both, axis=0))
    mass = finite(tl.log(tl.sum(tl.exp(b_both - top), axis=0)) + top)
    tl.store(p_node, weight * tl.exp(b_both - mass), mask=m_s)
    if STATIONARY:
        tl.store(p_pair, b_total, mask=m_block)


@triton.jit
def viterbi_kernel(
    p_emissions, p_transitions, p_lengths, p_pointers, p_labels,
    n, s, stride_element, stride_position, S: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Best labels [b n], 0 beyond the lengths; `p_pointers` [b n s] is scratch."""
    b = tl.program_id(0).to(tl.int64)
    o_s = tl.arange(0, S)
    m_s = o_s < s
    m_block = m_s[:, None] & m_s[None, :]
    minus_inf = float("-inf")
    length = tl.load(p_lengths + b)
    p_row = p_emissions + b * n * s + o_s
    p_block = p_transitions + b * stride_element + o_s[:, None] * s + o_s[None, :]
    b_best = tl.load(p_row, mask=m_s, other=minus_inf)
    for t in tl.range(1, length, num_stages=STAGES):
        b_block = tl.load(p_block + (t - 1) * stride_position, mask=m_block, other=minus_inf)
        b_sums = b_best[:, None] + b_block
        b_top, b_label = tl.max(b_sums, axis=0, return_indices=True)
        tl.store(p_pointers + (b * n + t) * s + o_s, b_label, mask=m_s)
        b_best = b_top + tl.load(p_row + t * s, mask=m_s, other=minus_inf)
    _, label = tl.max(b_best, axis=0, return_indices=True)
    tl.debug_barrier()  # the pointers below were written by other threads of this program
    for t in range(length, n):
        tl.store(p_labels + b * n + t, 0)
    for back in range(length):
        t = length - 1 - back
        tl.store(p_labels + b * n + t, label.to(tl.int64))
        if t > 0:
            label = tl.load(p_pointers + (b * n + t) * s + label)


@triton.jit
def sample_kernel(
    p_alphas, p_transitions, p_lengths, p_uniform, p_labels,
    batch, n, s, stride_element, stride_position, S: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Labels [m b n] drawn backwards from log alphas with uniform numbers [m b n]."""
    sample = tl.program_id(0).to(tl.int64)
    b = sample % batch
    o_s = tl.arange(0, S)
    m_s = o_s < s
    minus_inf = float("-inf")
    length = tl.load(p_lengths + b)
    for t in range(length, n):
        tl.store(p_labels + sample * n + t, 0)
    label = tl.zeros([], dtype=tl.int64)
    for back in range(length):
        t = length - 1 - back
        b_scores = tl.load(p_alphas + (b * n + t) * s + o_s, mask=m_s, other=minus_inf)
        if back > 0:
            p_column = p_transitions + b * stride_element + t * stride_position
            b_scores += tl.load(p_column + o_s * s + label, mask=m_s, other=minus_inf)
        top = tl.max(b_scores, axis=0)
        b_sums = tl.cumsum(tl.exp(b_scores - tl.where(top == minus_inf, 0.0, top)), axis=0)
        total = tl.max(b_sums, axis=0)
        target = tl.load(p_uniform + sample * n + t) * total
        # Labels of weight zero leave the running sum as it is, and so are never reached first.
        below = tl.sum(((b_sums <= target) & m_s).to(tl.int64), axis=0)
        label = tl.minimum(below, s - 1)
        label = tl.where(top == minus_inf, -1, label)
        tl.store(p_labels + sample * n + t, label)
        label = tl.maximum(label, 0)


def _strides(transitions: Tensor) -> tuple[int, int]:
    """Elements to skip for the next batch element and the next position; 0 where shared."""
    bt, nt, s, _ = transitions.shape
    return (0 if bt == 1 else nt * s * s), (0 if nt == 1 else s * s)


def _options(potentials: Tensor, pairs_written: bool = False) -> dict[str, int]:
    """Block size, how many blocks may be on their way in shared memory, and warps (measured)."""
    size = max(16, triton.next_power_of_2(potentials.shape[-1]))
    stages = SHARED_MEMORY // (size * size * potentials.element_size())
    warps = 4 if size < 64 or (size == 64 and not pairs_written) else 8
    return {"S": size, "STAGES": max(1, min(4, stages)), "num_warps": warps}


def forward(
    emissions: Float[Tensor, "b n s"],
    transitions: Float[Tensor, "bt nt s s"],
    lengths: Int[Tensor, " b"],
) -> tuple[Float[Tensor, " b"], Float[Tensor, "b n s"], Float[Tensor, "b n"]]:
    """(log Z in float64, log alphas, their log scales)."""
    b, n, s = emissions.shape
    alphas, scales = torch.empty_like(emissions), emissions.new_empty((b, n))
    log_z = emissions.new_empty(b, dtype=torch.float64)
    forward_kernel[(b,)](
        emissions, transitions, lengths, alphas, scales, log_z, n, s, *_strides(transitions),
        **_options(emissions),
    )  # fmt: skip
    return log_z, alphas, scales


def gradients(
    emissions: Float[Tensor, "b n s"],
    transitions: Float[Tensor, "bt nt s s"],
    lengths: Int[Tensor, " b"],
    alphas: Float[Tensor, "b n s"],
    scales: Float[Tensor, "b n"],
    weights: Float[Tensor, " b"],
) -> tuple[Float[Tensor, "b n s"], Float[Tensor, "b nt s s"]]:
    """Gradients of weights . log Z for nodes and, element by element, pairs."""
    b, n, s = emissions.shape
    nodes = torch.empty_like(emissions)
    pairs = emissions.new_empty((b, *transitions.shape[1:]))
    backward_kernel[(b,)](
        emissions, transitions, lengths, alphas, scales, weights.contiguous(), nodes, pairs,
        n, s, *_strides(transitions), STATIONARY=transitions.shape[1] == 1,
        **_options(emissions, pairs_written=True),
    )  # fmt: skip
    return nodes, pairs


def best_labels(
    emissions: Float[Tensor, "b n s"],
    transitions: Float[Tensor, "bt nt s s"],
    lengths: Int[Tensor, " b"],
) -> Int[Tensor, "b n"]:
    """The labels with the highest score."""
    b, n, s = emissions.shape
    labels = torch.empty((b, n), dtype=torch.long, device=emissions.device)
    pointers = torch.empty((b, n, s), dtype=torch.int32, device=emissions.device)
    viterbi_kernel[(b,)](
        emissions, transitions, lengths, pointers, labels, n, s, *_strides(transitions),
        **_options(emissions),
    )  # fmt: skip
    return labels


def sample_labels(
    transitions: Float[Tensor, "bt nt s s"],
    lengths: Int[Tensor, " b"],
    alphas: Float[Tensor, "b n s"],
    uniform: Float[Tensor, "m b n"],
) -> Int[Tensor, "m b n"]:
    """Independent labellings; -1 where an element has none."""
    m, b, n = uniform.shape
    labels = torch.empty((m, b, n), dtype=torch.long, device=alphas.device)
    sample_kernel[(m * b,)](
        alphas, transitions, lengths, uniform, labels, b, n, alphas.shape[2],
        *_strides(transitions), **_options(alphas),
    )  # fmt: skip
    return labels
