"""The sums over all paths: log Z, and the share of each move in the node it leads to.

A share is the probability of a move given that the path has its target. Everything else follows
from the shares by multiplications alone: counts, covariances, samples, moments. Numbers have
exponents of their own (`arithmetic.py`), so nothing is ever lost, and no other code is needed
where potentials are far apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.alignment.cpu.arithmetic import exponential, logarithm, normalised, power
from inout.kernels.alignment.cpu.grid import (
    COLUMNS,
    FIRST,
    SECOND,
    SOURCE,
    STEPS,
    TARGET,
    Array,
    lanes_at,
    read,
)


class Front(NamedTuple):
    """Scratch memory: the nodes of three steps, and the terms of the sums of one."""

    mantissas: Array  # [3 layers lanes]
    exponents: Array
    weights: Array  # [planes lanes], mantissas
    powers: Array  # [planes lanes], exponents
    terms: Array  # [moves lanes]
    sizes: Array  # [moves lanes], exponents
    raw: Array  # [lanes]
    top: Array
    total: Array


@inner(returns_arrays=True)
def new_front(grid):
    """Room for the largest element."""
    lanes = grid.sizes[:, 1].max() + 3
    moves, planes = grid.moves.shape[0], grid.offsets.shape[0]
    nodes = (3, grid.layers, lanes)
    return Front(
        np.empty(nodes), np.empty(nodes), np.empty((planes, lanes)), np.empty((planes, lanes)),
        np.empty((moves, lanes)), np.empty((moves, lanes)),
        np.empty(lanes), np.empty(lanes), np.empty(lanes),
    )  # fmt: skip


@inner
def start(front):
    """Only the first node, of step 0, is alive."""
    for k in range(front.mantissas.shape[0]):
        for layer in range(front.mantissas.shape[1]):
            for j in range(front.mantissas.shape[2]):
                front.mantissas[k, layer, j] = 0.0
                front.exponents[k, layer, j] = -np.inf
    front.mantissas[0, 0, 1], front.exponents[0, 0, 1] = 1.0, 0.0


@inner
def weigh(grid, b, s, front, lo, hi):
    """Weights of all planes at the lanes of a step."""
    for p in range(grid.offsets.shape[0]):
        read(grid.planes, grid, p, b, s, front.raw, -np.inf)
        raw, weights, powers = front.raw, front.weights[p], front.powers[p]
        for j in range(lo + 1, hi + 2):
            weights[j], powers[j] = exponential(raw[j])


@inner
def arrive(source, source_exponents, columns, lo, hi, terms, sizes):
    """Copies the sources of a move to the lanes of its targets."""
    for j in range(lo + 1, hi + 2):
        terms[j] = source[j - columns]
        sizes[j] = source_exponents[j - columns]


@inner
def multiply(weights, powers, lo, hi, terms, sizes):
    """Multiplies the terms by weights."""
    for j in range(lo + 1, hi + 2):
        terms[j] *= weights[j]
        sizes[j] += powers[j]


@inner
def move(grid, s, front, k, lo, hi):
    """The terms of move k at the lanes of a step."""
    own = grid.moves[k]
    row = (s - own[STEPS]) % 3
    mantissas, exponents = front.mantissas[row, own[SOURCE]], front.exponents[row, own[SOURCE]]
    arrive(mantissas, exponents, own[COLUMNS], lo, hi, front.terms[k], front.sizes[k])
    for column in range(FIRST, SECOND + 1):
        if own[column] >= 0:
            p = own[column]
            multiply(front.weights[p], front.powers[p], lo, hi, front.terms[k], front.sizes[k])


@inner
def raise_top(sizes, lo, hi, top):
    """top = max(top, sizes)."""
    for j in range(lo + 1, hi + 2):
        top[j] = sizes[j] if sizes[j] > top[j] else top[j]


@inner
def add(terms, sizes, top, lo, hi, total):
    """Brings terms to the exponents `top`, and adds them to the total."""
    for j in range(lo + 1, hi + 2):
        term = terms[j] * power(sizes[j] - top[j])
        terms[j] = term
        total[j] += term


@inner
def settle(total, top, lo, hi, mantissas, exponents):
    """The values of nodes."""
    for j in range(lo + 1, hi + 2):
        mantissas[j], exponents[j] = normalised(total[j], top[j])


@inner
def share(terms, total, lo, hi, cell, shares):
    """The shares of a move, to be stored from a cell on; exactly 1 where there is no other."""
    for j in range(lo + 1, hi + 2):
        shares[cell + j - lo - 1] = terms[j] / total[j] if total[j] > 0 else 0.0


@inner
def step(grid, s, front, lo, hi, cell, shares):
    """The nodes of a step from those before; their moves' shares [moves cells], if wanted."""
    moves, k = grid.moves, 0
    row = s % 3
    for layer in range(grid.layers):
        end = k
        for j in range(lo + 1, hi + 2):
            front.top[j], front.total[j] = -np.inf, 0.0
        while end < moves.shape[0] and moves[end, TARGET] == layer:
            move(grid, s, front, end, lo, hi)
            raise_top(front.sizes[end], lo, hi, front.top)
            end += 1
        for other in range(k, end):
            add(front.terms[other], front.sizes[other], front.top, lo, hi, front.total)
        values, exponents = front.mantissas[row, layer], front.exponents[row, layer]
        settle(front.total, front.top, lo, hi, values, exponents)
        values[hi + 2], exponents[hi + 2] = 0.0, -np.inf
        if shares.shape[1] > 0:
            for other in range(k, end):
                share(front.terms[other], front.total, lo, hi, cell, shares[other])
        k = end


@inner
def finish(grid, front, s, m, ends):
    """log Z from the last nodes, whose shares go to ends [layers]."""
    row, top, total = s % 3, -np.inf, 0.0
    for layer in range(grid.layers):
        ends[layer] = 0.0
    for layer in grid.last:
        top = max(top, front.exponents[row, layer, m + 1])
    if top == -np.inf:
        return -np.inf
    for layer in grid.last:
        exponent = front.exponents[row, layer, m + 1]
        ends[layer] = front.mantissas[row, layer, m + 1] * power(exponent - top)
        total += ends[layer]
    for layer in range(grid.layers):
        ends[layer] /= total
    return logarithm(total, top)


@compiled
def forward(grid, lo, hi, log_z, ends, shares):
    """Fills log_z [b], ends [b layers], the chances of the last layers, and shares.

    Shares are [b moves cells], cells being nodes in the order of the steps, or [b moves 0].
    """
    front = new_front(grid)
    for b in range(lo, hi):
        n, m = grid.sizes[b, 0], grid.sizes[b, 1]
        start(front)
        first, last = lanes_at(0, n, m, grid.slope)
        cell = last - first + 1
        if shares.shape[2] > 0:
            shares[b, :, :cell] = 0
        steps = n + grid.slope * m
        for s in range(1, steps + 1):
            first, last = lanes_at(s, n, m, grid.slope)
            weigh(grid, b, s, front, first, last)
            step(grid, s, front, first, last, cell, shares[b])
            cell += last - first + 1
        log_z[b] = finish(grid, front, steps, m, ends[b])
