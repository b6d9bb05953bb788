"""Inside, outside and their directional derivative on the CPU, one pass over the edges each.

A value is a pair (m, x) standing for m * 2**(256 x) with 2**-128 <= m < 2**128, or (0, 0).
So edges cost multiplications only (no exp, no log), any magnitude fits, and neighbouring values
nearly always share x, which keeps the rescaling branches cold.

The outside pass walks the *expected counts* down instead of the outer weights (Eisner 2016,
algorithm 5): an edge of head h receives count[h] * prod(tails) / value[h], which is what each
of its tails receives. That is one product an edge whatever its arity, and cannot overflow.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

STEP = 256 * math.log(2.0)
# STEP in two parts, the first with 20 spare bits, so that x * STEP_HIGH is exact.
STEP_HIGH = math.floor(STEP * 2.0**24) / 2.0**24
STEP_LOW = (STEP - STEP_HIGH) + 256 * 2.3190468138462996e-17  # ln 2 minus its float64
UP, DOWN = 2.0**256, 2.0**-256
HIGH, LOW = 2.0**128, 2.0**-128
# A running product is brought back before it leaves these; one more factor still fits.
PRODUCT_HIGH, PRODUCT_LOW = 2.0**512, 2.0**-512
# Columns after the value (m, x) in the tables of items that the later passes work on.
COUNT, LOG_DOT, COUNT_DOT = 2, 3, 4


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def times_tails(m, x, first, last, tails, values):
    """(m, x) times the values of tails[first:last]."""
    for t in range(first, last):
        i = tails[t]
        m *= values[i, 0]
        x += values[i, 1]
        if m > PRODUCT_HIGH:
            m *= DOWN
            x += 1.0
        elif m < PRODUCT_LOW:
            if m == 0.0:
                return 0.0, 0.0
            m *= UP
            x -= 1.0
    return m, x


@njit(cache=True, nogil=True, error_model="numpy")
def ordinary(m, x):
    """m * 2**(256 x) as one float, for pairs known to be of ordinary size."""
    while x > 0.0 and 0.0 < m < np.inf:
        m *= UP
        x -= 1.0
    while x < 0.0 and m != 0.0:
        m *= DOWN
        x += 1.0
    return m


@njit(cache=True, nogil=True, error_model="numpy")
def inside(num_axioms, edge_offsets, tail_offsets, tails, weights):
    """Values [v, 2] of all items; `weights` [v] are the items' own log-weights."""
    num_items = edge_offsets.shape[0] - 1
    values = np.empty((num_items, 2))
    for i in range(num_axioms):
        values[i, 0], values[i, 1] = scaled_exp(weights[i])
    for h in range(num_axioms, num_items):
        total, scale = 0.0, 0.0
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            m, x = times_tails(1.0, 0.0, tail_offsets[e], tail_offsets[e + 1], tails, values)
            if x == scale:
                total += m
            else:
                total, scale = add_scaled(total, scale, m, x)
        total, scale = normalise(total, scale)
        if weights[h] != 0.0 and total != 0.0:
            m, x = scaled_exp(weights[h])
            total, scale = normalise(total * m, scale + x)
        values[h, 0], values[h, 1] = total, scale
    return values


@njit(cache=True, nogil=True, error_model="numpy")
def log_values(values):
    """Natural logarithms [v] of pairs."""
    logs = np.empty(values.shape[0])
    for i in range(values.shape[0]):
        m, x = values[i, 0], values[i, 1]
        logs[i] = math.log(m) + x * STEP_LOW + x * STEP_HIGH if m > 0.0 else -np.inf
    return logs


@njit(cache=True, nogil=True, error_model="numpy")
def edge_share(h, values, weights):
    """exp(weight[h]) / value[h]: what a head's edges are multiplied by to become its shares."""
    m, x = 1.0 / values[h, 0], -values[h, 1]
    if weights[h] != 0.0:
        n, y = scaled_exp(weights[h])
        m, x = m * n, x + y
    return m, x


