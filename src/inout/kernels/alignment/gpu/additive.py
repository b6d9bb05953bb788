"""An additive joiner's sums over symbols, and their gradients, on a GPU.

As in `products.py`: cuBLAS multiplies, in the precision of the dtype, and Triton does the rest in
few launches. Values of equal labels are added up row by row, in the order of the target.

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.alignment.blocks import Planes
from inout.kernels.limits import JOINER_GPU_SYMBOLS, JOINER_GPU_TILE, JOINER_TINY


@triton.jit
def finite(x):
    """x, or 0 where it is -inf, so that it can be subtracted."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def factors_kernel(p_x, p_out, p_tops, rows, v, R: tl.constexpr, V: tl.constexpr):
    """Exponentials [rows v] relative to the largest of each row, which is kept: [rows]."""
    minus_inf = float("-inf")
    o_row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    m_row = o_row < rows
    p_rows, p_outs = p_x + o_row * v, p_out + o_row * v
    b_tops = tl.full([R, V], minus_inf, dtype=p_x.dtype.element_ty)
    for first in range(0, v, V):
        o_v = first + tl.arange(0, V)
        m_block = m_row[:, None] & (o_v < v)[None, :]
        b_x = tl.load(p_rows[:, None] + o_v[None, :], mask=m_block, other=minus_inf)
        b_tops = tl.maximum(b_tops, b_x)
    b_top = finite(tl.max(b_tops, axis=1))
    tl.store(p_tops + o_row, b_top, mask=m_row)
    for first in range(0, v, V):
        o_v = first + tl.arange(0, V)
        m_block = m_row[:, None] & (o_v < v)[None, :]
        b_x = tl.load(p_rows[:, None] + o_v[None, :], mask=m_block, other=minus_inf)
        tl.store(p_outs[:, None] + o_v[None, :], tl.exp(b_x - b_top[:, None]), mask=m_block)


