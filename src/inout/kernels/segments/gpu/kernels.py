"""Semi-Markov chains on a GPU: two sweeps in sequence over the positions, marginals in parallel.

Everything is in log space with maxima taken out, so no range of potentials needs a fallback.
alpha[t, j] and beta[t, j] are the log-weights of what comes before and after a segment with label
j that ends at t; alpha[0] is 0 for label 0 only, as on the CPU. They are float64, each vector
relative to a log scale that is a whole number: sums and differences of scales are exact, so that
digits are lost neither in a large log Z nor between alphas that are w positions apart. Only the
exponentials of the potentials' differences are taken in the potentials' dtype.

Both sweeps are one recursion. A vector is kept in a slot (alpha[t] in slot n - t, beta[t] in slot
t), and each new slot is the log-sum over the up to w slots above it, which lie in a row: with
r = (width - 1) s + label, a step is one product of a vector [w s] with a matrix [w s, s].

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.limits import SEGMENTS_GPU_TILE
from inout.kernels.shapes import Labels, Lengths, PerElement, Segments


@triton.jit
def finite(x):
    """x, or 0 where it is -inf, so that it can be subtracted."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def sweep(
    p_blocks, p_values, p_logs, b_value, first, steps, w, s,
    stride_step, stride_width, stride_row, stride_label,
    AXIS: tl.constexpr, R: tl.constexpr, S: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Fills the slots first, first - 1, ..., first - steps; returns the last one and its scale.

    `b_value` is the first slot. AXIS is the one summed over, such that memory runs along the last.
    """
    kind = p_blocks.dtype.element_ty
    minus_inf = float("-inf")
    o_s = tl.arange(0, S)
    m_s = o_s < s
    log = tl.zeros([], dtype=tl.float64)
    tl.store(p_values + first * s + o_s, b_value, mask=m_s)
    tl.store(p_logs + first, log)
    for step in range(1, steps + 1):
        tl.debug_barrier()  # the slots read below were written by other threads of this program
        slot = first - step
        rows = tl.minimum(w, step) * s
        b_top = tl.full([S], minus_inf, dtype=tl.float64)
        b_total = tl.zeros([S], dtype=kind)
        for row in tl.range(0, rows, R, num_stages=STAGES):
            o_r = row + tl.arange(0, R)
            m_r = o_r < rows
            o_block = tl.expand_dims(o_r // s * stride_width + o_r % s * stride_row, 1 - AXIS)
            b_block = tl.load(
                p_blocks + o_block + tl.expand_dims(o_s * stride_label, AXIS),
                mask=tl.expand_dims(m_r, 1 - AXIS) & tl.expand_dims(m_s, AXIS), other=minus_inf,
            )  # fmt: skip
            b_before = tl.load(p_values + (slot + 1) * s + o_r, mask=m_r, other=minus_inf)  # [R]
            b_before += tl.load(p_logs + slot + 1 + o_r // s, mask=m_r, other=0.0) - log
            b_before = tl.expand_dims(b_before, 1 - AXIS)
            # What follows the impossible may be padding, with NaN in it. Other NaN reaches log Z.
            b_sums = tl.where(b_before == minus_inf, minus_inf, b_before + b_block.to(tl.float64))
            b_new = tl.maximum(b_top, tl.max(b_sums, axis=AXIS))
            b_shift = finite(b_new)
            b_shares = tl.exp((b_sums - tl.expand_dims(b_shift, AXIS)).to(kind))
            b_total = b_total * tl.exp((b_top - b_shift).to(kind)) + tl.sum(b_shares, axis=AXIS)
            b_top = b_new
        b_value = b_top + tl.log(b_total).to(tl.float64)
        scale = tl.floor(finite(tl.max(b_value, axis=0)))
        b_value -= scale
        log += scale
        tl.store(p_values + slot * s + o_s, b_value, mask=m_s)
        tl.store(p_logs + slot, log)
        p_blocks += stride_step
    return b_value, log


@triton.jit
def sweep_kernel(
    p_potentials, p_lengths, p_values, p_logs, p_log_z, p_rest, direction, batch, n, w, s,
    R: tl.constexpr, S: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Values [2 b n+1 s] and logs [2 b n+1]: alphas, then betas; log Z [b] and its last part.

    Program (b, k) does direction k + `direction` of element b: 0 forward, 1 backward.
    """
    b = tl.program_id(0).to(tl.int64)
    way = tl.program_id(1) + direction
    o_s = tl.arange(0, S)
    length = tl.load(p_lengths + b).to(tl.int32)
    # Potentials of one position. No `.to`: sizes of 1 come as plain numbers.
    step = tl.full([], w * s * s, dtype=tl.int64)
    p_block = p_potentials + b * n * step
    p_value = p_values + (way * batch + b) * (n + 1) * s
    p_log = p_logs + (way * batch + b) * (n + 1)
    minus_inf = float("-inf")
    if way == 0:
        b_start = tl.where(o_s == 0, 0.0, minus_inf).to(tl.float64)
        b_end, log = sweep(
            p_block, p_value, p_log, b_start, n, length, w, s, step, s * s, s, 1, 0, R, S, STAGES
        )
        rest = tl.log(tl.sum(tl.exp(b_end), axis=0))  # the largest is in [0, 1), or -inf
        tl.store(p_rest + b, rest)
        tl.store(p_log_z + b, log + rest)
    else:
        b_start = tl.where(o_s < s, 0.0, minus_inf).to(tl.float64)
        # beta[0] is nobody's: what leads there may be padding.
        sweep(
            p_block + (length - 1) * step, p_value, p_log, b_start, length, length - 1, w, s,
            -step, step + s * s, 1, s, 1, R, S, STAGES,
        )  # fmt: skip


