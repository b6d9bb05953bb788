"""Covariances of the parts of a semi-Markov chain with an additive function, from its marginals.

The Hessian of log Z times a direction u is Cov[part, U], with U the sum of u over the segments.
For the segment from s to t with labels i, j that is p(part) (E[U | part] - E[U]), and by the
Markov property E[U | part] = f[s, i] + u + h[t, j]: f is what is expected before s given that a
segment with label i ends there, h what is expected after t. All is kept relative to the mean
m[t] of f[t], in float64, so that little cancels: f' = f - m[t] and h' = h - (E[U] - m[t]).
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.exponential import FAST


@inner(fastmath=FAST)
def look_back(p, u, f, shift, total, mass):
    """mass[j] += sum of p[i, j] over i, and total[j] += sum of p[i, j] (f[i] + u[i, j] + shift)."""
    for i in range(p.shape[0]):
        for j in range(p.shape[1]):
            mass[j] += p[i, j]
            total[j] += p[i, j] * (f[i] + shift + u[i, j])


@inner(fastmath=FAST)
def look_ahead(p, u, f, h, shift, weight, total, mass, out):
    """out = weight p (f[i] + u + shift + h[j]); rows of p and of p (u + shift + h[j]) added up."""
    for i in range(p.shape[0]):
        row, row_mass = h[0] * 0, h[0] * 0
        for j in range(p.shape[1]):
            ahead = u[i, j] + shift + h[j]
            row_mass += p[i, j]
            row += p[i, j] * ahead
            out[i, j] = weight * (p[i, j] * (f[i] + ahead))
        total[i] += row
        mass[i] += row_mass


@inner
def divide(values, masses):
    """values /= masses in place, 0 where there is no mass: the mean of the values under them."""
    total, mass = 0.0, 0.0
    for j in range(values.shape[0]):
        total += values[j]
        mass += masses[j]
        values[j] = values[j] / masses[j] if masses[j] > 0 else 0
    return total / mass if mass > 0 else 0.0


@compiled
def covariances(parts, length, u, weight, out):
    """Fills out [n w s s] with weight * Cov[part, U] of one element; returns E[U].

    `parts` [n w s s] are its marginals; `u` has their shape.
    """
    positions, widths, size = parts.shape[:3]
    f, h = np.zeros((length + 1, size), parts.dtype), np.zeros((length + 1, size), parts.dtype)
    masses, means = np.zeros((length + 1, size), parts.dtype), np.zeros(length + 1)
    shift = np.zeros(1, parts.dtype)
    for t in range(1, length + 1):
        for d in range(1, min(widths, t) + 1):
            shift[0] = means[t - d] - means[t - 1]
            rows = 1 if d == t else size
            look_back(
                parts[t - 1, d - 1, :rows], u[t - 1, d - 1, :rows],
                f[t - d], shift[0], f[t], masses[t],
            )  # fmt: skip
        mean = divide(f[t], masses[t])
        means[t] = means[t - 1] + mean
        shift[0] = mean
        for j in range(size):
            if masses[t, j] > 0:
                f[t, j] -= shift[0]
    masses[:] = 0
    for t in range(positions, 0, -1):
        if 0 < t < length:
            divide(h[t], masses[t])
        for d in range(1, widths + 1):
            if t > length or d > t:
                out[t - 1, d - 1] = 0
                continue
            rows = 1 if d == t else size
            shift[0] = means[t - d] - means[t]
            look_ahead(
                parts[t - 1, d - 1, :rows], u[t - 1, d - 1, :rows], f[t - d], h[t], shift[0],
                weight, h[t - d], masses[t - d], out[t - 1, d - 1, :rows],
            )  # fmt: skip
            out[t - 1, d - 1, rows:] = 0
    return means[length]
