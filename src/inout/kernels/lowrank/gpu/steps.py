"""Messages of factored chains in Triton, for few rows that meet large factors; see `chain.py`.

To read the factors of thousands of labels takes longer than to multiply a few rows with them, if
each is read once, in tiles, by programs that fill the device. From labels to latent values these
add up parts, which a second kernel adds up in turn, always in the same order.

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks. Products are those of three tf32
numbers, whose errors are those of float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Labels and latent values of a tile, warps and stages that work on it; values that one program of
# the second kernel adds up. As measured on an H200.
LABELS, VALUES, WARPS, STAGES = 128, 64, 4, 3
ADDED = 64


@triton.jit
def scale(b_tops):
    """2^-k that brings numbers into [0.5, 1); 0 for 0 and subnormal numbers."""
    exponent = ((b_tops.to(tl.int32, bitcast=True) >> 23) & 255) - 126
    factor = ((127 - exponent) << 23).to(tl.float32, bitcast=True)
    return tl.where(exponent > -126, factor, 0.0)


@triton.jit(do_not_specialize=["position"])
def to_labels(
    p_factor, p_values, value_stride, p_tops, p_nodes, p_out, p_plain, p_lengths, position,
    label_stride, b, s,
    R: tl.constexpr, B: tl.constexpr, S: tl.constexpr, K: tl.constexpr, T: tl.constexpr,
    PLAIN: tl.constexpr,
):  # fmt: skip
    """out = (values @ factor) * nodes for the labels of this program.

    The factor is [R s]. Values are scaled as `settle` does it, given tops [B T], the largest of
    parts of them. With PLAIN, values @ factor goes there first, or 1 where the element ends at the
    position or before.
    """
    o_b, o_s = tl.arange(0, B), tl.program_id(0) * S + tl.arange(0, S)
    m_b, m_s = o_b < b, o_s < s
    m_rows = m_b[:, None] & m_s[None, :]
    o_rows = o_b[:, None].to(tl.int64) * label_stride + o_s[None, :]
    o_tops = o_b[:, None] * T + tl.arange(0, T)[None, :]
    b_scales = scale(tl.max(tl.load(p_tops + o_tops, mask=m_b[:, None], other=0.0), axis=1))
    b_out = tl.zeros([B, S], tl.float32)
    for first in range(0, R, K):
        o_r = first + tl.arange(0, K)
        m_r = o_r < R
        p_tile = p_factor + o_r[:, None].to(tl.int64) * s + o_s[None, :]
        b_tile = tl.load(p_tile, mask=m_r[:, None] & m_s[None, :], other=0.0)  # [K S]
        p_row = p_values + o_b[:, None].to(tl.int64) * value_stride + o_r[None, :]
        b_values = tl.load(p_row, mask=m_b[:, None] & m_r[None, :], other=0.0)  # [B K]
        b_values *= b_scales[:, None]
        b_out = tl.dot(b_values, b_tile, b_out, input_precision="tf32x3")
    if PLAIN:
        b_lengths = tl.load(p_lengths + o_b, mask=m_b, other=0)
        b_out = tl.where((position + 1 < b_lengths)[:, None], b_out, 1.0)
        tl.store(p_plain + o_rows, b_out, mask=m_rows)
    b_nodes = tl.load(p_nodes + o_rows, mask=m_rows, other=0.0)
    tl.store(p_out + o_rows, b_out * b_nodes, mask=m_rows)


@triton.jit
def to_values(
    p_factor, p_labels, label_stride, p_sums, b, s,
    R: tl.constexpr, B: tl.constexpr, S: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Sums [blocks B R] of labels @ factor.T over the labels of this program."""
    block = tl.program_id(0)
    o_b, o_s = tl.arange(0, B), block * S + tl.arange(0, S)
    m_s = o_s < s
    p_rows = p_labels + o_b[:, None].to(tl.int64) * label_stride + o_s[None, :]
    b_labels = tl.load(p_rows, mask=(o_b < b)[:, None] & m_s[None, :], other=0.0)  # [B S]
    for first in range(0, R, K):
        o_r = first + tl.arange(0, K)
        m_r = o_r < R
        p_tile = p_factor + o_r[:, None].to(tl.int64) * s + o_s[None, :]
        b_tile = tl.load(p_tile, mask=m_r[:, None] & m_s[None, :], other=0.0)  # [K S]
        b_sums = tl.dot(b_labels, tl.trans(b_tile), input_precision="tf32x3")  # [B K]
        p_sum = p_sums + (block * B + o_b[:, None]) * R + o_r[None, :]
        tl.store(p_sum, b_sums, mask=m_r[None, :])