@triton.jit
def marginals_kernel(
    p_potentials, p_lengths, p_values, p_logs, p_rest, p_weights, p_out, batch, n, w, s,
    R: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Gradients [b n w s s] of weights . log Z; program (place, k): R rows of one position."""
    place = tl.program_id(0).to(tl.int64)
    b, t = place // n, (place % n).to(tl.int32) + 1
    minus_inf = float("-inf")
    o_s = tl.arange(0, S)
    o_r = tl.program_id(1) * R + tl.arange(0, R)
    m_s = o_s < s
    length, rest = tl.load(p_lengths + b).to(tl.int32), tl.load(p_rest + b)
    # Nothing is read, and zeros are written, beyond the length and where nothing is possible.
    widest = tl.where(rest > minus_inf, tl.where(t <= length, tl.minimum(w, t), 0), 0)
    m_r = o_r < widest * s
    alphas, betas = b * (n + 1), (batch + b) * (n + 1) + t  # the first alpha slot, and beta[t]
    before = alphas + n - t + 1
    b_before = tl.load(p_values + before * s + o_r, mask=m_r, other=minus_inf)
    # Whole numbers first: their sum is exact.
    log = tl.load(p_logs + betas, mask=widest > 0, other=0.0)
    log -= tl.load(p_logs + alphas + n - length)
    b_before += (tl.load(p_logs + before + o_r // s, mask=m_r, other=0.0) + log) - rest
    b_after = tl.load(
        p_values + betas * s + o_s, mask=o_s < tl.minimum(widest, 1) * s, other=minus_inf
    )
    o_block = (place * w * s + o_r)[:, None] * s + o_s[None, :]
    m_block = (b_before > minus_inf)[:, None] & m_s[None, :]
    b_block = tl.load(p_potentials + o_block, mask=m_block, other=minus_inf)  # [R S]
    b_logs = (b_before[:, None] + b_after[None, :]) + b_block.to(tl.float64)
    b_out = tl.load(p_weights + b) * tl.exp(b_logs.to(b_block.dtype))
    m_out = (o_r < w * s)[:, None] & m_s[None, :]
    tl.store(p_out + o_block, tl.where(m_block, b_out, 0.0), mask=m_out)


@triton.jit
def viterbi_kernel(
    p_potentials, p_lengths, p_best, p_pointers, p_labels, n, w, s,
    R: tl.constexpr, S: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Labels [b n] of the best segments, written where these end.

    `p_best` (float64) and `p_pointers` (rows) [b n+1 s] are scratch, in the slots of the alphas.
    """
    b = tl.program_id(0).to(tl.int64)
    minus_inf = float("-inf")
    o_s = tl.arange(0, S)
    m_s = o_s < s
    length = tl.load(p_lengths + b).to(tl.int32)
    p_block = p_potentials + b * n * w * s * s
    p_best += b * (n + 1) * s
    p_pointers += b * (n + 1) * s
    b_best = tl.where(o_s == 0, 0.0, minus_inf).to(tl.float64)
    tl.store(p_best + n * s + o_s, b_best, mask=m_s)
    for t in range(1, length + 1):
        tl.debug_barrier()  # as in `sweep`
        slot = n - t
        rows = tl.minimum(w, t) * s
        b_best = tl.full([S], minus_inf, dtype=tl.float64)
        b_pointer = tl.zeros([S], dtype=tl.int32)  # the impossible: width 1, label 0 before
        for row in tl.range(0, rows, R, num_stages=STAGES):
            o_r = row + tl.arange(0, R)
            m_r = o_r < rows
            b_block = tl.load(
                p_block + o_r[:, None] * s + o_s[None, :],
                mask=m_r[:, None] & m_s[None, :], other=minus_inf,
            )  # fmt: skip
            b_before = tl.load(p_best + (slot + 1) * s + o_r, mask=m_r, other=minus_inf)[:, None]
            b_sums = tl.where(b_before > minus_inf, b_before + b_block.to(tl.float64), minus_inf)
            b_top, b_row = tl.max(b_sums, axis=0, return_indices=True)  # ties: the first row
            b_pointer = tl.where(b_top > b_best, row + b_row, b_pointer)
            b_best = tl.maximum(b_best, b_top)
        tl.store(p_best + slot * s + o_s, b_best, mask=m_s)
        tl.store(p_pointers + slot * s + o_s, b_pointer, mask=m_s)
        p_block += w * s * s
    _, last = tl.max(b_best, axis=0, return_indices=True)
    tl.debug_barrier()
    t, label = length, last
    while t > 0:
        tl.store(p_labels + b * n + t - 1, label.to(tl.int64))
        row = tl.load(p_pointers + (n - t) * s + label)
        t -= row // s + 1
        label = row % s


@triton.jit
def sample_kernel(
    p_potentials, p_lengths, p_values, p_logs, p_rest, p_uniform, p_labels, batch, n, w, s,
    R: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Labels [m b n] drawn backwards from the alphas with uniform numbers [m b n+1].

    The log-sum of what is drawn from is known (an alpha, or log Z), so the probabilities come in
    one pass, and the row is found where their running sum exceeds the uniform number.
    """
    sample = tl.program_id(0).to(tl.int64)
    b = sample % batch
    minus_inf = float("-inf")
    o_s = tl.arange(0, S)
    rest = tl.load(p_rest + b)
    t = tl.where(rest > minus_inf, tl.load(p_lengths + b), 0).to(tl.int32)
    p_potentials += b * n * w * s * s
    p_values += b * (n + 1) * s
    p_logs += b * (n + 1)
    p_uniform += sample * (n + 1)
    p_labels += sample * n
    b_end = tl.load(p_values + (n - t) * s + o_s, mask=o_s < s, other=minus_inf)
    b_ends = tl.exp(b_end - finite(rest))
    reached = tl.sum((tl.cumsum(b_ends, axis=0) <= tl.load(p_uniform + n)).to(tl.int32), axis=0)
    # Rounding may leave the sum short of 1: then the last that is possible.
    last = tl.max(tl.where(b_ends > 0, o_s, 0), axis=0)
    label = tl.minimum(reached, last)
    while t > 0:
        tl.store(p_labels + t - 1, label.to(tl.int64))
        slot = n - t
        uniform = tl.load(p_uniform + t - 1)
        log = tl.load(p_logs + slot)
        total = tl.load(p_values + slot * s + label)
        p_column = p_potentials + (t - 1).to(tl.int64) * w * s * s + label
        passed = tl.zeros([], dtype=tl.float64)
        reached = tl.zeros([], dtype=tl.int32)
        last = tl.zeros([], dtype=tl.int32)
        for row in range(0, tl.minimum(w, t) * s, R):
            o_r = row + tl.arange(0, R)
            m_r = o_r < tl.minimum(w, t) * s
            b_before = tl.load(p_values + (slot + 1) * s + o_r, mask=m_r, other=minus_inf)
            m_r = b_before > minus_inf
            b_before += tl.load(p_logs + slot + 1 + o_r // s, mask=m_r, other=0.0) - log
            b_block = tl.load(p_column + o_r * s, mask=m_r, other=minus_inf)
            b_shares = tl.exp(b_before + b_block.to(tl.float64) - total)
            b_sums = passed + tl.cumsum(b_shares, axis=0)
            # Rows of weight zero leave the running sum as it is, and so are never reached first.
            reached += tl.sum((b_sums <= uniform).to(tl.int32), axis=0)
            last = tl.maximum(last, tl.max(tl.where(b_shares > 0, o_r, 0), axis=0))
            passed += tl.sum(b_shares, axis=0)
        place = tl.minimum(reached, last)
        t -= place // s + 1
        label = place % s


@dataclass(frozen=True)
class Sweeps:
    """What the sweeps leave: alphas in values[0] and logs[0], betas, if wanted, in [1]."""

    values: Float[Tensor, "2 b slots s"]
    logs: Float[Tensor, "2 b slots"]
    log_z: PerElement
    rest: PerElement  # log Z less the scale of the last alpha


def _options(potentials: Tensor, stages: int | None = None) -> dict[str, int]:
    """Tile [R S] of rows and labels, warps and, for loops over tiles, loads under way."""
    w, s = potentials.shape[2:4]
    size = max(4, triton.next_power_of_2(s))
    rows = max(4, min(triton.next_power_of_2(w * s), SEGMENTS_GPU_TILE // size))
    warps = max(1, min(8, size * rows // 256))
    options = {"R": rows, "S": size, "num_warps": warps}
    return options if stages is None else {**options, "STAGES": stages}


def forward(potentials: Segments, lengths: Lengths, both: bool) -> Sweeps:
    """log Z and the alphas, and in the same launch the betas if `both`."""
    b, n, w, s, _ = potentials.shape

    def empty(*shape: int) -> Tensor:
        return potentials.new_empty(shape, dtype=torch.float64)

    sweeps = Sweeps(empty(2, b, n + 1, s), empty(2, b, n + 1), empty(b), empty(b))
    _sweep(potentials, lengths, sweeps, 0, 2 if both else 1)
    return sweeps


def backward(potentials: Segments, lengths: Lengths, sweeps: Sweeps) -> None:
    """Adds the betas to the sweeps."""
    _sweep(potentials, lengths, sweeps, 1, 1)


def _sweep(potentials: Tensor, lengths: Tensor, sweeps: Sweeps, first: int, count: int) -> None:
    b, n, w, s, _ = potentials.shape
    sweep_kernel[(b, count)](
        potentials, lengths, sweeps.values, sweeps.logs, sweeps.log_z, sweeps.rest,
        first, b, n, w, s, **_options(potentials, stages=3),
    )  # fmt: skip


def gradients(
    potentials: Segments, lengths: Lengths, sweeps: Sweeps, weights: PerElement
) -> Segments:
    """Gradients of weights . log Z, 0 in the padding; needs both sweeps."""
    b, n, w, s, _ = potentials.shape
    out = torch.empty_like(potentials)
    options = _options(potentials)
    marginals_kernel[(b * n, triton.cdiv(w * s, options["R"]))](
        potentials, lengths, sweeps.values, sweeps.logs, sweeps.rest, weights, out,
        b, n, w, s, **options,
    )  # fmt: skip
    return out


def _unwritten(lengths: Tensor, n: int, *leading: int) -> Int[Tensor, "*leading b n"]:
    """Labels before any segment is written: -1, and 0 beyond the lengths."""
    real = torch.arange(n, device=lengths.device) < lengths[:, None]
    return torch.where(real, -1, 0).expand(*leading, *real.shape).contiguous()


def best_segments(potentials: Segments, lengths: Lengths) -> Labels:
    """The segmentation with the highest score."""
    b, n, w, s, _ = potentials.shape
    labels = _unwritten(lengths, n)
    best = potentials.new_empty((b, n + 1, s), dtype=torch.float64)
    pointers = torch.empty_like(best, dtype=torch.int32)
    viterbi_kernel[(b,)](
        potentials, lengths, best, pointers, labels, n, w, s, **_options(potentials, stages=3)
    )
    return labels


def sample_segments(
    potentials: Segments, lengths: Lengths, sweeps: Sweeps, uniform: Float[Tensor, "m b slots"]
) -> Int[Tensor, "m b n"]:
    """Independent segmentations; -1 throughout where an element has none."""
    b, n, w, s, _ = potentials.shape
    labels = _unwritten(lengths, n, len(uniform))
    size = max(4, triton.next_power_of_2(s))
    sample_kernel[(len(uniform) * b,)](
        potentials, lengths, sweeps.values, sweeps.logs, sweeps.rest, uniform, labels,
        b, n, w, s, R=min(1024, max(32, triton.next_power_of_2(w * s))), S=size, num_warps=1,
    )  # fmt: skip
    return labels
