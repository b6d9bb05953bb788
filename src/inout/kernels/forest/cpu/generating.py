"""E[exp(z . F)] of a forest's items and its gradient on the CPU, one pass over the edges each.

A function of z is a row of numbers: the coefficients of a truncated power series, or its values at
given points (`pointwise`), or a power series in some variables at each point of the others. An
item's row is x[h] = sum of share * exp(z . difference) * product of the tails' rows, over its
edges. The differences are those between the edges' and their head's means, so that rows hold
central moments, and conditional expectations of what is below an item never cancel. Items whose
row is 1 (`plain`: F is constant below them) have none, and cost nothing.

Rows stand one after another in flat arrays; offsets are unsigned, which spares the compiler the
check for indices from the end and lets loops over lanes become vector instructions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.limits import FOREST_NOTHING

# What lets the compiler fuse a multiplication and an addition.
FUSED = {"contract"}
SUMMED = {"contract", "reassoc"}  # in any order, too
# Rows behind those of the items: the function 1 and three products.
ROOM = 4


class Arithmetic(NamedTuple):
    """Lanes as the passes want them."""

    # Products of power series in runs (i, first, target, count): lane i of a factor meets lanes
    # first, first + 1, ... of the other and gives lanes target, target + 1, ... of the product.
    runs: NDArray[np.uint64]  # [m 4]
    back: NDArray[np.uint64]  # [m 4], adjoints: the product's lanes give those of the other factor
    shape: NDArray[np.int64]  # [k - j], of truncated series
    inverses: NDArray[np.float64]  # [n]: 1, 1/2, 1/3, ...
    points: NDArray[Any]  # [j p], the first is 0; a series at each
    pointwise: bool
    size: np.uint64  # l


class Exponents(NamedTuple):
    """What the passes put into exp(z . F), of edges and of items, and how edges are weighted."""

    shares: NDArray[np.float64]  # [e]
    moves: NDArray[np.bool_]  # [e], whether a difference is not 0
    differences: NDArray[Any]  # [e k]
    has_own: NDArray[np.bool_]  # [v], whether an item has values of its own
    own: NDArray[Any]  # [v k], which multiply its row


class Derivative(NamedTuple):
    """z_k x of functions x: lane j goes into lane steps[k, j], times factors[k, j]."""

    steps: NDArray[np.uint64]  # [k l]
    factors: NDArray[Any]  # [k l]


@compiled(error_model="numpy")
def means(forest, mantissas, shares, values, grids, shift):
    """(high [v q], low [v q], differences [e q], moves [e], plain [v]) of values [v q].

    The mean of F below an item is high + low, where `high` is a multiple of `grids` [q]: sums and
    differences of large means are exact, whatever the depth. `differences` are the edges' means
    (own value of the head and means of the tails) minus their head's; `moves`: is one not 0.

    `shift` moves the means of items that are not plain by an irregular pattern.
    """
    num_axioms, edge_offsets, tail_offsets, tails = forest
    num_items, size = values.shape
    num_edges = tail_offsets.shape[0] - 1
    high, low = np.zeros((num_items, size)), np.zeros((num_items, size))
    differences = np.zeros((num_edges, size))
    moves, plain = np.zeros(num_edges, np.bool_), np.ones(num_items, np.bool_)
    for i in range(num_axioms):
        for k in range(size):
            high[i, k] = np.rint(values[i, k] / grids[k]) * grids[k]
            low[i, k] = values[i, k] - high[i, k]
    pivot_high, pivot_low, mean = np.empty(size), np.empty(size), np.empty(size)
    for h in range(num_axioms, num_items):
        if mantissas[h] == 0.0:
            continue
        is_first = True
        mean[:] = 0.0
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            if shares[e] == 0.0:
                continue
            for k in range(size):
                sum_high, sum_low = 0.0, 0.0
                for t in range(tail_offsets[e], tail_offsets[e + 1]):
                    sum_high += high[tails[t], k]
                    sum_low += low[tails[t], k]
                if is_first:
                    pivot_high[k], pivot_low[k] = sum_high, sum_low
                difference = (sum_high - pivot_high[k]) + (sum_low - pivot_low[k])
                if abs(difference) <= FOREST_NOTHING * grids[k]:
                    difference = 0.0
                else:
                    plain[h] = False
                differences[e, k] = difference
                mean[k] += shares[e] * difference
            for t in range(tail_offsets[e], tail_offsets[e + 1]):
                plain[h] = plain[h] and plain[tails[t]]
            is_first = False
        for k in range(size):
            own = values[h, k] + pivot_low[k]
            near = own + mean[k]
            if not plain[h]:
                near += shift * np.cos(1.0 + 7.0 * (h * size + k))
            step = np.rint(near / grids[k]) * grids[k]
            high[h, k], low[h, k] = pivot_high[k] + step, near - step
            rest = (own - step) - low[h, k]
            for e in range(edge_offsets[h], edge_offsets[h + 1]):
                if shares[e] != 0.0:
                    differences[e, k] += rest
                    moves[e] = moves[e] or differences[e, k] != 0.0
    return high, low, differences, moves, plain


@compiled(error_model="numpy")
def without_values(forest, shares, empty):
    """Whether no item of any derivation of an item has a value [v]; `empty` [v]: of the item."""
    num_axioms, edge_offsets, tail_offsets, tails = forest
    result = empty.copy()
    for h in range(num_axioms, empty.shape[0]):
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            if shares[e] != 0.0:
                for t in range(tail_offsets[e], tail_offsets[e + 1]):
                    result[h] = result[h] and result[tails[t]]
    return result


@inner(error_model="numpy", fastmath=FUSED)
def exponential(values, i, shape, inverses, points, out, to):
    """out[to:] = exp(z . values[i]): at each point of the first variables a series in the rest."""
    at_points = points.shape[0]
    out[to] = 1.0
    size = 1
    for k in range(shape.shape[0]):
        # Backwards, so that what is still needed is not written over.
        for j in range(size - 1, -1, -1):
            power = out[to + np.uint64(j)]
            at = to + np.uint64(j * shape[k])
            for degree in range(shape[k]):
                out[at + np.uint64(degree)] = power
                power = power * values[i, at_points + k] * inverses[degree]
        size *= shape[k]
    for p in range(1, points.shape[1]):  # the first is 0
        exponent = points[0, p] * values[i, 0]
        for k in range(1, at_points):
            exponent += points[k, p] * values[i, k]
        factor = np.exp(exponent)
        for j in range(size):
            out[to + np.uint64(p * size + j)] = factor * out[to + np.uint64(j)]


@inner(error_model="numpy")
def fill(value, size, out, to):
    """out[to:] = value."""
    for j in range(size):
        out[to + j] = value


@inner(error_model="numpy", fastmath=FUSED)
def add_scaled(scale, a, at, size, out, to):
    """out[to:] += scale * a[at:]."""
    for j in range(size):
        out[to + j] += scale * a[at + j]


@inner(error_model="numpy", fastmath=FUSED)
def add_product(scale, x, a, out, b, to, size, runs, pointwise):
    """out[to:] += scale * x[a:] * out[b:]; for power series, `runs` are those of `Arithmetic`."""
    if pointwise:
        for j in range(size):
            out[to + j] += scale * x[a + j] * out[b + j]
        return
    for r in range(runs.shape[0]):
        factor = scale * x[a + runs[r, 0]]
        if factor != 0.0:
            source, target = b + runs[r, 1], to + runs[r, 2]
            for j in range(runs[r, 3]):
                out[target + j] += factor * out[source + j]


@inner(error_model="numpy", fastmath=SUMMED)
def add_dots(scale, adjoints, g, x, a, steps, factors, size, out):
    """out[0] += scale * adjoints[g:] . x[a:], and out[1 + k] the same with z_k x."""
    total = out[0]
    for j in range(size):
        total += scale * adjoints[g + j] * x[a + j]
    out[0] = total
    for k in range(steps.shape[0]):
        total = out[1 + k]
        for j in range(size):
            total += scale * adjoints[g + steps[k, j]] * (factors[k, j] * x[a + j])
        out[1 + k] = total


@compiled(error_model="numpy")
def forward(forest, exponents, lanes, rows, x, one):
    """Fills the rows x of the items that have one (`rows` [v], -1: none).

    At x[one:] stands the function 1, and behind it is room for three more.
    """
    num_axioms, edge_offsets, tail_offsets, tails = forest
    shares, moves, differences, has_own, own = exponents
    runs, _, shape, inverses, points, pointwise, size = lanes
    power, spare, other = one + size, one + size + size, one + size + size + size
    for h in range(rows.shape[0]):
        if rows[h] < 0:
            continue
        to = np.uint64(rows[h]) * size
        fill(0.0, size, x, to)
        if h < num_axioms:
            add_scaled(1.0, x, one, size, x, to)
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            if shares[e] == 0.0:
                continue
            # Two factors wait, because the last product goes into the row directly.
            a, b, waiting = one, one, 0
            if moves[e]:
                exponential(differences, e, shape, inverses, points, x, power)
                a, waiting = power, 1
            for t in range(tail_offsets[e], tail_offsets[e + 1]):
                row = rows[tails[t]]
                if row < 0:
                    continue
                if waiting == 2:
                    fill(0.0, size, x, spare)
                    add_product(1.0, x, a, x, b, spare, size, runs, pointwise)
                    a, waiting = spare, 1
                    spare, other = other, spare
                if waiting == 0:
                    a = np.uint64(row) * size
                else:
                    b = np.uint64(row) * size
                waiting += 1
            if waiting < 2:
                add_scaled(shares[e], x, a, size, x, to)
            else:
                add_product(shares[e], x, a, x, b, to, size, runs, pointwise)
        if has_own[h]:
            exponential(own, h, shape, inverses, points, x, power)
            fill(0.0, size, x, spare)
            add_product(1.0, x, power, x, to, spare, size, runs, pointwise)
            fill(0.0, size, x, to)
            add_scaled(1.0, x, spare, size, x, to)


@inner(error_model="numpy")
def share_among_tails(x, found, number, prefixes, lanes, adjoints, first, second):
    """Adds to the adjoints at found[1:number] from that of the product of all, at `first`.

    Returns where the adjoint of found[0] stands then, and the other place. Behind x[prefixes:],
    the i-th row is the product of the first i + 1 factors.
    """
    runs, back, pointwise, size = lanes.runs, lanes.back, lanes.pointwise, lanes.size
    for i in range(1, number - 1):
        left = prefixes + np.uint64(i - 1) * size if i > 1 else found[0]
        to = prefixes + np.uint64(i) * size
        fill(0.0, size, x, to)
        add_product(1.0, x, left, x, found[i], to, size, runs, pointwise)
    for i in range(number - 1, 0, -1):
        left = prefixes + np.uint64(i - 1) * size if i > 1 else found[0]
        add_product(1.0, x, left, adjoints, first, found[i], size, back, pointwise)
        fill(0.0, size, adjoints, second)
        add_product(1.0, x, found[i], adjoints, first, second, size, back, pointwise)
        first, second = second, first
    return first, second


@compiled(error_model="numpy")
def backward(
    forest, exponents, lanes, rows, x, one, derivative, adjoints, counts, reached, found
):  # fmt: skip
    """Adds to counts [v 1+k] those of all items, given what the roots have, and their adjoints.

    counts[i, 0] is the derivative in the log-weight of item i, counts[i, 1 + k] that in its k-th
    value. Both are sums over the edges that use the item of numbers that belong to the edge, so
    only items with a row need `adjoints`. `reached`: which items have any; the roots at first.

    Room: two rows at the end of the adjoints; behind the rows of `forward` in x, a row for each
    tail of an edge; found [2 n], a number for each tail and two more.
    """
    num_axioms, edge_offsets, tail_offsets, tails = forest
    shares, moves, differences, has_own, own = exponents
    _, back, shape, inverses, points, pointwise, size = lanes
    power, own_power, prefixes = one + size, one + size + size, one + np.uint64(ROOM) * size
    steps, factors = derivative
    second = np.uint64(adjoints.shape[0]) - size
    first = second - size
    dots = np.zeros(counts.shape[1], x.dtype)
    for h in range(rows.shape[0] - 1, num_axioms - 1, -1):
        if not reached[h]:
            continue
        has_row = rows[h] >= 0
        here = np.uint64(max(rows[h], 0)) * size
        if has_row and has_own[h]:
            exponential(own, h, shape, inverses, points, x, own_power)
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            if shares[e] == 0.0:
                continue
            for k in range(dots.shape[0]):
                dots[k] = 0.0 if has_row else shares[e] * counts[h, k]
            # Factors without adjoints, in found[0], and those with, in found[1].
            fixed, number = 0, 0
            if has_row and has_own[h]:
                found[0, fixed] = own_power
                fixed += 1
            if has_row and moves[e]:
                exponential(differences, e, shape, inverses, points, x, power)
                found[0, fixed] = power
                fixed += 1
            for t in range(tail_offsets[e], tail_offsets[e + 1]):
                reached[tails[t]] = True
                if rows[tails[t]] < 0:
                    continue
                at = np.uint64(rows[tails[t]]) * size
                if tails[t] < num_axioms:
                    found[0, fixed] = at
                    fixed += 1
                else:
                    found[1, number] = at
                    number += 1
            if has_row and number == 0 and fixed < 2:
                factor = found[0, 0] if fixed == 1 else one
                add_dots(shares[e], adjoints, here, x, factor, steps, factors, size, dots)
            elif has_row:
                fill(0.0, size, adjoints, first)
                add_scaled(shares[e], adjoints, here, size, adjoints, first)
                for i in range(fixed):
                    fill(0.0, size, adjoints, second)
                    add_product(1.0, x, found[0, i], adjoints, first, second, size, back, pointwise)
                    first, second = second, first
                first, second = share_among_tails(
                    x, found[1], number, prefixes, lanes, adjoints, first, second
                )
                factor = one
                if number > 0:
                    factor = found[1, 0]
                    add_scaled(1.0, adjoints, first, size, adjoints, factor)
                add_dots(1.0, adjoints, first, x, factor, steps, factors, size, dots)
            for t in range(tail_offsets[e], tail_offsets[e + 1]):
                for k in range(dots.shape[0]):
                    counts[tails[t], k] += dots[k]