@triton.jit
def add_up(
    p_sums, p_values, value_stride, p_tops,
    BLOCKS: tl.constexpr, R: tl.constexpr, B: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    T: tl.constexpr,
):  # fmt: skip
    """A part of the values of an element, the sums of all programs; and the largest of them."""
    row, part = tl.program_id(0), tl.program_id(1)
    o_n, o_r = tl.arange(0, N), part * K + tl.arange(0, K)
    b_sums = tl.zeros([N, K], tl.float32)
    for first in range(0, BLOCKS, N):
        m_sums = (first + o_n < BLOCKS)[:, None] & (o_r < R)[None, :]
        p_sum = p_sums + ((first + o_n)[:, None] * B + row) * R + o_r[None, :]
        b_sums += tl.load(p_sum, mask=m_sums, other=0.0)
    b_values = tl.sum(b_sums, axis=0)
    tl.store(p_values + row.to(tl.int64) * value_stride + o_r, b_values, mask=o_r < R)
    tl.store(p_tops + row * T + part, tl.max(b_values, axis=0))


class Direction:
    """Launches of the kernels for factors [r s], at places of tables [b n ...]."""

    def __init__(self, nodes: Tensor, rank: int, lengths: Tensor) -> None:
        self.nodes, self.lengths, self.rank = nodes, lengths, rank
        b, _, s = nodes.shape
        self.rows = max(triton.next_power_of_2(b), 16)
        self.blocks = triton.cdiv(s, LABELS)
        self.sums = nodes.new_empty(self.blocks, self.rows, rank)
        self.parts = triton.cdiv(rank, ADDED)
        # Of the values that were added up last, which are those that the next factor meets.
        self.tops = nodes.new_zeros(self.rows, triton.next_power_of_2(self.parts))

    def to_values(self, factor: Tensor, labels: Tensor, values: Tensor) -> None:
        """Fills values [b r], not scaled yet, from labels [b s]."""
        b, s = labels.shape
        to_values[(self.blocks,)](
            factor, labels, labels.stride(0), self.sums, b, s,
            R=self.rank, B=self.rows, S=LABELS, K=VALUES, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
        add_up[(b, self.parts)](
            self.sums, values, values.stride(0), self.tops,
            BLOCKS=self.blocks, R=self.rank, B=self.rows, N=64, K=ADDED, T=self.tops.shape[1],
        )  # fmt: skip

    def to_labels(
        self, factor: Tensor, values: Tensor, position: int, out: Tensor, plain: Tensor | None
    ) -> None:
        """Fills a position of out [b n s], and of plain if it is given, from values [b r]."""
        b, _, s = self.nodes.shape
        to_labels[(self.blocks,)](
            factor, values, values.stride(0), self.tops, self.nodes[:, position],
            out[:, position], (out if plain is None else plain)[:, position], self.lengths,
            position, self.nodes.stride(0), b, s,
            R=self.rank, B=self.rows, S=LABELS, K=VALUES, T=self.tops.shape[1],
            PLAIN=plain is not None, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip


def forwards(
    nodes: Tensor, source: Tensor, target: Tensor, lengths: Tensor, alphas: Tensor, values: Tensor
) -> None:
    """Fills alphas [b n s] and messages [b n r], not scaled yet; the source is [r s], transposed.

    The alphas of the first position must be there.
    """
    steps = Direction(nodes, values.shape[-1], lengths)
    for t in range(1, nodes.shape[1]):
        steps.to_values(source, alphas[:, t - 1], values[:, t])
        steps.to_labels(target, values[:, t], t, alphas, None)


def backwards(
    nodes: Tensor,
    source: Tensor,
    target: Tensor,
    lengths: Tensor,
    ahead: Tensor,
    values: Tensor,
    betas: Tensor,
) -> None:
    """As `forwards`, from the last position on: betas times nodes, messages, and betas."""
    steps = Direction(nodes, values.shape[-1], lengths)
    for t in range(nodes.shape[1] - 1, 0, -1):
        steps.to_values(target, ahead[:, t], values[:, t])
        steps.to_labels(source, values[:, t], t - 1, ahead, betas)


def both_ways(
    nodes: Tensor,
    source: Tensor,
    target: Tensor,
    lengths: Tensor,
    forward: tuple[Tensor, Tensor],
    backward: tuple[Tensor, Tensor, Tensor],
) -> None:
    """`forwards` and `backwards` on two streams: where one adds up or ends a step, the other reads.

    They only share what they read.
    """
    given = nodes, source, target, lengths
    if not nodes.is_cuda:  # but run by Triton's interpreter
        backwards(*given, *backward)
        forwards(*given, *forward)
        return
    current = torch.cuda.current_stream(nodes.device)
    aside = torch.cuda.Stream(nodes.device)
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        backwards(*given, *backward)
    forwards(*given, *forward)
    current.wait_stream(aside)
