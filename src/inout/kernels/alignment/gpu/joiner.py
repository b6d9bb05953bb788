"""Log-softmax of the blank and of a label in rows of logits, and its gradient, by Triton.

Each is one pass over the logits: a program reads some rows, a block of symbols at a time. Rows
without a label (-1) are never read; their log-probabilities and gradients are 0, and so are the
gradients of rows whose outcome has none. Each row has the largest of its logits and the log of the
sum relative to it, apart: added up they would lose digits where logits are large.

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.alignment.blocks import Planes, Scales
from inout.kernels.limits import JOINER_GPU_SYMBOLS, JOINER_GPU_TILE


@triton.jit
def finite(x):
    """x, or 0 where it is -inf, so that it can be subtracted."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def labels_kernel(p_targets, p_frames, p_symbols, p_labels, cells, t, w, B: tl.constexpr):
    """The next label of each cell [b t w], -1 in the padding."""
    o_cell = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    m_cell = o_cell < cells
    o_b, o_t, o_w = o_cell // (t * w), (o_cell // w) % t, o_cell % w
    b_frames = tl.load(p_frames + o_b, mask=m_cell, other=0)
    b_symbols = tl.load(p_symbols + o_b, mask=m_cell, other=0)
    m_real = (o_t < b_frames) & (o_w < b_symbols)
    b_label = tl.load(p_targets + o_b * w + o_w, mask=m_real, other=-1)
    tl.store(p_labels + o_cell, b_label, mask=m_cell)


@triton.jit
def planes_kernel(
    p_logits, p_labels, p_blank, p_own, p_tops, p_logs, rows, v, blank,
    R: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Log-probabilities of blank and own label [rows], the largest logits and logs of sums."""
    minus_inf = float("-inf")
    o_row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    m_all = o_row < rows
    b_label = tl.load(p_labels + o_row, mask=m_all, other=-1)
    m_row = b_label >= 0
    p_rows = p_logits + o_row * v
    dtype = p_blank.dtype.element_ty
    b_top = tl.full([R], minus_inf, dtype=dtype)
    b_sum = tl.zeros([R], dtype=dtype)
    for first in range(0, v, V):
        o_v = first + tl.arange(0, V)
        m_block = m_row[:, None] & (o_v < v)[None, :]
        b_x = tl.load(p_rows[:, None] + o_v[None, :], mask=m_block, other=minus_inf).to(dtype)
        b_new = tl.maximum(b_top, tl.max(b_x, axis=1))
        b_base = finite(b_new)
        b_sum = b_sum * tl.exp(b_top - b_base) + tl.sum(tl.exp(b_x - b_base[:, None]), axis=1)
        b_top = b_new
    b_top = finite(b_top)
    b_log = tl.log(tl.where(b_sum == 0, 1.0, b_sum))  # nothing possible: all is -inf already
    b_at_blank = tl.load(p_rows + blank, mask=m_row, other=0.0).to(dtype)
    b_at_label = tl.load(p_rows + b_label, mask=m_row, other=0.0).to(dtype)
    tl.store(p_blank + o_row, b_at_blank - b_top - b_log, mask=m_all)
    tl.store(p_own + o_row, b_at_label - b_top - b_log, mask=m_all)
    tl.store(p_tops + o_row, b_top, mask=m_all)
    tl.store(p_logs + o_row, b_log, mask=m_all)


@triton.jit
def gradient_kernel(
    p_logits, p_labels, p_tops, p_logs, p_of_blank, p_of_own, p_out, rows, v, blank,
    R: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Gradient [rows v], given that of both planes [rows]."""
    minus_inf = float("-inf")
    o_row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    m_all = o_row < rows
    b_label = tl.load(p_labels + o_row, mask=m_all, other=-1)
    m_row = b_label >= 0
    b_of_blank = tl.load(p_of_blank + o_row, mask=m_row, other=0.0)
    b_of_own = tl.load(p_of_own + o_row, mask=m_row, other=0.0)
    b_both = b_of_blank + b_of_own
    m_used = m_row & (b_both != 0)
    b_top = tl.load(p_tops + o_row, mask=m_row, other=0.0)
    b_log = tl.load(p_logs + o_row, mask=m_row, other=0.0)
    p_rows, p_outs = p_logits + o_row * v, p_out + o_row * v
    for first in range(0, v, V):
        o_v = first + tl.arange(0, V)
        m_v = (o_v < v)[None, :]
        m_block = m_used[:, None] & m_v
        b_x = tl.load(p_rows[:, None] + o_v[None, :], mask=m_block, other=minus_inf)
        b_share = tl.exp(b_x.to(b_top.dtype) - b_top[:, None] - b_log[:, None])
        b_out = tl.where(o_v[None, :] == blank, b_of_blank[:, None], 0.0)
        b_out += tl.where(o_v[None, :] == b_label[:, None], b_of_own[:, None], 0.0)
        b_out -= b_both[:, None] * b_share
        b_out = b_out.to(p_out.dtype.element_ty)
        tl.store(p_outs[:, None] + o_v[None, :], b_out, mask=m_all[:, None] & m_v)


def labels_of(
    targets: Int[Tensor, "b w"], frames: Int[Tensor, " b"], symbols: Int[Tensor, " b"], t: int
) -> Int[Tensor, "b t w"]:
    """The next label of each cell, -1 in the padding."""
    b, w = targets.shape
    found = torch.empty(b, t, w, dtype=torch.long, device=targets.device)
    if found.numel():
        given = [x.contiguous() for x in (targets, frames, symbols)]
        grid = (triton.cdiv(found.numel(), 1024),)
        with torch.cuda.device_of(targets):
            labels_kernel[grid](*given, found, found.numel(), t, w, B=1024)
    return found


def planes(
    logits: Float[Tensor, "b t w v"], labels: Int[Tensor, "b t w"], blank: int
) -> tuple[Planes, Scales]:
    """Log-probabilities of the blank and of the labels, 0 where these are -1; scales of rows."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    found = [torch.empty(labels.shape, dtype=dtype, device=logits.device) for _ in range(4)]
    if labels.numel():
        grid, options = _tiles(logits)
        v = logits.shape[-1]
        with torch.cuda.device_of(logits):
            planes_kernel[grid](logits, labels, *found, labels.numel(), v, blank, **options)
    return (found[0], found[1]), (found[2], found[3])


def gradient(
    logits: Float[Tensor, "b t w v"],
    labels: Int[Tensor, "b t w"],
    scales: Scales,
    of_planes: Planes,
    blank: int,
) -> Float[Tensor, "b t w v"]:
    """The gradient of logits, given that of the planes."""
    out = torch.empty_like(logits)
    if labels.numel():
        grid, options = _tiles(logits)
        given = (logits, labels, *scales, *(x.contiguous() for x in of_planes), out)
        with torch.cuda.device_of(logits):
            gradient_kernel[grid](*given, labels.numel(), logits.shape[-1], blank, **options)
    return out


def _tiles(logits: Tensor) -> tuple[tuple[int], dict[str, int]]:
    """The grid, and how many rows and symbols a program has at a time."""
    v = logits.shape[-1]
    wide = min(triton.next_power_of_2(v), JOINER_GPU_SYMBOLS)
    tall = max(1, JOINER_GPU_TILE // wide)
    return (triton.cdiv(logits.numel() // v, tall),), {"R": tall, "V": wide, "num_warps": 2}
