"""Expected counts of moves, from their shares; and how these change in a direction.

Backwards: a node's count is divided among its moves by their shares, and each move gives its part
to its source. Covariances with U, a sum over moves, are sums of deviations: with `means` [layers
cells], E[U so far | node], a move's count changes by its share of the change of its target, and by
count * (E[U so far | move] - E[U so far | target]).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.alignment.cpu import grid as grids
from inout.kernels.alignment.cpu.grid import COLUMNS, FIRST, SECOND, SOURCE, STEPS, TARGET, Array


class Counts(NamedTuple):
    """Scratch memory: nodes of three steps, and one move's numbers."""

    nodes: Array  # [3 layers lanes]
    changes: Array
    own: Array  # [lanes]
    moved: Array
    value: Array
    raw: Array


@inner(returns_arrays=True)
def new_counts(grid):
    """Room for the largest element."""
    lanes = grid.sizes[:, 1].max() + 3
    nodes = (3, grid.layers, lanes)
    return Counts(
        np.zeros(nodes), np.zeros(nodes),
        np.empty(lanes), np.empty(lanes), np.empty(lanes), np.empty(lanes),
    )  # fmt: skip


@inner
def clear(nodes):
    """Sets nodes [layers lanes] to 0."""
    for layer in range(nodes.shape[0]):
        grids.fill(0.0, nodes[layer])


@inner
def part(shares, nodes, own):
    """own = shares of the nodes' numbers."""
    for k in range(own.shape[0]):
        own[k] = shares[k] * nodes[k]


@inner(returns_arrays=True)
def sources_of(nodes, move, s, lo, hi):
    """The sources of a move to the lanes of step s, in nodes [3 layers lanes]."""
    first = lo + 1 - move[COLUMNS]
    return nodes[(s - move[STEPS]) % 3, move[SOURCE], first : first + hi - lo + 1]


@inner(forceinline=True)
def write_all(tables, grid, move, b, s, n, m, values):
    """Adds a move's numbers to those of its planes."""
    for column in range(FIRST, SECOND + 1):
        p = move[column]
        if p >= 0:
            grids.write(values, grid.offsets[p], s, n, m, grid.slope, tables[p][b])


@compiled
def backward(grid, lo, hi, weights, ends, shares, gradients):
    """Adds weights[b] times the expected counts to the gradients, tables like the planes."""
    counts = new_counts(grid)
    nodes = counts.nodes
    for b in range(lo, hi):
        n, m = grid.sizes[b, 0], grid.sizes[b, 1]
        steps = n + grid.slope * m
        for k in range(3):
            clear(nodes[k])
        for layer in range(grid.layers):
            nodes[steps % 3, layer, m + 1] = weights[b] * ends[b, layer]
        cell = grids.first_cell(steps + 1, n, m, grid.slope)
        for s in range(steps, 0, -1):
            first, last = grids.lanes_at(s, n, m, grid.slope)
            count = last - first + 1
            cell -= count
            own = counts.own[:count]
            for k in range(grid.moves.shape[0]):
                move = grid.moves[k]
                here = nodes[s % 3, move[TARGET], first + 1 : last + 2]
                part(shares[b, k, cell : cell + count], here, own)
                grids.increase(own, sources_of(nodes, move, s, first, last))
                write_all(gradients, grid, move, b, s, n, m, own)
            clear(nodes[s % 3])


@inner(forceinline=True)
def value_of(tables, grid, move, b, s, n, m, raw, value):
    """Sets value [lanes of the step] to the sum of a move's entries in tables like the planes."""
    grids.fill(0.0, value)
    for column in range(FIRST, SECOND + 1):
        p = move[column]
        if p >= 0:
            grids.read(tables[p][b], grid.offsets[p], s, n, m, grid.slope, 0.0, raw)
            grids.increase(raw, value)


@inner
def mean(shares, before, value, means):
    """Adds a move's share of the means of its targets."""
    for k in range(means.shape[0]):
        means[k] += shares[k] * (before[k] + value[k]) if shares[k] > 0 else 0.0


