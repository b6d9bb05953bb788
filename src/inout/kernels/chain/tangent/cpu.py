"""Covariances of the parts of a chain with an additive function, from its marginals alone.

The Hessian of log Z times a direction u is Cov[part, U], with U the sum of u over the parts of a
labelling. For the pair (i, j) at t that is p(i, j) (E[U | i, j] - E[U]), and by the Markov
property E[U | i, j] = f[i] + u[i, j] + h[j], with f what is expected up to t given label i and h
what is expected from t + 1 on given label j. No exp, no scaling; f and h are kept centred, so
that little cancels.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from inout.kernels.exponential.cpu import FAST


@njit(cache=True, nogil=True, fastmath=FAST)
def look_back(pairs, u_pairs, f, total):
    """total[j] = sum over i of pairs[i, j] (f[i] + u_pairs[i, j])."""
    total[:] = 0
    for i in range(pairs.shape[0]):
        for j in range(pairs.shape[1]):
            total[j] += pairs[i, j] * (f[i] + u_pairs[i, j])


@njit(cache=True, nogil=True, fastmath=FAST)
def look_ahead(pairs, u_pairs, f, h, mean, weight, total, out):
    """out = weight * pairs * (f[i] + u + h[j] - mean); total[i] = sum_j pairs (u + h[j])."""
    for i in range(pairs.shape[0]):
        row = h[0] * 0
        for j in range(pairs.shape[1]):
            ahead = u_pairs[i, j] + h[j]
            row += pairs[i, j] * ahead
            out[i, j] = weight * pairs[i, j] * (f[i] + ahead - mean)
        total[i] = row


@njit(cache=True, nogil=True, fastmath=FAST)
def centre(values, masses):
    """Subtract the mean of `values` under `masses` (which sum to one) and return it."""
    mean = values[0] * 0
    for j in range(values.shape[0]):
        mean += masses[j] * values[j]
    for j in range(values.shape[0]):
        values[j] -= mean
    return mean


@njit(cache=True, nogil=True, fastmath=FAST)
def pair_mean(pairs, u_pairs, h):
    """Sum over i, j of pairs (u_pairs + h[j])."""
    total = h[0] * 0
    for i in range(pairs.shape[0]):
        for j in range(pairs.shape[1]):
            total += pairs[i, j] * (u_pairs[i, j] + h[j])
    return total


@njit(cache=True, nogil=True)
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
