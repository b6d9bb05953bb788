"""Inside, outside and their directional derivative on the CPU, one pass over the edges each.

A value is a pair (m, x) standing for m * 2**(256 x) with 2**-128 <= m < 2**128, or (0, 0).
So edges cost multiplications only (no exp, no log), any magnitude fits, and neighbouring values
nearly always share x, which keeps the rescaling branches cold.

The inside pass also leaves the *share* of every edge in its head, prod(tails) / sum over edges:
the probability of the edge given its head (Eisner 2016, equations 17 and 18). The outside pass
walks the expected counts down instead of the outer weights (algorithm 5 there): each tail of an
edge receives count[head] * share. It needs no values any more, and cannot overflow.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.limits import FOREST_BITS

STEP = FOREST_BITS * math.log(2.0)
# STEP in two parts, the first with 20 spare bits, so that x * STEP_HIGH is exact.
STEP_HIGH = math.floor(STEP * 2.0**24) / 2.0**24
STEP_LOW = (STEP - STEP_HIGH) + FOREST_BITS * 2.3190468138462996e-17  # ln 2 minus its float64
UP, DOWN = 2.0**FOREST_BITS, 2.0**-FOREST_BITS
HIGH, LOW = 2.0 ** (FOREST_BITS // 2), 2.0 ** -(FOREST_BITS // 2)
# A running product is brought back before it leaves these; one more factor still fits.
PRODUCT_HIGH, PRODUCT_LOW = UP * UP, DOWN * DOWN
# Columns of the items in `tangent`, side by side so that a tail costs one cache miss.
LOG_DOT, COUNT, COUNT_DOT = 0, 1, 2


@inner(error_model="numpy")
def normalise(m, x):
    """(m, x) with m brought into [2**-128, 2**128); m >= 0."""
    if m == 0.0:
        return 0.0, 0.0
    while m >= HIGH:
        m *= DOWN
        x += 1.0
    while m < LOW:
        m *= UP
        x -= 1.0
    return m, x


@inner(error_model="numpy")
def add_scaled(m, x, n, y):
    """The sum of two values whose exponents differ."""
    m, x = normalise(m, x)
    n, y = normalise(n, y)
    if m == 0.0 or (n != 0.0 and y > x):
        m, x, n, y = n, y, m, x
    # Three steps apart the smaller is below 2**-512 of the larger: nothing of it is left.
    if n != 0.0 and x - y < 3.0:
        while y < x:
            n *= DOWN
            y += 1.0
        m += n
    return m, x


@inner(error_model="numpy")
def scaled_exp(w):
    """exp(w) as a pair."""
    if w == -np.inf:
        return 0.0, 0.0
    x = np.rint(w / STEP)
    rest = (w - x * STEP_HIGH) - x * STEP_LOW
    # Of a weight such as -1e30 the remainder is rounding noise, which exp would blow up.
    if abs(rest) > STEP:
        rest = 0.0
    return normalise(math.exp(rest), x)


@inner(error_model="numpy")
def product(first, last, tails, places, mantissas, exponents, scaled):
    """The product of the values of tails[first:last]; `scaled`: whether any exponent is not 0."""
    m, x = 1.0, 0.0
    for t in range(first, last):
        i = tails[t] if places is None else places[tails[t]]
        m *= mantissas[i]
        if scaled:
            x += exponents[i]
        if not PRODUCT_LOW <= m <= PRODUCT_HIGH:
            if m == 0.0:
                return 0.0, 0.0
            m, x = normalise(m, x)
    return m, x


@inner(error_model="numpy")
def ordinary(m, x):
    """m * 2**(256 x) as one float, for pairs known to be of ordinary size."""
    while x > 0.0 and 0.0 < m < np.inf:
        m *= UP
        x -= 1.0
    while x < 0.0 and m != 0.0:
        m *= DOWN
        x += 1.0
    return m


@compiled(error_model="numpy")
def inside(forest, weights):
    """(mantissas [v], exponents [v], shares [e]): values of all items, shares of all edges.

    `weights` [v] are the items' own log-weights. Shares are 0 below a head of value 0.
    """
    num_axioms, num_items = forest.num_axioms, forest.edge_offsets.shape[0] - 1
    mantissas, exponents = np.empty(num_items), np.empty(num_items)
    shares = np.empty(forest.tail_offsets.shape[0] - 1)
    # As long as no exponent is needed none is read, which halves the memory to go through.
    scaled = np.bool_(False)  # a plain False would be compiled as a type of its own
    for i in range(num_axioms):
        mantissas[i], exponents[i] = scaled_exp(weights[i])
        scaled = scaled or exponents[i] != 0.0
    derive(forest, weights, num_axioms, num_items, None, 0, scaled, mantissas, exponents, shares)
    return mantissas, exponents, shares


@inner(error_model="numpy")
def derive(
    forest, weights, start, end, places, first_edge, scaled, mantissas, exponents, shares
):  # fmt: skip
    """Fills the values of the items start..end-1 and the shares of their edges.

    Item h has its value in place h, or places[h] if they are given, edge e its share in place
    e - first_edge, unless shares are None. Returns whether any exponent is not 0 now.
    """
    _, edge_offsets, tail_offsets, tails = forest
    for h in range(start, end):
        total, scale, mixed = 0.0, 0.0, False
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            first, last = tail_offsets[e], tail_offsets[e + 1]
            m, x = product(first, last, tails, places, mantissas, exponents, scaled)
            if shares is not None:
                shares[e - first_edge] = m
            if x == scale:
                total += m
            elif total == 0.0:
                total, scale = m, x
            elif m != 0.0:
                total, scale = add_scaled(total, scale, m, x)
                mixed = True
        if shares is not None and mixed:
            for e in range(edge_offsets[h], edge_offsets[h + 1]):
                first, last = tail_offsets[e], tail_offsets[e + 1]
                m, x = product(first, last, tails, places, mantissas, exponents, scaled)
                shares[e - first_edge] = ordinary(m, x - scale)
        m, x = normalise(total, scale)
        if weights[h] != 0.0 and total != 0.0:
            n, y = scaled_exp(weights[h])
            m, x = normalise(m * n, x + y)
        place = h if places is None else places[h]
        mantissas[place], exponents[place] = m, x
        scaled = scaled or x != 0.0
        if shares is not None:
            factor = 1.0 / total if m != 0.0 else 0.0
            for e in range(edge_offsets[h], edge_offsets[h + 1]):
                shares[e - first_edge] *= factor
    return scaled


@compiled(error_model="numpy")
def log_values(mantissas, exponents):
    """Natural logarithms of values."""
    logs = np.empty(mantissas.shape[0])
    for i in range(mantissas.shape[0]):
        m, x = mantissas[i], exponents[i]
        logs[i] = math.log(m) + x * STEP_LOW + x * STEP_HIGH if m > 0.0 else -np.inf
    return logs


@compiled(error_model="numpy")
def outside(forest, mantissas, shares, seeds):
    """Expected counts [v]: the gradient of sum(seeds * log value) in all items' log-weights."""
    num_axioms, num_items = forest.num_axioms, forest.edge_offsets.shape[0] - 1
    counts = np.empty(num_items)
    for i in range(num_items):
        counts[i] = seeds[i] if mantissas[i] != 0.0 else 0.0
    spread(forest, num_axioms, num_items, 0, shares, counts)
    return counts


