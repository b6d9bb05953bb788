"""Forward and backward of single chains in float64 log space: the fallback of `scaled.py`.

Shapes as there. Handles every mixture of magnitudes and -inf; O(n s²) calls of exp, in loops over
rows that vectorise.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.exponential import FAST, exp_below


@inner(fastmath=FAST)
def log_sum(values):
    """log of the sum of exp(values), -inf for none."""
    top = values[0]
    for k in range(1, values.shape[0]):
        top = max(top, values[k])
    if top == -np.inf:
        return top
    total = 0.0
    for k in range(values.shape[0]):
        total += exp_below(values[k] - top)
    return top + math.log(total)


@inner(fastmath=FAST)
def shares_of(logs, shares):
    """shares = exp(logs) divided by their sum, in place if both are the same; not all are -inf."""
    top = logs[0]
    for k in range(1, logs.shape[0]):
        top = max(top, logs[k])
    total = 0.0
    for k in range(logs.shape[0]):
        shares[k] = exp_below(logs[k] - top)
        total += shares[k]
    for k in range(logs.shape[0]):
        shares[k] /= total


@inner(returns_arrays=True)
def block_at(transitions, b, t):
    """The transitions of element b from position t - 1 to t."""
    return transitions[
        b if transitions.shape[0] > 1 else 0, t - 1 if transitions.shape[1] > 1 else 0
    ]


@inner(fastmath=FAST)
def find_tops(alpha, block, tops):
    """tops[j] = the largest alpha[i] + block[i, j], 0 if all are -inf."""
    size = alpha.shape[0]
    for j in range(size):
        tops[j] = -np.inf
    for i in range(size):
        before = alpha[i]
        if before > -np.inf:
            for j in range(size):
                value = before + block[i, j]
                tops[j] = value if value > tops[j] else tops[j]
    for j in range(size):
        if tops[j] == -np.inf:
            tops[j] = 0.0


@inner(fastmath=FAST)
def step(alpha, block, tops, totals, following):
    """following[j] = log of the sum over i of exp(alpha[i] + block[i, j]), in float64."""
    size = alpha.shape[0]
    find_tops(alpha, block, tops)
    totals[:] = 0
    for i in range(size):
        before = alpha[i]
        if before > -np.inf:
            for j in range(size):
                totals[j] += exp_below(before + block[i, j] - tops[j])
    for j in range(size):
        # The largest term is 1 unless all are 0.
        following[j] = tops[j] + math.log(totals[j]) if totals[j] > 0 else -np.inf


@compiled
def forward(chains, b):
    """(log Z, log alphas [n s]) of element b."""
    emissions, length = chains.emissions, chains.lengths[b]
    size = emissions.shape[2]
    tops, totals, alphas = np.empty(size), np.empty(size), np.empty((length, size))
    if length == 0:
        return 0.0, alphas
    for j in range(size):
        alphas[0, j] = emissions[b, 0, j]
    for t in range(1, length):
        step(alphas[t - 1], block_at(chains.transitions, b, t), tops, totals, alphas[t])
        for j in range(size):
            alphas[t, j] += emissions[b, t, j]
    return log_sum(alphas[length - 1]), alphas


@inner(fastmath=FAST)
def share_back(alpha, block, tops, totals, nodes, pairs, before):
    """pairs[i, j] = nodes[j] p(i | j), and before[i] = the sum of that over j.

    p(i | j) = exp(alpha[i] + block[i, j] - tops[j]), divided by the sum over i.
    """
    size = alpha.shape[0]
    find_tops(alpha, block, tops)
    totals[:] = 0
    for i in range(size):
        if alpha[i] > -np.inf:
            for j in range(size):
                pairs[i, j] = exp_below(alpha[i] + block[i, j] - tops[j])
                totals[j] += pairs[i, j]
    for j in range(size):
        totals[j] = nodes[j] / totals[j] if totals[j] > 0 else 0.0
    for i in range(size):
        mass = 0.0
        for j in range(size):
            pairs[i, j] *= totals[j]
            mass += pairs[i, j]
        before[i] = mass


@compiled
def marginals(chains, b, nodes, pairs):
    """Fills the marginals of element b: nodes [n s] and pairs [n-1 s s], 0 beyond its length.

    Backwards, by the probabilities of a label given the next one. These are made to sum to 1:
    logarithms are rounded more coarsely the larger they are, and if marginals were off by as
    much, expectations of large potentials would be off by the square of it.
    """
    length = chains.lengths[b]
    size = nodes.shape[1]
    nodes[:] = 0
    pairs[:] = 0
    log_z, alphas = forward(chains, b)
    if log_z == -np.inf:
        return
    tops, totals = np.empty(size), np.empty(size)
    if length > 0:
        shares_of(alphas[length - 1], nodes[length - 1])
    for t in range(length - 1, 0, -1):
        block = block_at(chains.transitions, b, t)
        share_back(alphas[t - 1], block, tops, totals, nodes[t], pairs[t - 1], nodes[t - 1])