@inner
def go_forward(grid, b, shares, directions, counts, means):
    """Fills means [layers cells] of one element; counts.nodes is scratch."""
    n, m = grid.sizes[b, 0], grid.sizes[b, 1]
    nodes = counts.nodes
    for k in range(3):
        clear(nodes[k])
    for s in range(n + grid.slope * m + 1):
        first, last = grids.lanes_at(s, n, m, grid.slope)
        cell, count = grids.first_cell(s, n, m, grid.slope), last - first + 1
        clear(nodes[s % 3])
        raw, value = counts.raw[:count], counts.value[:count]
        for k in range(grid.moves.shape[0] if s > 0 else 0):
            move = grid.moves[k]
            value_of(directions, grid, move, b, s, n, m, raw, value)
            here = nodes[s % 3, move[TARGET], first + 1 : last + 2]
            own = shares[k, cell : cell + count]
            mean(own, sources_of(nodes, move, s, first, last), value, here)
        for layer in range(grid.layers):
            here = nodes[s % 3, layer, first + 1 : last + 2]
            grids.assign(here, means[layer, cell : cell + count])


@inner
def change(shares, value, means, nodes, changes, own, moved):
    """The counts of a move and their changes; `value` is E[U so far | move]."""
    for k in range(own.shape[0]):
        own[k] = shares[k] * nodes[k]
        off = value[k] - means[k]
        moved[k] = shares[k] * (changes[k] + nodes[k] * off) if shares[k] > 0 else 0.0


@inner
def add_source(grid, move, s, n, m, lo, hi, means, value):
    """Adds the means of a move's sources to its values, 0 where there is none."""
    before = s - move[STEPS]
    if before < 0:
        return
    first, last = grids.lanes_at(before, n, m, grid.slope)
    low, high = max(lo, first + move[COLUMNS]), min(hi, last + move[COLUMNS])
    cell = grids.first_cell(before, n, m, grid.slope) + low - move[COLUMNS] - first
    if high >= low:
        grids.increase(
            means[move[SOURCE], cell : cell + high - low + 1], value[low - lo : high - lo + 1]
        )


@compiled
def tangents(grid, lo, hi, weights, ends, shares, directions, expected, results):
    """Fills expected [b], E[U], and adds weights[b] Cov[move, U] to the results.

    U is the sum of the directions, tables like the planes, over the moves of a path.
    """
    counts = new_counts(grid)
    means = np.empty((grid.layers, shares.shape[2]))
    nodes, changes = counts.nodes, counts.changes
    for b in range(lo, hi):
        n, m = grid.sizes[b, 0], grid.sizes[b, 1]
        steps = n + grid.slope * m
        go_forward(grid, b, shares[b], directions, counts, means)
        end = grids.first_cell(steps + 1, n, m, grid.slope) - 1
        expected[b] = 0.0
        for k in range(3):
            clear(nodes[k])
            clear(changes[k])
        for layer in range(grid.layers):
            expected[b] += ends[b, layer] * means[layer, end]
        for layer in range(grid.layers):
            chance = weights[b] * ends[b, layer]
            nodes[steps % 3, layer, m + 1] = chance
            changes[steps % 3, layer, m + 1] = chance * (means[layer, end] - expected[b])
        for s in range(steps, 0, -1):
            first, last = grids.lanes_at(s, n, m, grid.slope)
            cell, count = grids.first_cell(s, n, m, grid.slope), last - first + 1
            raw, value = counts.raw[:count], counts.value[:count]
            own, moved = counts.own[:count], counts.moved[:count]
            for k in range(grid.moves.shape[0]):
                move = grid.moves[k]
                value_of(directions, grid, move, b, s, n, m, raw, value)
                add_source(grid, move, s, n, m, first, last, means, value)
                change(
                    shares[b, k, cell : cell + count], value,
                    means[move[TARGET], cell : cell + count],
                    nodes[s % 3, move[TARGET], first + 1 : last + 2],
                    changes[s % 3, move[TARGET], first + 1 : last + 2], own, moved,
                )  # fmt: skip
                grids.increase(own, sources_of(nodes, move, s, first, last))
                grids.increase(moved, sources_of(changes, move, s, first, last))
                write_all(results, grid, move, b, s, n, m, moved)
            clear(nodes[s % 3])
            clear(changes[s % 3])
