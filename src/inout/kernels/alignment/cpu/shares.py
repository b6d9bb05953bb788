"""The sums over all paths: log Z, and the share of each move in the node it leads to.

A share is the probability of a move given that the path has its target, which what all moves to the
target share does not change. Everything else follows from the shares by multiplications alone:
counts, covariances, samples, moments. Numbers have
exponents of their own (`arithmetic.py`), so nothing is ever lost, and no other code is needed
where potentials are far apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.alignment.cpu import grid as grids
from inout.kernels.alignment.cpu.arithmetic import exponential, logarithm, normalised, power
from inout.kernels.alignment.cpu.grid import COLUMNS, OTHER, OWN, SOURCE, STEPS, TARGET, Array


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
def exponentiate(logs, weights, powers):
    """Weights and powers of exp(logs)."""
    for k in range(logs.shape[0]):
        weights[k], powers[k] = exponential(logs[k])


@inner(forceinline=True)
def weigh(grid, b, s, n, m, front, count):
    """Weights of all planes at the lanes of a step."""
    raw = front.raw[:count]
    for p in range(grid.offsets.shape[0]):
        grids.read(grid.planes[p][b], grid.offsets[p], s, n, m, grid.slope, -np.inf, raw)
        exponentiate(raw, front.weights[p], front.powers[p])


@inner
def multiply(weights, powers, terms, sizes):
    """Multiplies the terms by weights."""
    for k in range(terms.shape[0]):
        terms[k] *= weights[k]
        sizes[k] += powers[k]


@inner
def raise_top(sizes, top):
    """top = max(top, sizes)."""
    for k in range(top.shape[0]):
        top[k] = sizes[k] if sizes[k] > top[k] else top[k]


@inner
def add(values, sizes, top, total, terms):
    """Brings values to the exponents `top`, as terms, and adds them to the total."""
    for k in range(top.shape[0]):
        term = values[k] * power(sizes[k] - top[k])
        terms[k] = term
        total[k] += term


@inner
def settle(total, top, mantissas, exponents):
    """The values of nodes."""
    for k in range(total.shape[0]):
        mantissas[k], exponents[k] = normalised(total[k], top[k])


@inner
def share(terms, total, shares):
    """The shares of a move; exactly 1 where there is no other."""
    for k in range(total.shape[0]):
        shares[k] = terms[k] / total[k] if total[k] > 0 else 0.0


@inner(forceinline=True)
def gather(moves, s, front, begin, end, lo, hi):
    """Sums moves begin:end, without the plane that they share: top, total, and their terms."""
    count = hi - lo + 1
    top, total = front.top[:count], front.total[:count]
    grids.fill(-np.inf, top)
    grids.fill(0.0, total)
    for number in range(begin, end):
        own = moves[number]
        row, source, first = (s - own[STEPS]) % 3, own[SOURCE], lo + 1 - own[COLUMNS]
        exponents = front.exponents[row, source, first : first + count]
        if own[OWN] >= 0:
            terms, sizes = front.terms[number, :count], front.sizes[number, :count]
            grids.assign(front.mantissas[row, source, first : first + count], terms)
            grids.assign(exponents, sizes)
            multiply(front.weights[own[OWN]], front.powers[own[OWN]], terms, sizes)
            if own[OTHER] >= 0:
                multiply(front.weights[own[OTHER]], front.powers[own[OTHER]], terms, sizes)
            raise_top(sizes, top)
        else:
            raise_top(exponents, top)
    for number in range(begin, end):
        own = moves[number]
        row, source, first = (s - own[STEPS]) % 3, own[SOURCE], lo + 1 - own[COLUMNS]
        terms = front.terms[number, :count]
        if own[OWN] >= 0:
            add(terms, front.sizes[number], top, total, terms)
        else:
            values = front.mantissas[row, source, first : first + count]
            exponents = front.exponents[row, source, first : first + count]
            add(values, exponents, top, total, terms)


@inner(forceinline=True)
def step(grid, s, front, lo, hi, cell, shares):
    """The nodes of a step from those before; their moves' shares [moves cells], if wanted."""
    moves, begin, count = grid.moves, 0, hi - lo + 1
    row, top, total = s % 3, front.top[:count], front.total[:count]
    for layer in range(grid.layers):
        end = begin
        while end < moves.shape[0] and moves[end, TARGET] == layer:
            end += 1
        gather(moves, s, front, begin, end, lo, hi)
        if shares.shape[1] > 0:
            for number in range(begin, end):
                share(front.terms[number], total, shares[number, cell : cell + count])
        if grid.common[layer] >= 0:
            p = grid.common[layer]
            multiply(front.weights[p], front.powers[p], total, top)
        values, exponents = front.mantissas[row, layer], front.exponents[row, layer]
        settle(total, top, values[lo + 1 : hi + 2], exponents[lo + 1 : hi + 2])
        values[hi + 2], exponents[hi + 2] = 0.0, -np.inf
        begin = end


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
        first, last = grids.lanes_at(0, n, m, grid.slope)
        cell = last - first + 1
        if shares.shape[2] > 0:
            shares[b, :, :cell] = 0
        steps = n + grid.slope * m
        for s in range(1, steps + 1):
            first, last = grids.lanes_at(s, n, m, grid.slope)
            weigh(grid, b, s, n, m, front, last - first + 1)
            step(grid, s, front, first, last, cell, shares[b])
            cell += last - first + 1
        log_z[b] = finish(grid, front, steps, m, ends[b])
