"""Sparse features times weights [features, labels], and steps of AdaGrad on these weights."""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled


@compiled(fastmath={"reassoc", "contract"})
def scores(offsets, indices, values, first, weights, out):
    """out[p] = Σ values · weights[indices] over the features of position first + p."""
    for p in range(len(out)):
        own = out[p]
        own[:] = 0.0
        for k in range(offsets[first + p], offsets[first + p + 1]):
            row, value = weights[indices[k]], values[k]
            for i in range(len(own)):
                own[i] += value * row[i]


@compiled(fastmath={"reassoc", "contract"})
def add_gradient(offsets, indices, values, first, slopes, gradient):
    """The transpose: gradient[indices] += values · slopes[p] over the features of first + p."""
    for p in range(len(slopes)):
        own = slopes[p]
        for k in range(offsets[first + p], offsets[first + p + 1]):
            row, value = gradient[indices[k]], values[k]
            for i in range(len(own)):
                row[i] += value * own[i]


@compiled
def adagrad(offsets, indices, first, count, weights, gradient, squares, step, delta):
    """A step on the weights of the features of some positions, whose gradient is cleared."""
    for k in range(offsets[first], offsets[first + count]):
        row = indices[k]
        for i in range(weights.shape[1]):
            slope = gradient[row, i]
            if slope != 0.0:
                squares[row, i] += slope * slope
                weights[row, i] += step * slope / (delta + np.sqrt(squares[row, i]))
                gradient[row, i] = 0.0