@inner(error_model="numpy")
def spread(forest, start, end, first_edge, shares, counts):
    """Adds the counts of the items start..end-1 to their tails; shares as `derive` has them."""
    _, edge_offsets, tail_offsets, tails = forest
    for h in range(end - 1, start - 1, -1):
        count = counts[h]
        if count == 0.0:
            continue
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            hit = count * shares[e - first_edge]
            for t in range(tail_offsets[e], tail_offsets[e + 1]):
                counts[tails[t]] += hit


@compiled(error_model="numpy")
def tangent(forest, mantissas, shares, seeds, direction):
    """Derivatives (log values [v], counts [v]) when the log-weights move along `direction` [v].

    The second is the Hessian of sum(seeds * log value) times `direction`.

    Derivatives of log values grow with the depth, while only the differences between the edges of
    one item matter for the counts. So these are kept relative to the item's first edge: their
    rounding errors then cancel, instead of growing with the square of the depth.
    """
    num_axioms, edge_offsets, tail_offsets, tails = forest
    num_items = edge_offsets.shape[0] - 1
    items = np.zeros((num_items, 3))
    pivots, means = np.zeros(num_items), np.zeros(num_items)
    for i in range(num_items):
        if mantissas[i] != 0.0:
            items[i, LOG_DOT], items[i, COUNT] = direction[i], seeds[i]
    for h in range(num_axioms, num_items):
        pivot, mean, is_first = 0.0, 0.0, True
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            if shares[e] == 0.0:
                continue
            dot = 0.0
            for t in range(tail_offsets[e], tail_offsets[e + 1]):
                dot += items[tails[t], LOG_DOT]
            if is_first:
                pivot, is_first = dot, False
            mean += shares[e] * (dot - pivot)
        pivots[h], means[h] = pivot, mean
        items[h, LOG_DOT] += pivot + mean
    for h in range(num_items - 1, num_axioms - 1, -1):
        count, count_dot = items[h, COUNT], items[h, COUNT_DOT]
        if count == 0.0 and count_dot == 0.0:
            continue
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            if shares[e] == 0.0:
                continue
            first, last = tail_offsets[e], tail_offsets[e + 1]
            dot = 0.0
            for t in range(first, last):
                dot += items[tails[t], LOG_DOT]
            hit = count * shares[e]
            hit_dot = shares[e] * (count_dot + count * ((dot - pivots[h]) - means[h]))
            for t in range(first, last):
                items[tails[t], COUNT] += hit
                items[tails[t], COUNT_DOT] += hit_dot
    return items[:, LOG_DOT].copy(), items[:, COUNT_DOT].copy()
