"""Covariances of the parts of a chain with an additive function, from its marginals alone.

The Hessian of log Z times a direction u is Cov[part, U], with U the sum of u over the parts of a
labelling. For the pair (i, j) at t that is p(i, j) (E[U | i, j] - E[U]), and by the Markov
property E[U | i, j] = f[i] + u[i, j] + h[j], with f what is expected up to t given label i and h
what is expected from t + 1 on given label j. No exp, no scaling; f and h are kept centred, so
that little cancels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.chain.cpu.scaled import Array, dot, pair_marginals, scale_by, share_out, spread
from inout.kernels.chain.cpu.scaled import look_ahead as meet
from inout.kernels.math.cpu.exponential import FAST
from inout.kernels.math.cpu.products import add_product_of_columns


@inner(fastmath=FAST)
def look_back(pairs, u_pairs, f, total):
    """total[j] = sum over i of pairs[i, j] (f[i] + u_pairs[i, j])."""
    total[:] = 0
    for i in range(pairs.shape[0]):
        for j in range(pairs.shape[1]):
            total[j] += pairs[i, j] * (f[i] + u_pairs[i, j])


@inner(fastmath=FAST)
def look_ahead(pairs, u_pairs, f, h, mean, weight, total, out):
    """out = weight * pairs * (f[i] + u + h[j] - mean); total[i] = sum_j pairs (u + h[j])."""
    for i in range(pairs.shape[0]):
        row = h[0] * 0
        for j in range(pairs.shape[1]):
            ahead = u_pairs[i, j] + h[j]
            row += pairs[i, j] * ahead
            out[i, j] = weight * pairs[i, j] * (f[i] + ahead - mean)
        total[i] = row


@inner(fastmath=FAST)
def centre(values, masses):
    """Subtract the mean of `values` under `masses` (which sum to one) and return it."""
    mean = values[0] * 0
    for j in range(values.shape[0]):
        mean += masses[j] * values[j]
    for j in range(values.shape[0]):
        values[j] -= mean
    return mean


@inner(fastmath=FAST)
def pair_mean(pairs, u_pairs, h):
    """Sum over i, j of pairs (u_pairs + h[j])."""
    total = h[0] * 0
    for i in range(pairs.shape[0]):
        for j in range(pairs.shape[1]):
            total += pairs[i, j] * (u_pairs[i, j] + h[j])
    return total


@compiled
def covariances(nodes, pairs, length, u_nodes, u_pairs, weight, node_out, pair_out):
    """Fills weight * Cov[part, U] for the nodes [n s] and pairs [n-1 s s] of one chain; E[U].

    `nodes` and `pairs` are its marginals; `u_pairs` is [n-1 s s], or [1 s s] if stationary.
    """
    size = nodes.shape[1]
    f = np.zeros((nodes.shape[0], size), nodes.dtype)
    h, total = np.zeros(size, nodes.dtype), np.zeros(size, nodes.dtype)
    node_out[length:] = 0
    pair_out[max(length - 1, 0) :] = 0
    expected = 0.0
    for t in range(length):
        if t > 0:
            u = u_pairs[t - 1 if u_pairs.shape[0] > 1 else 0]
            look_back(pairs[t - 1], u, f[t - 1], total)
        for j in range(size):
            if nodes[t, j] > 0:  # of a label never met nothing is expected
                f[t, j] = u_nodes[t, j] + total[j] / nodes[t, j]
        expected += centre(f[t], nodes[t])
    for t in range(length - 1, -1, -1):
        for j in range(size):
            node_out[t, j] = weight * nodes[t, j] * (f[t, j] + h[j])
            h[j] = h[j] + u_nodes[t, j] if nodes[t, j] > 0 else 0
        if t == 0:
            break
        u = u_pairs[t - 1 if u_pairs.shape[0] > 1 else 0]
        mean = pair_mean(pairs[t - 1], u, h)
        look_ahead(pairs[t - 1], u, f[t - 1], h, mean, weight, total, pair_out[t - 1])
        for i in range(size):
            h[i] = total[i] / nodes[t - 1, i] if nodes[t - 1, i] > 0 else 0
        centre(h, nodes[t - 1])
    return expected


@inner
def node_marginals(alphas, betas, length, nodes):
    """Fills nodes [n s], up to the length, with the marginals of the labels of one chain."""
    one = alphas.dtype.type(1)
    for t in range(length):
        share_out(alphas[t], betas[t], one / dot(alphas[t], betas[t]), nodes[t])


@compiled
def specific_covariances(chains, lo, hi, messages, direction, weights, out, expected):
    """`covariances` of the elements lo:hi but those with NaN in log_z, after `backward`.

    Fills out.nodes [b n s], out.pairs [b n-1 s s] and expected [b].
    """
    _, n, size = chains.emissions.shape
    nodes = np.empty((n, size), chains.emissions.dtype)
    pairs = np.empty((max(n - 1, 0), size, size), chains.emissions.dtype)
    for b in range(lo, hi):
        if np.isnan(messages.log_z[b]):
            continue
        node_marginals(messages.alphas[b], messages.betas[b], chains.lengths[b], nodes)
        pair_marginals(chains, messages, b, pairs)
        own = b if direction.pairs.shape[0] > 1 else 0
        expected[b] = covariances(
            nodes, pairs, chains.lengths[b], direction.nodes[b], direction.pairs[own], weights[b],
            out.nodes[b], out.pairs[b],
        )  # fmt: skip


@inner(fastmath=FAST)
def multiply(x, y, factor, shift, out):
    """out = factor * x * (y - shift)."""
    for k in range(x.shape[0]):
        out[k] = factor * x[k] * (y[k] - shift)


@inner(fastmath=FAST)
def add_product(x, y, out):
    """out = x * (out + y); returns the sum of out."""
    total = x[0] * 0
    for k in range(x.shape[0]):
        out[k] = x[k] * (out[k] + y[k])
        total += out[k]
    return total


class Matrices(NamedTuple):
    """Stationary transitions and how a direction changes them, next label first in the second."""

    factors: Array  # [b s s]
    transposed: Array
    changes: Array  # [bu s s], factors times the direction; [0 s s] if that is the same for all
    changes_transposed: Array


@inner
def stationary_element(chains, b, messages, matrices, u_nodes, weight, node_out, sums, place):
    """As `covariances`, for one block of factors [s s] at all positions, from alphas and betas.

    The pair i, j at t weighs before[t, i] factors[i, j] after[t, j], so no block is ever made:
    what the direction does is a product with one of four matrices. The gradients of the block,
    summed over the positions, are added to sums[place, 0] [s s], still to be multiplied by the
    factors, and to sums[place, 1], by the changes.
    """
    emissions, scales, length = chains.emissions[b], messages.scales[b], chains.lengths[b]
    alphas, betas = messages.alphas[b], messages.betas[b]
    n, size = alphas.shape
    kind = alphas.dtype
    one, zero = kind.type(1), kind.type(0)
    own = b if matrices.factors.shape[0] > 1 else 0
    factors, transposed = matrices.factors[own], matrices.transposed[own]
    changing = matrices.changes.shape[0] > 0
    of_u = b if matrices.changes.shape[0] > 1 else 0
    nodes, f = np.empty((n, size), kind), np.zeros((n, size), kind)
    before, after = np.empty((n, size), kind), np.empty((n, size), kind)
    h, total, more = np.zeros(size, kind), np.zeros(size, kind), np.zeros(size, kind)
    node_marginals(alphas, betas, length, nodes)
    node_out[length:] = 0
    expected = 0.0
    for t in range(length):
        if t > 0:
            meet(emissions[t], betas[t], after[t - 1])
            mass = dot(alphas[t], betas[t])
            scale_by(alphas[t - 1], one / (mass * scales[t]), before[t - 1])
            multiply(before[t - 1], f[t - 1], one, zero, h)
            spread(h, factors, total)
            if changing:
                spread(before[t - 1], matrices.changes[of_u], more)
            add_product(after[t - 1], more, total)
        for j in range(size):
            if nodes[t, j] > 0:  # of a label never met nothing is expected
                f[t, j] = u_nodes[t, j] + total[j] / nodes[t, j]
        expected += centre(f[t], nodes[t])
    steps = max(length - 1, 0)
    left, right = np.empty((2 * steps, size), kind), np.empty((2 * steps, size), kind)
    for j in range(size):
        h[j] = 0
    for t in range(length - 1, -1, -1):
        for j in range(size):
            node_out[t, j] = weight * nodes[t, j] * (f[t, j] + h[j])
            h[j] = h[j] + u_nodes[t, j] if nodes[t, j] > 0 else zero
        if t == 0:
            break
        multiply(after[t - 1], h, one, zero, right[steps + t - 1])
        spread(right[steps + t - 1], transposed, total)
        if changing:
            spread(after[t - 1], matrices.changes_transposed[of_u], more)
        mean = add_product(before[t - 1], more, total)
        multiply(before[t - 1], f[t - 1], weight, mean, left[t - 1])
        scale_by(after[t - 1], one, right[t - 1])
        scale_by(before[t - 1], weight, left[steps + t - 1])
        for i in range(size):
            h[i] = total[i] / nodes[t - 1, i] if nodes[t - 1, i] > 0 else zero
        centre(h, nodes[t - 1])
    if steps > 0:
        add_product_of_columns(left, right, sums[place, 0])
        if changing:
            add_product_of_columns(left[steps:], right[:steps], sums[place, 1])
    return expected


@compiled
def stationary_covariances(
    chains, lo, hi, messages, matrices, u_nodes, weights, node_out, sums, places, expected
):
    """`stationary_element` of the elements lo:hi but those with NaN in log_z.

    Fills node_out [b n s] and expected [b]; adds to sums [slots 2 s s] at the elements' places [b].
    """
    for b in range(lo, hi):
        if not np.isnan(messages.log_z[b]):
            place = places[b]
            expected[b] = stationary_element(
                chains, b, messages, matrices, u_nodes[b], weights[b], node_out[b], sums, place
            )
