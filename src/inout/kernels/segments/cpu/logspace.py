"""Forward and backward of single semi-Markov chains in float64 log space: the fallback.

Potentials [n w s s] of one element, as in `scaled.py`. Handles every mixture of magnitudes
and -inf; O(n w s²) calls of exp.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled
from inout.kernels.chain.cpu.logspace import log_sum


@compiled
def forward(potentials, length):
    """(log Z, log alphas [length+1 s]) of one element."""
    widths, size = potentials.shape[1], potentials.shape[2]
    alphas, terms = np.full((length + 1, size), -np.inf), np.empty(widths * size)
    alphas[0, 0] = 0
    for t in range(1, length + 1):
        for j in range(size):
            count = 0
            for d in range(1, min(widths, t) + 1):
                for i in range(size):
                    # Also excludes padding: previous labels of the first segment.
                    if alphas[t - d, i] > -np.inf:
                        terms[count] = alphas[t - d, i] + potentials[t - 1, d - 1, i, j]
                        count += 1
            if count > 0:
                alphas[t, j] = log_sum(terms[:count])
    return log_sum(alphas[length]), alphas


@compiled
def marginals(potentials, length, out):
    """Fills out [n w s s] with the marginals of one element, 0 for padding."""
    widths, size = potentials.shape[1], potentials.shape[2]
    out[:] = 0
    log_z, alphas = forward(potentials, length)
    if log_z == -np.inf:
        return
    betas, terms = np.full((length + 1, size), -np.inf), np.empty(widths * size)
    betas[length] = 0
    for t in range(length - 1, -1, -1):
        for i in range(size):
            if alphas[t, i] == -np.inf:
                continue
            count = 0
            for d in range(1, min(widths, length - t) + 1):
                for j in range(size):
                    terms[count] = potentials[t + d - 1, d - 1, i, j] + betas[t + d, j]
                    out[t + d - 1, d - 1, i, j] = math.exp(alphas[t, i] + terms[count] - log_z)
                    count += 1
            betas[t, i] = log_sum(terms[:count])
