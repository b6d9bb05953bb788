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


@inner(returns_arrays=True)
def block_at(transitions, b, t):
    """The transitions of element b from position t - 1 to t."""
    return transitions[
        b if transitions.shape[0] > 1 else 0, t - 1 if transitions.shape[1] > 1 else 0
    ]


@inner(fastmath=FAST)
def step(alpha, block, tops, totals, following):
    """following[j] = log of the sum over i of exp(alpha[i] + block[i, j]), in float64."""
    size = alpha.shape[0]
    for j in range(size):
        tops[j] = -np.inf
        totals[j] = 0.0
    for i in range(size):
        before = alpha[i]
        if before > -np.inf:
            for j in range(size):
                value = before + block[i, j]
                tops[j] = value if value > tops[j] else tops[j]
    for j in range(size):
        if tops[j] == -np.inf:
            tops[j] = 0.0
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
def collect(row, ahead, base, terms, pairs):
    """pairs[j] = exp(base + row[j] + ahead[j]), at most 1, and terms[j] = row[j] + ahead[j]."""
    for j in range(ahead.shape[0]):
        terms[j] = row[j] + ahead[j]
        # Rounding may lift the exponent of a certain pair above 0.
        pairs[j] = exp_below(min(base + terms[j], 0.0))


@compiled
def marginals(chains, b, nodes, pairs):
    """Fills the marginals of element b: nodes [n s] and pairs [n-1 s s], 0 beyond its length."""
    emissions, length = chains.emissions, chains.lengths[b]
    size = emissions.shape[2]
    nodes[:] = 0
    pairs[:] = 0
    log_z, alphas = forward(chains, b)
    if log_z == -np.inf:
        return
    terms, ahead, beta = np.empty(size), np.empty(size), np.zeros(size)
    for t in range(length - 1, -1, -1):
        for j in range(size):
            nodes[t, j] = math.exp(alphas[t, j] + beta[j] - log_z)
        if t == 0:
            return
        block = block_at(chains.transitions, b, t)
        for j in range(size):
            ahead[j] = emissions[b, t, j] + beta[j]
        for i in range(size):
            collect(block[i], ahead, alphas[t - 1, i] - log_z, terms, pairs[t - 1, i])
            beta[i] = log_sum(terms)