@triton.jit
def planes_kernel(
    p_encoder, p_predictor, p_labels, p_tops, p_lows, p_sums, p_blank, p_own, t, w, v, blank,
    TINY: tl.constexpr, T: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Log-probabilities [b t w] of blanks and labels; sums [b t w] below TINY become inf."""
    b = tl.program_id(2).to(tl.int64)
    o_t = tl.program_id(0) * T + tl.arange(0, T)
    o_w = tl.program_id(1) * W + tl.arange(0, W)
    m_t, m_w = o_t < t, o_w < w
    m_cell = m_t[:, None] & m_w[None, :]
    o_cell = (b * t + o_t)[:, None] * w + o_w[None, :]
    p_frame = p_encoder + (b * t + o_t) * v  # [T]
    p_symbol = p_predictor + (b * w + o_w) * v  # [W]
    b_top = tl.load(p_tops + b * t + o_t, mask=m_t, other=0.0)
    b_low = tl.load(p_lows + b * w + o_w, mask=m_w, other=0.0)
    b_sums = tl.load(p_sums + o_cell, mask=m_cell, other=1.0)
    b_sums = tl.where(b_sums < TINY, float("inf"), b_sums)
    tl.store(p_sums + o_cell, b_sums, mask=m_cell)
    b_logs = tl.log(b_sums)
    b_frame = tl.load(p_frame + blank, mask=m_t, other=0.0) - b_top
    b_symbol = tl.load(p_symbol + blank, mask=m_w, other=0.0) - b_low
    tl.store(p_blank + o_cell, b_frame[:, None] + b_symbol[None, :] - b_logs, mask=m_cell)
    b_label = tl.load(p_labels + b * w + o_w, mask=m_w, other=0)
    b_symbol = tl.load(p_symbol + b_label, mask=m_w, other=0.0) - b_low
    b_at = tl.load(p_frame[:, None] + b_label[None, :], mask=m_cell, other=0.0) - b_top[:, None]
    tl.store(p_own + o_cell, b_at + b_symbol[None, :] - b_logs, mask=m_cell)


@triton.jit
def finish_kernel(
    p_factors, p_of_blank, p_labels, p_of_label, p_out, rows, v, blank,
    LABELLED: tl.constexpr, R: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Gradient [rows v] in place of a product: minus it times factors, and what rows add to some.

    Each adds to its blank, and if LABELLED to its label.
    """
    o_row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    o_v = tl.program_id(1) * V + tl.arange(0, V)
    m_row = o_row < rows
    m_block = m_row[:, None] & (o_v < v)[None, :]
    o_block = o_row[:, None] * v + o_v[None, :]
    b_blank = tl.load(p_of_blank + o_row, mask=m_row, other=0.0)
    b_out = tl.where(o_v[None, :] == blank, b_blank[:, None], 0.0)
    if LABELLED:
        b_label = tl.load(p_labels + o_row, mask=m_row, other=-1)
        b_of_label = tl.load(p_of_label + o_row, mask=m_row, other=0.0)
        b_out += tl.where(o_v[None, :] == b_label[:, None], b_of_label[:, None], 0.0)
    b_factor = tl.load(p_factors + o_block, mask=m_block, other=0.0)
    b_out -= b_factor * tl.load(p_out + o_block, mask=m_block, other=0.0)
    tl.store(p_out + o_block, b_out, mask=m_block)


@triton.jit
def labels_kernel(p_labels, p_of_own, p_out, t, w, v, R: tl.constexpr):
    """Adds values [b t w] to the places of their labels in rows [b t v], one row in each lane."""
    b = tl.program_id(1).to(tl.int64)
    o_t = tl.program_id(0) * R + tl.arange(0, R)
    m_t = o_t < t
    p_row = p_out + (b * t + o_t) * v
    p_value = p_of_own + (b * t + o_t) * w
    for place in range(w):
        label = tl.load(p_labels + b * w + place)
        b_value = tl.load(p_value + place, mask=m_t, other=0.0)
        b_total = tl.load(p_row + label, mask=m_t, other=0.0)
        tl.store(p_row + label, b_total + b_value, mask=m_t)


def planes(
    encoder: Float[Tensor, "b t v"],
    predictor: Float[Tensor, "b w v"],
    labels: Int[Tensor, "b w"],
    blank: int,
) -> tuple[Planes, Float[Tensor, "b t w"], tuple[Tensor, ...]]:
    """Log-probabilities of the blank and of the labels, sums, and the factors of these."""
    (b, t, v), w = encoder.shape, predictor.shape[1]
    given = [x.contiguous() for x in (encoder, predictor)]
    with torch.cuda.device_of(encoder):
        factors, tops = zip(*map(_factors, given), strict=True)
        sums = factors[0] @ factors[1].mT
        blanks, own = torch.empty_like(sums), torch.empty_like(sums)
        if sums.numel():
            planes_kernel[triton.cdiv(t, 8), triton.cdiv(w, 128), b](
                *given, labels.contiguous(), *tops, sums, blanks, own, t, w, v, blank,
                TINY=JOINER_TINY.of(sums.dtype), T=8, W=128,
            )  # fmt: skip
    return (blanks, own), sums, factors


def _factors(x: Tensor) -> tuple[Tensor, Tensor]:
    """Exponentials relative to the largest of each row, and these."""
    v, out, tops = x.shape[-1], torch.empty_like(x), x.new_empty(x.shape[:-1])
    if tops.numel():
        wide = min(triton.next_power_of_2(v), JOINER_GPU_SYMBOLS)
        tall = max(1, JOINER_GPU_TILE // wide)
        grid = (triton.cdiv(tops.numel(), tall),)
        factors_kernel[grid](x, out, tops, tops.numel(), v, R=tall, V=wide, num_warps=2)
    return out, tops


def gradients(
    encoder: Float[Tensor, "b t v"],
    predictor: Float[Tensor, "b w v"],
    labels: Int[Tensor, "b w"],
    sums: Float[Tensor, "b t w"],
    factors: tuple[Tensor, ...],
    of_planes: Planes,
    blank: int,
) -> tuple[Float[Tensor, "b t v"], Float[Tensor, "b w v"]]:
    """Those of encoder and predictor, given those of the planes."""
    of_blank, of_own = (x.contiguous() for x in of_planes)
    ratio, labels = (of_blank + of_own) / sums, labels.contiguous()
    of_encoder, of_predictor = ratio @ factors[1], ratio.mT @ factors[0]
    if sums.numel():
        (b, t, v), w = encoder.shape, labels.shape[1]
        with torch.cuda.device_of(encoder):
            _finish(of_encoder, factors[0], of_blank.sum(-1), labels, None, blank)
            _finish(of_predictor, factors[1], of_blank.sum(-2), labels, of_own.sum(-2), blank)
            labels_kernel[triton.cdiv(t, 32), b](
                labels, of_own, of_encoder, t, w, v, R=32, num_warps=1, num_stages=1
            )
    return of_encoder, of_predictor


def _finish(
    out: Tensor,
    factors: Tensor,
    of_blank: Tensor,
    labels: Tensor,
    of_label: Tensor | None,
    blank: int,
) -> None:
    """The gradient in place of a product."""
    rows, v = of_blank.numel(), out.shape[-1]
    wide = min(triton.next_power_of_2(v), JOINER_GPU_SYMBOLS)
    tall = max(1, JOINER_GPU_TILE // wide)
    given = (factors, of_blank, labels, of_blank if of_label is None else of_label, out)
    finish_kernel[triton.cdiv(rows, tall), triton.cdiv(v, wide)](
        *given, rows, v, blank, LABELLED=of_label is not None, R=tall, V=wide, num_warps=2
    )