@njit(cache=True, nogil=True, error_model="numpy")
def outside(num_axioms, edge_offsets, tail_offsets, tails, weights, values, seeds):
    """Expected counts [v]: the gradient of sum(seeds * log value) in all items' log-weights."""
    num_items = edge_offsets.shape[0] - 1
    # Value and count side by side: a tail then costs one cache miss, not two.
    items = np.empty((num_items, 3))
    for i in range(num_items):
        items[i, 0], items[i, 1] = values[i, 0], values[i, 1]
        items[i, COUNT] = seeds[i] if values[i, 0] != 0.0 else 0.0
    for h in range(num_items - 1, num_axioms - 1, -1):
        count = items[h, COUNT]
        if count == 0.0:
            continue
        share, scale = edge_share(h, items, weights)
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            first, last = tail_offsets[e], tail_offsets[e + 1]
            m, x = times_tails(share, scale, first, last, tails, items)
            if x != 0.0:
                m = ordinary(m, x)
            m *= count
            for t in range(first, last):
                items[tails[t], COUNT] += m
    return items[:, COUNT].copy()


@njit(cache=True, nogil=True, error_model="numpy")
def edge_probabilities(num_axioms, edge_offsets, tail_offsets, tails, weights, values):
    """Probability [e] of every edge given its head (Eisner 2016, equations 17 and 18)."""
    shares = np.zeros(tail_offsets.shape[0] - 1)
    for h in range(num_axioms, edge_offsets.shape[0] - 1):
        if values[h, 0] == 0.0:
            continue
        share, scale = edge_share(h, values, weights)
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            m, x = times_tails(
                share, scale, tail_offsets[e], tail_offsets[e + 1], tails, values
            )
            shares[e] = ordinary(m, x)
    return shares


@njit(cache=True, nogil=True, error_model="numpy")
def tangent(
    num_axioms, edge_offsets, tail_offsets, tails, weights, values, seeds, direction
):
    """Derivatives (log values [v], counts [v]) when the log-weights move along `direction` [v].

    The second is the Hessian of sum(seeds * log value) times `direction`.
    """
    num_items = edge_offsets.shape[0] - 1
    items = np.zeros((num_items, 5))
    for i in range(num_items):
        items[i, 0], items[i, 1] = values[i, 0], values[i, 1]
        if values[i, 0] != 0.0:
            items[i, COUNT], items[i, LOG_DOT] = seeds[i], direction[i]
    for h in range(num_axioms, num_items):
        if items[h, 0] == 0.0:
            continue
        share, scale = edge_share(h, items, weights)
        total = 0.0
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            first, last = tail_offsets[e], tail_offsets[e + 1]
            m, x = times_tails(share, scale, first, last, tails, items)
            if m == 0.0:
                continue
            dot = 0.0
            for t in range(first, last):
                dot += items[tails[t], LOG_DOT]
            total += ordinary(m, x) * dot
        items[h, LOG_DOT] += total
    for h in range(num_items - 1, num_axioms - 1, -1):
        count, count_dot = items[h, COUNT], items[h, COUNT_DOT]
        if count == 0.0 and count_dot == 0.0:
            continue
        share, scale = edge_share(h, items, weights)
        base = direction[h] - items[h, LOG_DOT]
        for e in range(edge_offsets[h], edge_offsets[h + 1]):
            first, last = tail_offsets[e], tail_offsets[e + 1]
            m, x = times_tails(share, scale, first, last, tails, items)
            if m == 0.0:
                continue
            m = ordinary(m, x)
            dot = base
            for t in range(first, last):
                dot += items[tails[t], LOG_DOT]
            m_dot = m * (count_dot + count * dot)
            m *= count
            for t in range(first, last):
                items[tails[t], COUNT] += m
                items[tails[t], COUNT_DOT] += m_dot
    return items[:, LOG_DOT].copy(), items[:, COUNT_DOT].copy()
