"""log Z and expected counts in linear space: one exponent for all nodes of a step.

Numbers too small beside the largest of their step are raised on the way forward, and dropped on the
way back (or when going forward again, if no counts are wanted). So the first Z is never too small,
and the second never too large: where they agree, nothing is wrong with Z that counts, nor with any
expected count. Elements where they do not are for `shares.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.alignment.cpu import grid as grids
from inout.kernels.alignment.cpu.arithmetic import exponential, logarithm, power
from inout.kernels.alignment.cpu.grid import COLUMNS, FIRST, OWN, SECOND, SOURCE, STEPS, TARGET
from inout.kernels.limits import ALIGNMENT_FACTOR, ALIGNMENT_NODE, ALIGNMENT_WEIGHT
from inout.kernels.math.cpu.extremes import largest

# Loops run over so many lanes at a time; those behind the last are dead.
TOGETHER = 16
WIDTH, BIAS = np.int64(52), np.int64(1023)
LOW_FACTOR = 2.0**ALIGNMENT_FACTOR


class Kept(NamedTuple):
    """What is kept of an element's steps, of all or of three, and scratch memory."""

    nodes: grids.Array  # [rows layers lanes], lane j at j + 1; at 0 is 0
    weights: grids.Array  # [rows planes lanes], lane j at j
    factors: grids.Array  # [rows moves], what a move brings is to be multiplied by this
    scales: grids.Array  # [3], exponents of the nodes of three steps
    peaks: grids.Array  # [3], and of the largest of them
    tops: grids.Array  # [planes + 1], exponents of the weights; number -1, the last, is no plane
    constant: grids.Array  # [planes], 1 if the weights of all steps are those in row 0
    back: grids.Array  # [3 layers lanes], lane j at j + 1
    raw: grids.Array  # [lanes]
    total: grids.Array  # [lanes]
    uses: grids.Array  # [planes lanes]


class Low(NamedTuple):
    """What numbers become that are too small: not smaller, or 0."""

    node: float
    weight: float
    factor: float


@inner(returns_arrays=True)
def new_kept(grid, rows):
    """Room for the largest element."""
    lanes, planes = grid.sizes[:, 1].max() + 4 + TOGETHER, grid.offsets.shape[0]
    constant = np.zeros(planes, np.int64)
    for p in range(planes):
        offset = grid.offsets[p]
        constant[p] = grid.slope == 0 and offset[4] == 0 and offset[0] == 0 and offset[2] > 0
    return Kept(
        np.empty((rows, grid.layers, lanes)), np.empty((rows, planes, lanes)),
        np.empty((rows, grid.moves.shape[0])), np.zeros(3), np.zeros(3), np.zeros(planes + 1),
        constant, np.zeros((3, grid.layers, lanes)), np.zeros(lanes), np.zeros(lanes),
        np.zeros((planes, lanes)),
    )  # fmt: skip


@inner(forceinline=True)
def whole(count):
    """So many lanes and at least one more: a dead one, which the next steps may read."""
    return (count + TOGETHER) // TOGETHER * TOGETHER


@inner
def exponentiate(logs, top, low, weights):
    """weights = exp(logs) / 2^top; `low` where that is too small."""
    for k in range(weights.shape[0]):
        p, e = exponential(logs[k])
        weight = p * power(e - top)
        weights[k] = weight if weight > ALIGNMENT_WEIGHT else (low if p > 0.0 else 0.0)


@inner(forceinline=True)
def weigh(grid, b, s, row, low, kept):
    """Weights of all planes at the lanes of a step, and their exponents."""
    n, m, slope = grid.sizes[b, 0], grid.sizes[b, 1], grid.slope
    first, last = grids.lanes_at(s, n, m, slope)
    count = last - first + 1
    lanes = whole(count)
    logs = kept.raw[:lanes]
    for p in range(grid.offsets.shape[0]):
        if kept.constant[p] > 0:
            if s > 1:
                continue
            own = kept.weights[0, p, :lanes]
        else:
            own = kept.weights[row, p, :lanes]
        offset = grid.offsets[p]
        low_lane, high_lane = grids.reach(offset, s, n, m, slope)
        if slope + offset[5] == 0 and (low_lane, high_lane) == (first, last):  # one number for all
            mantissa, kept.tops[p] = exponential(grid.planes[p][b, (s - offset[0]) * offset[4]])
            grids.fill(mantissa, own)
            continue
        grids.read(grid.planes[p][b], offset, s, n, m, slope, -np.inf, logs[:count])
        grids.fill(-np.inf, logs[count:])
        top = largest(logs)
        _, shift = exponential(top)
        kept.tops[p] = shift if top > np.finfo(np.float64).min else -np.inf
        exponentiate(logs, shift, low, own)


