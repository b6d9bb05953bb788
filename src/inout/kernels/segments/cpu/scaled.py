"""Forward and backward for semi-Markov chains, in scaled real arithmetic.

alpha[t, j] is the weight of all segmentations of the first t positions whose last segment has
label j; alpha[0] is 1 for label 0 and 0 otherwise, so that the first segment reads its potential
at previous label 0. Each alpha[t] is kept with its largest entry at 1 and the logarithm of its
scale beside it. Step t adds segments of all widths, which start from alphas of different scales:
its common exponent `top` is the largest log-weight among them, and the block of width d is
exp(potential - offset) with offset = top - (log scale of alpha[t-d]): one exp and one
multiply-add for each potential. A label that is possible but whose sum falls below `tiny` would
lose digits: the element is then marked, and done again in log space (`logspace.py`).

The betas use the scales of the alphas: beta[t, j] alpha[t, j] / sum(alpha[length]) is the
probability that a segment with label j ends at t. So beta is at most about s / tiny, and where it
underflows the probabilities are 0 to the last digit: the backward pass cannot fail.

What a step leaves has a row, t - origin; the origin is 0 unless steps are made again block by block
(`recomputed.py`).

Potentials [b n w s s]: last position of the segment, width - 1, previous label, label; lengths
[b]. Every kernel does the elements lo:hi only, so that threads can share a batch.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.chain.cpu.scaled import exponentiate
from inout.kernels.limits import SEGMENTS_FAR
from inout.kernels.math.cpu.exponential import FAST
from inout.kernels.math.cpu.extremes import largest

Array = NDArray[Any]


class State(NamedTuple):
    """What `forward` leaves; of one element without the first dimension."""

    alphas: Array  # [b n+1 s], each position's relative to the largest
    logs: Array  # [b n+1], logarithms of their scales
    scales: Array  # [b n], the largest sum of each step
    offsets: Array  # [b n w], what is subtracted from the potentials of each width
    rounding: Array  # [b n w], what makes up for rounding the offsets; 0: nothing of this width


@inner
def can_end(blocks, alphas, t, row, label):
    """Whether a segment with this label can end at t, so that its weight is not zero."""
    for d in range(1, min(blocks.shape[0], t) + 1):
        for i in range(blocks.shape[1]):
            if alphas[row - d, i] > 0 and blocks[d - 1, i, label] > -np.inf:
                return True
    return False


@inner(fastmath=FAST)
def spread(alpha, factor, factors, total):
    """total[j] += sum over i of factor alpha[i] factors[i, j]."""
    for i in range(factors.shape[0]):
        if alpha[i] > 0:
            weight = alpha[i] * factor
            for j in range(factors.shape[1]):
                total[j] += weight * factors[i, j]


@inner
def known_rows(t, d, size):
    """How many previous labels the segment of width d that ends at t has: the first has one."""
    return 1 if d == t else size


@inner
def set_offsets(blocks, t, row, logs, offsets, rounding):
    """Fills offsets [w] and rounding [w] of step t and returns its common exponent.

    rounding[d - 1] is 0 for widths that contribute nothing, else what makes up for rounding the
    offset to the dtype. -inf: no segment can end at t; NaN: the range does not fit.
    """
    size, widest = blocks.shape[1], min(blocks.shape[0], t)
    lowest = np.finfo(blocks.dtype).min
    top = -np.inf
    for d in range(1, widest + 1):
        rounding[d - 1] = 0
        offsets[d - 1] = lowest
        if logs[row - d] > -np.inf:
            block = blocks[d - 1].reshape(size * size)
            offsets[d - 1] = largest(block[: known_rows(t, d, size) * size])
            if offsets[d - 1] > lowest:
                top = max(top, logs[row - d] + float(offsets[d - 1]))
    if top == -np.inf:
        return top
    for d in range(1, widest + 1):
        if offsets[d - 1] > lowest:
            exact = top - logs[row - d]
            if not abs(exact) < SEGMENTS_FAR:
                return np.nan
            offsets[d - 1] = exact
            rounding[d - 1] = math.exp(float(offsets[d - 1]) - exact)
    return top


@inner
def begin(row, state):
    """Sets the row of what comes before the first segment."""
    for j in range(state.alphas.shape[1]):
        state.alphas[row, j] = 0
    state.alphas[row, 0] = 1
    state.logs[row] = 0


@inner
def total_of(row, state):
    """log Z of an element that ends in this row."""
    end = 0.0
    for j in range(state.alphas.shape[1]):
        end += state.alphas[row, j]
    return state.logs[row] + math.log(end) if end > 0 else -np.inf


@inner
def advance(potentials, first, last, origin, tiny, state):
    """Fills the rows of the steps first..last of one element; whether their range fits."""
    alphas, logs, scales, offsets, rounding = state
    size = potentials.shape[2]
    total = np.empty(size, potentials.dtype)
    flat = np.empty(size * size, potentials.dtype)
    factors = flat.reshape((size, size))
    for t in range(first, last + 1):
        row = t - origin
        blocks = potentials[t - 1]
        top = set_offsets(blocks, t, row, logs, offsets[row - 1], rounding[row - 1])
        if np.isnan(top):
            return False
        for j in range(size):
            total[j] = 0
        for d in range(1, min(blocks.shape[0], t) + 1):
            if rounding[row - 1, d - 1] > 0:
                rows = known_rows(t, d, size)
                block = blocks[d - 1].reshape(size * size)
                exponentiate(block[: rows * size], offsets[row - 1, d - 1], flat)
                spread(alphas[row - d], rounding[row - 1, d - 1], factors[:rows], total)
        scale = total[0]
        least = scale
        for j in range(1, size):
            scale = max(scale, total[j])
            least = min(least, total[j])
        if least < tiny * max(float(scale), 1.0):
            for j in range(size):
                if total[j] < tiny * max(float(scale), 1.0) and can_end(blocks, alphas, t, row, j):
                    return False
        scales[row - 1] = scale
        logs[row] = top + math.log(scale) if scale > 0 else -np.inf
        for j in range(size):
            alphas[row, j] = total[j] / scale if scale > 0 else 0
    return True


@inner
def forward_one(potentials, length, tiny, state):
    """log Z of one element, NaN if it needs log space; fills its state."""
    begin(0, state)
    fits = advance(potentials, 1, length, 0, tiny, state)
    return total_of(length, state) if fits else np.nan


@inner(returns_arrays=True)
def state_of(state, b):
    """The state of element b."""
    return State(
        state.alphas[b], state.logs[b], state.scales[b], state.offsets[b], state.rounding[b]
    )


@compiled
def forward(potentials, lengths, lo, hi, tiny, state, log_z):
    """Fills the state and log_z [b] (NaN: log space)."""
    for b in range(lo, hi):
        log_z[b] = forward_one(potentials[b], lengths[b], tiny, state_of(state, b))


@inner(fastmath=FAST)
def collect(alpha, factor, weight, ahead, back, factors):
    """factors[i, j] *= weight factor alpha[i] ahead[j]; back[i] += factor (factors @ ahead)[i]."""
    for i in range(factors.shape[0]):
        row = alpha[i] * factor * weight
        total = ahead[0] * 0
        if alpha[i] > 0:
            for j in range(factors.shape[1]):
                share = factors[i, j] * ahead[j]
                total += share
                factors[i, j] = row * share
        else:
            for j in range(factors.shape[1]):
                factors[i, j] = 0
        back[i] += total * factor


@compiled
def marginals(potentials, length, state, weight, out):
    """Fills out [n w s s] with weight times the marginals of one element, after `forward_one`."""
    positions, widths, size = potentials.shape[:3]
    betas = np.zeros((length + 1, size), potentials.dtype)
    if not end_at(length, state.alphas, betas):
        length = 0
    for t in range(length, positions):
        wipe(out[t].reshape(widths * size * size))
    retreat(potentials, length, 1, 0, state, betas, weight, out)


@inner
def end_at(row, alphas, betas):
    """Sets the betas of the row where an element ends; whether it is possible."""
    end = alphas[row, 0] * 0
    for j in range(alphas.shape[1]):
        end += alphas[row, j]
    if end > 0:
        for j in range(alphas.shape[1]):
            betas[row, j] = 1 / end
    return end > 0


@inner
def retreat(potentials, last, first, origin, state, betas, weight, out):
    """Fills out [n w s s] at the steps last..first, after `advance`; adds to the betas' rows."""
    alphas, _, scales, offsets, rounding = state
    widths, size = potentials.shape[1:3]
    ahead = np.empty(size, potentials.dtype)
    for t in range(last, first - 1, -1):
        row = t - origin
        for j in range(size):
            ahead[j] = betas[row, j] / scales[row - 1] if scales[row - 1] > 0 else 0
        for d in range(1, widths + 1):
            flat = out[t - 1, d - 1].reshape(size * size)
            # No scale: no segment can end at t. No rounding: none of this width.
            if d > t or scales[row - 1] == 0 or rounding[row - 1, d - 1] == 0:
                wipe(flat)
                continue
            rows = known_rows(t, d, size)
            block = potentials[t - 1, d - 1].reshape(size * size)
            exponentiate(block[: rows * size], offsets[row - 1, d - 1], flat)
            wipe(flat[rows * size :])
            collect(
                alphas[row - d], rounding[row - 1, d - 1], weight,
                ahead, betas[row - d], out[t - 1, d - 1, :rows],
            )  # fmt: skip


@inner
def wipe(values):
    """Sets all values to 0."""
    for k in range(values.shape[0]):
        values[k] = 0


@compiled
def backward(potentials, lengths, lo, hi, state, log_z, weights, out):
    """Fills out [b n w s s] with the gradients of sum(weights * log Z), but where log_z is NaN."""
    for b in range(lo, hi):
        if not np.isnan(log_z[b]):
            marginals(potentials[b], lengths[b], state_of(state, b), weights[b], out[b])
