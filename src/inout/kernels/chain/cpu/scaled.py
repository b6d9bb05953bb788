"""Forward and backward passes for linear chains, in scaled real arithmetic.

Alphas and betas are scaled so that their largest entry is 1, with the logarithm of the scale beside
them, so a pair of labels costs one exp (none with stationary transitions) and a multiply-add.
Underflowing mass is bounded from above, and the bound is carried forward: an element for which it
could matter is marked, and recomputed in log space (`logspace.py`).

Every kernel does the elements lo:hi only, so that threads can share a batch.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.exponential import FAST, exp_below
from inout.kernels.math.cpu.extremes import largest, smallest
from inout.kernels.math.cpu.products import add_product_of_columns

Array = NDArray[Any]


class Chains(NamedTuple):
    """The potentials of a batch."""

    emissions: Array  # [b n s]
    # [b n-1 s s] or, stationary, [b 1 s s], previous label first; b = 1 where all share them
    transitions: Array
    factors: Array  # [b s s], exp(transitions - their maximum) if these are stationary, else empty
    lengths: Array  # [b], 0 allowed


class Limits(NamedTuple):
    """What scaled arithmetic is trusted with, in the dtype of the potentials."""

    exact: np.floating  # sums of at least this much are exact whatever underflows
    floor: np.floating  # what underflow can take from a sum
    share: np.floating  # of a sum that does not count


class Messages(NamedTuple):
    """Results of the passes, each position relative to its largest value."""

    alphas: Array  # [b n s]
    betas: Array  # [b n s]
    scales: Array  # [b n], of the alphas
    shifts: Array  # [b n], the largest transition to each position
    log_z: Array  # [b]; NaN marks an element for log space
    kept: Array  # [b n/every s], the alphas of every so many positions, or [b 0 s]
    every: int


class Parts(NamedTuple):
    """Numbers for the labels and pairs of labels: gradients, directions."""

    nodes: Array  # [b n s]
    pairs: Array  # [b n-1 s s] or, stationary, [b 1 s s]


@inner(fastmath=FAST)
def exponentiate(block, shift, factors):
    """factors = exp(block - shift), both flat: one long loop, which vectorises at any size."""
    for k in range(block.shape[0]):
        factors[k] = exp_below(block[k] - shift)


@inner(fastmath=FAST)
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


@inner(fastmath=FAST)
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


@inner(fastmath=FAST)
def bound_losses(emission, shift, scale, limits, carried, alpha, lost):
    """Sets lost[j] so that alpha[j] + lost[j] is at least the true weight; whether that is much.

    `carried` [s] is what the losses of the position before can amount to here, and the limits'
    floor what underflow can take from a sum of entries up to 1 now, both before scaling. Where
    `lost` still holds the losses before, these underflow on their way as well. Much is more than
    the limits' share of alpha.
    """
    floor = limits.floor
    slack = floor
    for i in range(emission.shape[0]):
        slack += floor * lost[i]
    much = False
    for j in range(emission.shape[0]):
        lost[j] = 0
        if emission[j] > -np.inf:
            factor = exp_below(emission[j] - shift) + floor
            lost[j] = (carried[j] * factor + slack) / scale
        if not lost[j] <= limits.share * alpha[j]:
            much = True
    return much


@compiled
def forward(chains, lo, hi, limits, messages):
    """Fills the alphas, scales, shifts and log_z of the messages.

    Position t has its alphas in row t modulo the number of rows: two are enough for log Z alone.
    """
    emissions, alphas, tiny = chains.emissions, messages.alphas, limits.exact
    stationary = chains.factors.shape[0] > 0
    size, rows = emissions.shape[2], alphas.shape[1]
    total, carried = np.zeros(size, emissions.dtype), np.empty(size, emissions.dtype)
    lost = np.empty(size, emissions.dtype)
    flat = np.empty(size * size, emissions.dtype)
    factors = flat.reshape((size, size))
    for b in range(lo, hi):
        shared = b if chains.transitions.shape[0] > 1 else 0
        if stationary:
            factors = chains.factors[shared]
        log_sum, good, lossy = 0.0, True, False
        block_shift = emissions.dtype.type(0)
        for t in range(chains.lengths[b]):
            before, alpha = alphas[b, (t - 1) % rows], alphas[b, t % rows]
            if t == 0:
                total[:] = 1
            else:
                if t == 1 or not stationary:
                    block = chains.transitions[shared, t - 1]
                    block_shift = largest(block.reshape(block.size))
                if not stationary:
                    exponentiate(block.reshape(block.size), block_shift, flat)
                spread(before, factors, total)
            scale, shift, least = emit(emissions[b, t], total, alpha)
            messages.scales[b, t], messages.shifts[b, t] = scale, block_shift
            if messages.kept.shape[1] > 0 and t % messages.every == 0:
                scale_by(alpha, alpha.dtype.type(1), messages.kept[b, t // messages.every])
            good = scale >= limits.floor  # below, there is no reciprocal of it
            if not good:
                break
            if lossy or least * scale < tiny:
                if lossy:
                    spread(lost, factors, carried)
                else:
                    carried[:] = 0
                    lost[:] = 0
                lossy = bound_losses(emissions[b, t], shift, scale, limits, carried, alpha, lost)
            log_sum += math.log(scale) + float(shift)
            if t > 0:
                log_sum += float(block_shift)
        messages.log_z[b] = np.nan
        if chains.lengths[b] == 0:
            messages.log_z[b] = 0.0
        elif good:
            total[:] = 1
            whole = dot(alphas[b, (chains.lengths[b] - 1) % rows], total)
            if not lossy or dot(lost, total) <= limits.share * whole:
                messages.log_z[b] = log_sum + math.log(whole)


@inner(fastmath=FAST)
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


@inner(fastmath=FAST)
def look_ahead(emission, beta, ahead):
    """ahead[j] = beta[j] exp(emission[j] - its largest)."""
    shift = largest(emission)
    for j in range(emission.shape[0]):
        ahead[j] = beta[j] * exp_below(emission[j] - shift)


@inner(fastmath=FAST)
def share_out(alpha, beta, weight, grad):
    """grad[j] = weight alpha[j] beta[j]."""
    for j in range(alpha.shape[0]):
        grad[j] = weight * alpha[j] * beta[j]


@inner(fastmath=FAST)
def scale_by(values, factor, out):
    """out = factor * values."""
    for j in range(values.shape[0]):
        out[j] = factor * values[j]


@compiled
def backward(chains, transposed, lo, hi, exact, messages, weights, gradients, places):
    """Fills the gradients of sum(weights * log Z), and the betas, after `forward`.

    Elements with NaN in log_z are left alone; those that need log space are marked so. What
    underflows in a beta takes at most the floor of `forward` times alpha from the mass of all
    labellings, so it is enough that this mass, as scaled here, is at least `exact`.

    With stationary transitions, whose factors, next label first, are `transposed` [b s s], adds
    to gradients.pairs what is still to be multiplied by the factors: one matrix product for each
    element, at its place of `places` [b].
    """
    emissions, alphas, betas = chains.emissions, messages.alphas, messages.betas
    stationary = transposed.shape[0] > 0
    size, one = emissions.shape[2], emissions.dtype.type(1)
    rows = emissions.shape[1] if stationary else 1
    ahead, scaled = np.empty((rows, size), emissions.dtype), np.empty((rows, size), emissions.dtype)
    back, flat = np.empty(size, emissions.dtype), np.empty(size * size, emissions.dtype)
    factors = flat.reshape((size, size))
    for b in range(lo, hi):
        if np.isnan(messages.log_z[b]):
            continue
        shared = b if chains.transitions.shape[0] > 1 else 0
        last = chains.lengths[b] - 1
        gradients.nodes[b, last + 1 :] = 0
        if not stationary:
            gradients.pairs[b, max(last, 0) :] = 0
        if last >= 0:
            betas[b, last] = 1
        for t in range(last, -1, -1):
            mass = dot(alphas[b, t], betas[b, t])
            # The sum over i, j of alpha[i] exp(block[i, j]) ahead[j], as computed below.
            norm = mass * messages.scales[b, t]
            if not (mass >= exact and norm >= exact):
                messages.log_z[b] = np.nan
                break
            share_out(alphas[b, t], betas[b, t], weights[b] / mass, gradients.nodes[b, t])
            if t > 0:
                row = t - 1 if stationary else 0
                look_ahead(emissions[b, t], betas[b, t], ahead[row])
                scale_by(alphas[b, t - 1], weights[b] / norm, scaled[row])
                if stationary:
                    spread(ahead[row], transposed[shared], back)
                else:
                    block = chains.transitions[shared, t - 1]
                    exponentiate(block.reshape(block.size), messages.shifts[b, t], flat)
                    collect(factors, scaled[row], ahead[row], back, gradients.pairs[b, t - 1])
                scale_by(back, one / largest(back), betas[b, t - 1])
        if stationary and last > 0 and not np.isnan(messages.log_z[b]):
            add_product_of_columns(scaled[:last], ahead[:last], gradients.pairs[places[b], 0])


@inner(fastmath=FAST)
def dot(x, y):
    """Scalar product."""
    total = x[0] * y[0]
    for k in range(1, x.shape[0]):
        total += x[k] * y[k]
    return total


@inner(fastmath=FAST)
def pair_marginals(chains, messages, b, out):
    """Fills out [n-1 s s] with the marginals of the pairs of element b, 0 beyond its length."""
    emissions, alphas, betas = chains.emissions, messages.alphas, messages.betas
    size, length = emissions.shape[2], chains.lengths[b]
    shared = b if chains.transitions.shape[0] > 1 else 0
    ahead = np.empty(size, emissions.dtype)
    out[max(length - 1, 0) :] = 0
    for t in range(1, length):
        mass = dot(alphas[b, t], betas[b, t])
        look_ahead(emissions[b, t], betas[b, t], ahead)
        block = out[t - 1]
        given = chains.transitions[shared, t - 1]
        exponentiate(given.reshape(given.size), messages.shifts[b, t], block.reshape(block.size))
        for i in range(size):
            weight = alphas[b, t - 1, i] / (mass * messages.scales[b, t])
            for j in range(size):
                block[i, j] *= weight * ahead[j]