@inner(forceinline=True)
def measure(moves, s, low, kept, factors):
    """The exponent of a step; and the factors of its moves, `low` where they are too small."""
    scale = -np.inf
    for k in range(moves.shape[0]):
        if s >= moves[k, STEPS]:
            weight = kept.tops[moves[k, FIRST]] + kept.tops[moves[k, SECOND]]
            scale = max(scale, kept.peaks[(s - moves[k, STEPS]) % 3] + weight)
    scale = scale if scale > -np.inf else 0.0
    for k in range(moves.shape[0]):
        own = -np.inf
        # Nothing comes from a dead step; its exponent, 0, may be far above: power is for e <= 0.
        if s >= moves[k, STEPS] and kept.peaks[(s - moves[k, STEPS]) % 3] > -np.inf:
            weight = kept.tops[moves[k, FIRST]] + kept.tops[moves[k, SECOND]]
            own = kept.scales[(s - moves[k, STEPS]) % 3] + weight - scale
        small = low if own > -np.inf else 0.0
        factors[k] = power(own) if own > ALIGNMENT_FACTOR else small
    return scale


@inner
def add(values, factor, total):
    """total += values * factor."""
    for k in range(total.shape[0]):
        total[k] += values[k] * factor


@inner
def add_weighed(values, weights, factor, total):
    """total += values * weights * factor."""
    for k in range(total.shape[0]):
        total[k] += values[k] * weights[k] * factor


@inner
def multiply(weights, total):
    """total *= weights."""
    for k in range(total.shape[0]):
        total[k] *= weights[k]


@inner
def settle(total, low, nodes):
    """The values of nodes, `low` where they are too small; the bits of the largest."""
    top = np.int64(0)
    for k in range(nodes.shape[0]):
        value = total[k]
        value = value if value > ALIGNMENT_NODE else (low if value > 0.0 else 0.0)
        nodes[k] = value
        bits = np.float64(value).view(np.int64)
        top = bits if bits > top else top
    return top


@inner(forceinline=True)
def step(grid, s, first, count, row, low, kept):
    """The nodes of a step from those before."""
    moves, rows, lanes = grid.moves, kept.nodes.shape[0], whole(count)
    factors = kept.factors[row]
    scale = measure(moves, s, low.factor, kept, factors)
    one, two = row - 1 if row > 0 else rows - 1, row - 2 if row > 1 else rows + row - 2
    peak, number = np.int64(0), 0
    total = kept.total[:lanes]
    for layer in range(grid.layers):
        grids.fill(0.0, total)
        while number < moves.shape[0] and moves[number, TARGET] == layer:
            factor, own = factors[number], moves[number, OWN]
            source, lane = moves[number, SOURCE], first + 1 - moves[number, COLUMNS]
            before = one if moves[number, STEPS] == 1 else two
            number += 1
            if factor > 0.0:
                values = kept.nodes[before, source, lane : lane + lanes]
                if own >= 0:
                    weights = kept.weights[0 if kept.constant[own] > 0 else row, own, :lanes]
                    add_weighed(values, weights, factor, total)
                else:
                    add(values, factor, total)
        p = grid.common[layer]
        if p >= 0:
            multiply(kept.weights[0 if kept.constant[p] > 0 else row, p, :lanes], total)
        grids.fill(0.0, total[count:])
        kept.nodes[row, layer, 0] = 0.0
        top = settle(total, low.node, kept.nodes[row, layer, first + 1 : first + 1 + lanes])
        peak = max(peak, top)
    kept.scales[s % 3] = scale
    kept.peaks[s % 3] = scale + float((peak >> WIDTH) - BIAS) if peak > 0 else -np.inf


@inner
def forward(grid, b, low, kept):
    """All nodes; the sum of the last ones, and its exponent."""
    n, m = grid.sizes[b, 0], grid.sizes[b, 1]
    rows = kept.nodes.shape[0]
    for layer in range(grid.layers):
        grids.fill(0.0, kept.nodes[0, layer])
    kept.nodes[0, 0, 1] = 1.0
    kept.scales[0] = kept.peaks[0] = 0.0
    steps, row = n + grid.slope * m, 0
    for s in range(1, steps + 1):
        row = row + 1 if row + 1 < rows else 0
        first, last = grids.lanes_at(s, n, m, grid.slope)
        weigh(grid, b, s, row, low.weight, kept)
        step(grid, s, first, last - first + 1, row, low, kept)
    total = 0.0
    for layer in grid.last:
        total += kept.nodes[row, layer, m + 1]
    return total, kept.scales[steps % 3]


