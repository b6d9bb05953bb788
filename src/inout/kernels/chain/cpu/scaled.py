"""Forward and backward passes for linear chains, in scaled real arithmetic.

Alphas and betas are kept with their largest entry at 1 and the logarithm of the scale beside
them, so a pair of labels costs one exp (none with stationary transitions) and a multiply-add.
What underflows is bounded from above as it is lost, and the bound carried forward: an element
where it could matter in the end is marked, and done again in log space (`logspace.py`).

Emissions [b n s]; transitions [b n-1 s s] or, stationary, [b 1 s s], previous label first, with
b = 1 where all elements share them; lengths [b], 0 allowed. Every kernel does the elements lo:hi
only, so that threads can share a batch.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled
from inout.kernels.math.cpu.exponential import FAST, exp_below
from inout.kernels.math.cpu.extremes import largest, smallest
from inout.kernels.math.cpu.products import add_product_of_columns


@compiled(fastmath=FAST)
def exponentiate(block, shift, factors):
    """factors = exp(block - shift), both flat: one long loop, which vectorises at any size."""
    for k in range(block.shape[0]):
        factors[k] = exp_below(block[k] - shift)


@compiled(fastmath=FAST)
def spread(alpha, factors, total):
    """total[j] = sum over i of alpha[i] factors[i, j]."""
    size = factors.shape[0]
    total[:] = 0
    # Four rows at a time, so that the totals are loaded and stored a quarter as often.
    for i in range(0, size - 3, 4):
        a, b, c, d = alpha[i], alpha[i + 1], alpha[i + 2], alpha[i + 3]
        for j in range(size):
            total[j] += (a * factors[i, j] + b * factors[i + 1, j]) + (
                c * factors[i + 2, j] + d * factors[i + 3, j]
            )
    for i in range(size - size % 4, size):
        weight = alpha[i]
        for j in range(size):
            total[j] += weight * factors[i, j]


@compiled(fastmath=FAST)
def emit(emission, total, alpha):
    """Sets alpha to total * exp(emission), scaled; returns (scale, shift, smallest entry).

    alpha = total * exp(emission - shift) / scale has 1 as its largest entry.
    """
    shift = largest(emission)
    for j in range(emission.shape[0]):
        alpha[j] = total[j] * exp_below(emission[j] - shift)
    scale = largest(alpha)
    if scale > 0:
        for j in range(emission.shape[0]):
            alpha[j] /= scale
    return scale, shift, smallest(alpha)


@compiled(fastmath=FAST)
def bound_losses(emission, shift, scale, floor, carried, alpha, lost, share):
    """Sets lost[j] so that alpha[j] + lost[j] is at least the true weight; whether that is much.

    `carried` [s] is what the losses of the position before can amount to here, and `floor` what
    underflow can take from a sum of entries up to 1 now, both before scaling. Where `lost` still
    holds the losses before, these underflow on their way as well. Much is more than a `share` of
    alpha.
    """
    slack = floor
    for i in range(emission.shape[0]):
        slack += floor * lost[i]
    much = False
    for j in range(emission.shape[0]):
        lost[j] = 0
        if emission[j] > -np.inf:
            factor = exp_below(emission[j] - shift) + floor
            lost[j] = (carried[j] * factor + slack) / scale
        if not lost[j] <= share * alpha[j]:
            much = True
    return much


@compiled
def forward(
    emissions, transitions, factors, lengths, lo, hi, limits, alphas, scales, shifts, log_z
):
    """Fills alphas [b n s], scales and shifts [b n], log_z [b]; NaN marks an element for log space.

    Position t has its alphas in row t modulo the number of rows: two are enough for log Z alone.
    `factors` [b s s] are exp(transitions - their maximum) where those are stationary, else empty.
    `limits` is (tiny, floor, share): sums of at least `tiny` are exact whatever underflows, which
    is at most `floor` a sum, and a `share` of a sum does not count.
    """
    tiny, floor, share = limits[0], limits[1], limits[2]
    stationary = factors.shape[0] > 0
    size, rows = emissions.shape[2], alphas.shape[1]
    total, carried = np.zeros(size, emissions.dtype), np.empty(size, emissions.dtype)
    lost = np.empty(size, emissions.dtype)
    flat = np.empty(size * size, emissions.dtype)
    scratch = flat.reshape((size, size))
    for b in range(lo, hi):
        shared = b if transitions.shape[0] > 1 else 0
        log_sum, good, lossy = 0.0, True, False
        block_shift = emissions.dtype.type(0)
        for t in range(lengths[b]):
            before, alpha = alphas[b, (t - 1) % rows], alphas[b, t % rows]
            if t == 0:
                total[:] = 1
            elif stationary:
                if t == 1:
                    block = transitions[shared, 0]
                    block_shift = largest(block.reshape(block.size))
                spread(before, factors[shared], total)
            else:
                block = transitions[shared, t - 1]
                block_shift = largest(block.reshape(block.size))
                exponentiate(block.reshape(block.size), block_shift, flat)
                spread(before, scratch, total)
            scale, shift, least = emit(emissions[b, t], total, alpha)
            scales[b, t], shifts[b, t] = scale, block_shift
            good = scale >= floor  # below, there is no reciprocal of it
            if not good:
                break
            if lossy or least * scale < tiny:
                if not lossy:
                    carried[:] = 0
                    lost[:] = 0
                elif stationary:
                    spread(lost, factors[shared], carried)
                else:
                    spread(lost, scratch, carried)
                lossy = bound_losses(
                    emissions[b, t], shift, scale, floor, carried, alpha, lost, share
                )
            log_sum += math.log(scale) + float(shift)
            if t > 0:
                log_sum += float(block_shift)
        log_z[b] = np.nan
        if lengths[b] == 0:
            log_z[b] = 0.0
        elif good:
            total[:] = 1
            whole = dot(alphas[b, (lengths[b] - 1) % rows], total)
            if not lossy or dot(lost, total) <= share * whole:
                log_z[b] = log_sum + math.log(whole)


@compiled(fastmath=FAST)
def collect(factors, alpha, beta, back, grad):
    """grad[i, j] = alpha[i] factors[i, j] beta[j], and back[i] = its sum over j / alpha[i]."""
    for i in range(factors.shape[0]):
        weight = alpha[i]
        total = beta[0] * 0
        for j in range(factors.shape[1]):
            share = factors[i, j] * beta[j]
            total += share
            grad[i, j] = weight * share
        back[i] = total


@compiled(fastmath=FAST)
def look_ahead(emission, beta, ahead):
    """ahead[j] = beta[j] exp(emission[j] - its largest)."""
    shift = largest(emission)
    for j in range(emission.shape[0]):
        ahead[j] = beta[j] * exp_below(emission[j] - shift)


@compiled(fastmath=FAST)
def share_out(alpha, beta, weight, grad):
    """grad[j] = weight alpha[j] beta[j]."""
    for j in range(alpha.shape[0]):
        grad[j] = weight * alpha[j] * beta[j]


@compiled(fastmath=FAST)
def scale_by(values, factor, out):
    """out = factor * values."""
    for j in range(values.shape[0]):
        out[j] = factor * values[j]


@compiled
def backward(
    emissions, transitions, lengths, lo, hi, tiny,
    alphas, scales, shifts, weights, betas, node_grads, edge_grads, log_z,
):  # fmt: skip
    """Fills the gradients of sum(weights * log Z): node_grads [b n s] and edge_grads [b n-1 s s].

    The betas [b n s] are kept. Elements with NaN in log_z are left alone; those that need log
    space are marked so. What underflows in a beta takes at most the `floor` of `forward` times
    alpha from the mass of all labellings, so it is enough that this mass, as scaled here, is at
    least `tiny`.
    """
    size, one = emissions.shape[2], emissions.dtype.type(1)
    back, ahead = np.empty(size, emissions.dtype), np.empty(size, emissions.dtype)
    scaled = np.empty(size, emissions.dtype)
    flat = np.empty(size * size, emissions.dtype)
    factors = flat.reshape((size, size))
    for b in range(lo, hi):
        if np.isnan(log_z[b]):
            continue
        shared = b if transitions.shape[0] > 1 else 0
        last = lengths[b] - 1
        node_grads[b, last + 1 :] = 0
        edge_grads[b, max(last, 0) :] = 0
        if last >= 0:
            betas[b, last] = 1
        for t in range(last, -1, -1):
            mass = dot(alphas[b, t], betas[b, t])
            # The sum over i, j of alpha[i] exp(block[i, j]) ahead[j], as computed below.
            norm = mass * scales[b, t]
            if not (mass >= tiny and norm >= tiny):
                log_z[b] = np.nan
                break
            share_out(alphas[b, t], betas[b, t], weights[b] / mass, node_grads[b, t])
            if t > 0:
                look_ahead(emissions[b, t], betas[b, t], ahead)
                scale_by(alphas[b, t - 1], weights[b] / norm, scaled)
                block = transitions[shared, t - 1]
                exponentiate(block.reshape(block.size), shifts[b, t], flat)
                collect(factors, scaled, ahead, back, edge_grads[b, t - 1])
                scale_by(back, one / largest(back), betas[b, t - 1])


@compiled
def stationary_backward(
    emissions, transposed, lengths, lo, hi, tiny,
    alphas, scales, weights, betas, node_grads, products, slot, log_z,
):  # fmt: skip
    """As `backward`, where one block of transitions serves all positions.

    `transposed` [b s s] are the factors, next label first. Adds to products [slots s s] what the
    gradients of the blocks are before they meet the factors: one matrix product for each element,
    at place `slot`, or b where slot is -1.
    """
    _, n, size = emissions.shape
    one = emissions.dtype.type(1)
    ahead, scaled = np.empty((n, size), emissions.dtype), np.empty((n, size), emissions.dtype)
    back = np.empty(size, emissions.dtype)
    for b in range(lo, hi):
        if np.isnan(log_z[b]):
            continue
        shared = b if transposed.shape[0] > 1 else 0
        last = lengths[b] - 1
        node_grads[b, last + 1 :] = 0
        if last >= 0:
            betas[b, last] = 1
        for t in range(last, -1, -1):
            mass = dot(alphas[b, t], betas[b, t])
            norm = mass * scales[b, t]
            if not (mass >= tiny and norm >= tiny):
                log_z[b] = np.nan
                break
            share_out(alphas[b, t], betas[b, t], weights[b] / mass, node_grads[b, t])
            if t > 0:
                look_ahead(emissions[b, t], betas[b, t], ahead[t - 1])
                scale_by(alphas[b, t - 1], weights[b] / norm, scaled[t - 1])
                spread(ahead[t - 1], transposed[shared], back)
                scale_by(back, one / largest(back), betas[b, t - 1])
        if last > 0 and not np.isnan(log_z[b]):
            place = b if slot < 0 else slot
            add_product_of_columns(scaled[:last], ahead[:last], products[place])


@compiled(fastmath=FAST)
def dot(x, y):
    """Scalar product."""
    total = x[0] * y[0]
    for k in range(1, x.shape[0]):
        total += x[k] * y[k]
    return total


@compiled(fastmath=FAST)
def pair_marginals(emissions, transitions, factors, lengths, b, alphas, betas, scales, shifts, out):
    """Fills out [n-1 s s] with the marginals of the pairs of element b, 0 beyond its length."""
    size = emissions.shape[2]
    shared = b if transitions.shape[0] > 1 else 0
    ahead = np.empty(size, emissions.dtype)
    out[max(lengths[b] - 1, 0) :] = 0
    for t in range(1, lengths[b]):
        mass = dot(alphas[b, t], betas[b, t])
        look_ahead(emissions[b, t], betas[b, t], ahead)
        block = out[t - 1]
        if factors.shape[0] > 0:
            block[:] = factors[shared]
        else:
            given = transitions[shared, t - 1]
            exponentiate(given.reshape(given.size), shifts[b, t], block.reshape(block.size))
        for i in range(size):
            weight = alphas[b, t - 1, i] / (mass * scales[b, t])
            for j in range(size):
                block[i, j] *= weight * ahead[j]
