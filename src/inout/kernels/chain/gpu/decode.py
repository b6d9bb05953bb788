"""Best labels and samples of linear chains on a GPU, one Triton program for each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.chain.gpu.inside import MINUS_INF, options, strides, sweep
from inout.kernels.shapes import Emissions, Labels, Lengths, Transitions


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
    length = tl.load(p_lengths + b)
    m_first = o_s < tl.minimum(length, 1) * s  # the labels of the first position, if there is one
    p_row = p_emissions + b * n * s + o_s
    p_block = p_transitions + b * stride_element + o_s[:, None] * s + o_s[None, :]
    b_best = tl.load(p_row, mask=m_first, other=MINUS_INF)
    for t in tl.range(1, length, num_stages=STAGES):
        b_block = tl.load(p_block + (t - 1) * stride_position, mask=m_block, other=MINUS_INF)
        b_sums = b_best[:, None] + b_block
        b_top, b_label = tl.max(b_sums, axis=0, return_indices=True)
        tl.store(p_pointers + (b * n + t) * s + o_s, b_label, mask=m_s)
        b_best = b_top + tl.load(p_row + t * s, mask=m_s, other=MINUS_INF)
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
    length = tl.load(p_lengths + b)
    for t in range(length, n):
        tl.store(p_labels + sample * n + t, 0)
    label = tl.zeros([], dtype=tl.int64)
    for back in range(length):
        t = length - 1 - back
        b_scores = tl.load(p_alphas + (b * n + t) * s + o_s, mask=m_s, other=MINUS_INF)
        if back > 0:
            p_column = p_transitions + b * stride_element + t * stride_position
            b_scores += tl.load(p_column + o_s * s + label, mask=m_s, other=MINUS_INF)
        top = tl.max(b_scores, axis=0)
        b_sums = tl.cumsum(tl.exp(b_scores - tl.where(top == MINUS_INF, 0.0, top)), axis=0)
        total = tl.max(b_sums, axis=0)
        target = tl.load(p_uniform + sample * n + t) * total
        # Labels of weight zero leave the running sum as it is, and so are never reached first.
        below = tl.sum(((b_sums <= target) & m_s).to(tl.int64), axis=0)
        label = tl.minimum(below, s - 1)
        label = tl.where(top == MINUS_INF, -1, label)
        tl.store(p_labels + sample * n + t, label)
        label = tl.maximum(label, 0)


def best_labels(emissions: Emissions, transitions: Transitions, lengths: Lengths) -> Labels:
    """The labels with the highest score."""
    b, n, s = emissions.shape
    labels = torch.empty((b, n), dtype=torch.long, device=emissions.device)
    pointers = torch.empty((b, n, s), dtype=torch.int32, device=emissions.device)
    viterbi_kernel[(b,)](
        emissions, transitions, lengths, pointers, labels, n, s, *strides(transitions),
        **options(emissions),
    )  # fmt: skip
    return labels


def sample_labels(
    emissions: Emissions,
    transitions: Transitions,
    lengths: Lengths,
    uniform: Float[Tensor, "m b n"],
) -> Int[Tensor, "m b n"]:
    """Independent labellings; -1 where an element has none."""
    m, b, n = uniform.shape
    alphas = sweep(emissions, transitions, lengths, meet=False, keep=True)[0]
    labels = torch.empty((m, b, n), dtype=torch.long, device=alphas.device)
    sample_kernel[(m * b,)](
        alphas, transitions, lengths, uniform, labels, b, n, alphas.shape[2],
        *strides(transitions), **options(alphas),
    )  # fmt: skip
    return labels
