"""Forward and backward passes of factored chains in scaled arithmetic, element by element.

The alphas of a position share an exponent of two. A step is two products of a vector and a matrix,
through the latent values. Real and complex numbers, as in `grammar.py`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.lowrank.cpu.grammar import own
from inout.kernels.math.cpu.exponential import FAST
from inout.kernels.pcfg.cpu.scaled import settle

Array = NDArray[Any]


class Arrays(NamedTuple):
    """Weights relative to the largest of their block, and the chart of them."""

    nodes: Array  # [b n s]
    source: Array  # [1|b 1|n-1 s r]
    target: Array  # [1|b 1|n-1 r s]
    lengths: Array  # [b]
    latent: Array  # [b n r], sums over the labels of the position before
    alphas: Array  # [b n s]
    sigmas: Array  # [b n], exponents of two


@inner(returns_arrays=True)
def block_at(factor, b, t):
    """The factor's block for the step from position t - 1 to t."""
    return factor[own(factor, b), 0 if factor.shape[1] == 1 else t - 1]


@inner(fastmath=FAST)
def add_product(vector, matrix, out):
    """out += vector @ matrix."""
    for i in range(vector.shape[0]):
        weight = vector[i]
        for j in range(out.shape[0]):
            out[j] += weight * matrix[i, j]


@inner(fastmath=FAST)
def back_through(vector, matrix, gradient, grad_vector, grad_matrix):
    """Backward of `add_product`; adds to the matrix's gradient, sets the vector's."""
    for i in range(vector.shape[0]):
        weight, total = vector[i], gradient[0] * 0
        for j in range(gradient.shape[0]):
            total += matrix[i, j] * gradient[j]
            grad_matrix[i, j] += weight * gradient[j]
        grad_vector[i] = total


@compiled
def inside(arrays, lo, hi, tiny, floor, low):
    """Fills latent, alphas and sigmas; low [b] says where a total fell below tiny.

    Every total has `floor` added to it. O(n s r) for an element.
    """
    size = arrays.nodes.shape[2]
    totals = np.empty(size, arrays.nodes.dtype)
    for b in range(lo, hi):
        low[b] = False
        scale = 0.0
        for t in range(arrays.lengths[b]):
            nodes = arrays.nodes[b, t]
            if t == 0:
                for j in range(size):
                    totals[j] = nodes[j] + floor
            else:
                latent = arrays.latent[b, t]
                latent[:] = 0
                add_product(arrays.alphas[b, t - 1], block_at(arrays.source, b, t), latent)
                totals[:] = 0
                add_product(latent, block_at(arrays.target, b, t), totals)
                for j in range(size):
                    totals[j] = totals[j] * nodes[j] + floor
            scale, small = settle(totals, scale, tiny, arrays.alphas[b, t])
            arrays.sigmas[b, t] = scale
            low[b] = low[b] or small


@inner
def scale_between(sigmas, t):
    """The scale of the position before, relative to that of t."""
    before = sigmas[t - 1] if t > 0 else 0.0
    return math.ldexp(1.0, int(before - sigmas[t]))


@compiled
def outside(arrays, lo, hi, end_gradient, by_nodes, by_source, by_target, slot):
    """Gradients of the sum over elements of end_gradient[b] . alphas of the last position.

    Fills those by the weights of nodes [b n s]; adds to those by the factors at place `slot`, or b
    where each element has factors of its own. The gradient by an alpha that is 0 is set to 0.
    """
    size, rank, kind = arrays.nodes.shape[2], arrays.latent.shape[2], arrays.nodes.dtype
    gradient, into = np.empty(size, kind), np.empty(rank, kind)
    before, means = np.empty(size, kind), np.empty(size, kind)
    for b in range(lo, hi):
        by_nodes[b] = 0
        length = arrays.lengths[b]
        if length == 0 or arrays.sigmas[b, length - 1] == -np.inf:
            continue
        gradient[:] = end_gradient[b]
        from_source = by_source[b if arrays.source.shape[0] > 1 else slot]
        from_target = by_target[b if arrays.target.shape[0] > 1 else slot]
        for t in range(length - 1, -1, -1):
            for j in range(size):
                if arrays.alphas[b, t, j] == 0:
                    gradient[j] = 0
            # The totals that alphas are made of are in the scale of the position before.
            factor = scale_between(arrays.sigmas[b], t)
            if t == 0:
                for j in range(size):
                    by_nodes[b, 0, j] = gradient[j] * factor
                continue
            latent, target = arrays.latent[b, t], block_at(arrays.target, b, t)
            means[:] = 0
            add_product(latent, target, means)
            for j in range(size):
                by_nodes[b, t, j] = gradient[j] * means[j] * factor
                gradient[j] *= arrays.nodes[b, t, j] * factor
            s_step = 0 if arrays.source.shape[1] == 1 else t - 1
            t_step = 0 if arrays.target.shape[1] == 1 else t - 1
            back_through(latent, target, gradient, into, from_target[t_step])
            source = block_at(arrays.source, b, t)
            back_through(arrays.alphas[b, t - 1], source, into, before, from_source[s_step])
            gradient[:] = before
