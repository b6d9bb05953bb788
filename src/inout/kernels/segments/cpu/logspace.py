"""Forward and backward of single semi-Markov chains in float64 log space: the fallback.

Potentials [n w s s] of one element, as in `scaled.py`. Handles every mixture of magnitudes
and -inf; O(n w s²) calls of exp.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled
from inout.kernels.chain.cpu.logspace import log_sum, shares_of


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
    """Fills out [n w s s] with the marginals of one element, 0 for padding.

    Backwards, by the probabilities of a segment given its end and label, which are made to sum
    to 1, as those of `chain.cpu.logspace.marginals`.
    """
    widths, size = potentials.shape[1], potentials.shape[2]
    out[:] = 0
    log_z, alphas = forward(potentials, length)
    if log_z == -np.inf:
        return
    masses, shares = np.zeros((length + 1, size)), np.empty(widths * size)
    shares_of(alphas[length], masses[length])
    for t in range(length, 0, -1):
        widest = min(widths, t)
        for j in range(size):
            if masses[t, j] == 0:
                continue
            for d in range(1, widest + 1):
                for i in range(size):
                    # Also excludes padding: previous labels of the first segment.
                    possible = alphas[t - d, i] > -np.inf
                    shares[(d - 1) * size + i] = (
                        alphas[t - d, i] + potentials[t - 1, d - 1, i, j] if possible else -np.inf
                    )
            shares_of(shares[: widest * size], shares[: widest * size])
            for d in range(1, widest + 1):
                for i in range(size):
                    mass = masses[t, j] * shares[(d - 1) * size + i]
                    out[t - 1, d - 1, i, j] = mass
                    masses[t - d, i] += mass