@inner
def without_raised(values, weights, out):
    """out = values * weights, without the weights that were raised."""
    for k in range(out.shape[0]):
        out[k] = values[k] * weights[k] if weights[k] > ALIGNMENT_WEIGHT else 0.0


@inner
def drop(nodes, values):
    """Sets values to 0 where the nodes are dead, or they themselves too small."""
    for k in range(values.shape[0]):
        values[k] = values[k] if nodes[k] > 0.0 and values[k] > ALIGNMENT_NODE else 0.0


@inner(forceinline=True)
def step_back(grid, s, first, count, kept):
    """Brings what is behind the nodes of a step to those before; and the uses of planes."""
    moves = grid.moves
    lanes, number = whole(count), 0
    for p in range(grid.offsets.shape[0]):
        grids.fill(0.0, kept.uses[p, :lanes])
    for layer in range(grid.layers):
        behind = kept.back[s % 3, layer, first + 1 : first + 1 + lanes]
        grids.fill(0.0, behind[count:])
        nodes = kept.nodes[s, layer, first + 1 : first + 1 + lanes]
        drop(nodes, behind)
        p = grid.common[layer]
        if p >= 0:
            add_weighed(nodes, behind, 1.0, kept.uses[p, :lanes])
            weights = kept.weights[0 if kept.constant[p] > 0 else s, p, :lanes]
            without_raised(behind, weights, behind)
        while number < moves.shape[0] and moves[number, TARGET] == layer:
            move, factor = moves[number], kept.factors[s, number]
            number += 1
            if factor <= LOW_FACTOR:
                continue
            lane, source, own = first + 1 - move[COLUMNS], s - move[STEPS], move[OWN]
            before = kept.back[source % 3, move[SOURCE], lane : lane + lanes]
            values = behind
            if own >= 0:
                values = kept.total[:lanes]
                weights = kept.weights[0 if kept.constant[own] > 0 else s, own, :lanes]
                without_raised(behind, weights, values)
            add(values, factor, before)
            nodes = kept.nodes[source, move[SOURCE], lane : lane + lanes]
            for column in range(FIRST, SECOND + 1):
                q = move[column]
                if q >= 0 and q != p:
                    add_weighed(nodes, values, factor, kept.uses[q, :lanes])
        grids.fill(0.0, kept.back[s % 3, layer])


@inner
def backward(grid, b, total, kept, counts):
    """Adds expected counts; the share of Z, as the forward pass has it, that comes back."""
    n, m = grid.sizes[b, 0], grid.sizes[b, 1]
    steps = n + grid.slope * m
    for k in range(3):
        for layer in range(grid.layers):
            grids.fill(0.0, kept.back[k, layer])
    for layer in grid.last:
        kept.back[steps % 3, layer, m + 1] = 1.0 / total
    for s in range(steps, 0, -1):
        first, last = grids.lanes_at(s, n, m, grid.slope)
        step_back(grid, s, first, last - first + 1, kept)
        for p in range(grid.offsets.shape[0]):
            values = kept.uses[p, : last - first + 1]
            grids.write(values, grid.offsets[p], s, n, m, grid.slope, counts[p][b])
    return kept.back[0, 0, 1]


@compiled
def solve(grid, lo, hi, slack, wanted, log_z, counts):
    """Fills log_z [b], NaN for elements that need shares; adds to the counts if they are wanted.

    Counts are tables like the planes; those of elements with NaN may be wrong.
    """
    steps = 0
    for b in range(lo, hi):
        steps = max(steps, grid.sizes[b, 0] + grid.slope * grid.sizes[b, 1])
    kept = new_kept(grid, max(steps + 1 if wanted else 0, 3))
    for b in range(lo, hi):
        back = 1.0
        for way in range(1 if wanted else 2):
            low = Low(0.0, 0.0, 0.0)
            if way == 0:
                low = Low(ALIGNMENT_NODE, ALIGNMENT_WEIGHT, LOW_FACTOR)
            total, scale = forward(grid, b, low, kept)
            if way == 0:
                log_z[b] = logarithm(total, scale)
            elif log_z[b] > -np.inf:
                back = math.exp(logarithm(total, scale) - log_z[b])
        if wanted and log_z[b] > -np.inf:
            back = backward(grid, b, total, kept, counts)
        if not abs(1.0 - back) <= slack:
            log_z[b] = np.nan
