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
from inout.kernels.alignment.cpu.grid import (
    COLUMNS,
    FIRST,
    SECOND,
    SOURCE,
    STEPS,
    TARGET,
    Array,
    first_cell,
    lanes_at,
    read,
    write,
)


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
        for j in range(nodes.shape[1]):
            nodes[layer, j] = 0.0


@inner
def part(shares, cell, nodes, lo, hi, own):
    """own = shares of the nodes' numbers."""
    for j in range(lo + 1, hi + 2):
        own[j] = shares[cell + j - lo - 1] * nodes[j]


@inner
def give(own, columns, lo, hi, nodes):
    """Adds a move's numbers to its sources."""
    for j in range(lo + 1, hi + 2):
        nodes[j - columns] += own[j]


@inner
def write_all(tables, grid, move, b, s, values):
    """Adds a move's numbers to those of its planes."""
    for column in range(FIRST, SECOND + 1):
        if move[column] >= 0:
            write(tables, grid, move[column], b, s, values)


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
        cell = first_cell(steps + 1, n, m, grid.slope)
        for s in range(steps, 0, -1):
            first, last = lanes_at(s, n, m, grid.slope)
            cell -= last - first + 1
            for k in range(grid.moves.shape[0]):
                move = grid.moves[k]
                part(shares[b, k], cell, nodes[s % 3, move[TARGET]], first, last, counts.own)
                source = nodes[(s - move[STEPS]) % 3, move[SOURCE]]
                give(counts.own, move[COLUMNS], first, last, source)
                write_all(gradients, grid, move, b, s, counts.own)
            clear(nodes[s % 3])


@inner
def value_of(tables, grid, move, b, s, lo, hi, counts):
    """Sets counts.value to the sum of a move's entries in tables like the planes."""
    for j in range(lo + 1, hi + 2):
        counts.value[j] = 0.0
    for column in range(FIRST, SECOND + 1):
        if move[column] >= 0:
            read(tables, grid, move[column], b, s, counts.raw, 0.0)
            for j in range(lo + 1, hi + 2):
                counts.value[j] += counts.raw[j]


@inner
def mean(shares, cell, before, columns, lo, hi, value, means):
    """Adds a move's share of the means of its targets."""
    for j in range(lo + 1, hi + 2):
        weight = shares[cell + j - lo - 1]
        means[j] += weight * (before[j - columns] + value[j]) if weight > 0 else 0.0


@inner
def go_forward(grid, b, shares, directions, counts, means):
    """Fills means [layers cells] of one element; counts.nodes is scratch."""
    n, m = grid.sizes[b, 0], grid.sizes[b, 1]
    nodes = counts.nodes
    for k in range(3):
        clear(nodes[k])
    for s in range(n + grid.slope * m + 1):
        first, last = lanes_at(s, n, m, grid.slope)
        cell = first_cell(s, n, m, grid.slope)
        clear(nodes[s % 3])
        for k in range(grid.moves.shape[0] if s > 0 else 0):
            move = grid.moves[k]
            value_of(directions, grid, move, b, s, first, last, counts)
            before = nodes[(s - move[STEPS]) % 3, move[SOURCE]]
            own = nodes[s % 3, move[TARGET]]
            mean(shares[k], cell, before, move[COLUMNS], first, last, counts.value, own)
        for layer in range(grid.layers):
            for j in range(first, last + 1):
                means[layer, cell + j - first] = nodes[s % 3, layer, j + 1]


@inner
def change(grid, move, s, cell, lo, hi, shares, means, counts):
    """counts.own and counts.moved of one move."""
    nodes, changes = counts.nodes[s % 3, move[TARGET]], counts.changes[s % 3, move[TARGET]]
    own, moved, value = counts.own, counts.moved, counts.value
    for j in range(lo + 1, hi + 2):
        weight = shares[cell + j - lo - 1]
        off = value[j] - means[move[TARGET], cell + j - lo - 1]
        own[j] = weight * nodes[j]
        moved[j] = weight * (changes[j] + nodes[j] * off) if weight > 0 else 0.0


@inner
def add_source(grid, move, s, n, m, lo, hi, means, value):
    """Adds the means of a move's sources to its values, 0 where there is none."""
    first, last = lanes_at(s - move[STEPS], n, m, grid.slope)
    cell = first_cell(s - move[STEPS], n, m, grid.slope) - first - move[COLUMNS]
    own = means[move[SOURCE]]
    low, high = max(lo, first + move[COLUMNS]), min(hi, last + move[COLUMNS])
    for j in range(low, high + 1):
        value[j + 1] += own[cell + j]


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
        end = first_cell(steps + 1, n, m, grid.slope) - 1
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
            first, last = lanes_at(s, n, m, grid.slope)
            cell = first_cell(s, n, m, grid.slope)
            for k in range(grid.moves.shape[0]):
                move = grid.moves[k]
                value_of(directions, grid, move, b, s, first, last, counts)
                if s >= move[STEPS]:
                    add_source(grid, move, s, n, m, first, last, means, counts.value)
                change(grid, move, s, cell, first, last, shares[b, k], means, counts)
                row = (s - move[STEPS]) % 3
                give(counts.own, move[COLUMNS], first, last, nodes[row, move[SOURCE]])
                give(counts.moved, move[COLUMNS], first, last, changes[row, move[SOURCE]])
                write_all(results, grid, move, b, s, counts.moved)
            clear(nodes[s % 3])
            clear(changes[s % 3])
