"""Random streams and draws: uniform numbers by splitmix64, one of many by inverse CDF.

A sample reads a stream of its own, a function of the seed and of its number alone, so that samples
do not depend on the number of threads.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import inner

# splitmix64 (Steele, Lea & Flood 2014). Typed: numba turns uint64 + int64 into float64.
GAMMA = np.uint64(0x9E3779B97F4A7C15)
FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
FACTOR_2 = np.uint64(0x94D049BB133111EB)
SHIFT_1, SHIFT_2, SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
SHIFT_53 = np.uint64(11)
UNIT_53 = 2.0**-53


@inner
def mix(x):
    """A one-to-one scrambling of the 64 bits: the output function of splitmix64."""
    x = (x ^ (x >> SHIFT_1)) * FACTOR_1
    x = (x ^ (x >> SHIFT_2)) * FACTOR_2
    return x ^ (x >> SHIFT_3)


@inner
def stream(seed, number):
    """The state of stream `number` of a seed."""
    return mix(seed + mix(np.uint64(number) * GAMMA))


@inner
def substream(key, number):
    """The state of stream `number` of a key.

    Both steps are one to one in `number`: the streams of one key start at different places.
    """
    return mix(key ^ mix(np.uint64(number) + GAMMA))


@inner
def next_uniform(state):
    """(the next state of the stream, a number from 0 on and below 1)."""
    state += GAMMA
    return state, np.float64(mix(state) >> SHIFT_53) * UNIT_53


@inner
def add_up(weights, first, end):
    """Running totals of weights[first:end], in their place."""
    total = 0.0
    for x in range(first, end):
        total += weights[x]
        weights[x] = total


@inner
def add_up_logs(logs, first, end):
    """Running totals of exp(logs[first:end]) up to a factor, in their place: the last, 0 if none.

    Relative to the largest, so that nothing is out of range.
    """
    top, total = -np.inf, 0.0
    for x in range(first, end):
        top = max(top, logs[x])
    if top == -np.inf:
        return 0.0
    for x in range(first, end):
        total += math.exp(logs[x] - top)
        logs[x] = total
    return total


@inner
def draw(sums, first, end, uniform):
    """The first place whose running total is above its share `uniform` of all."""
    target = uniform * sums[end - 1]
    lo, hi = first, end - 1
    while lo < hi:
        middle = (lo + hi) // 2
        if sums[middle] > target:
            hi = middle
        else:
            lo = middle + 1
    # target may have been rounded up to the total, where a place of weight 0 would do.
    while lo > first and sums[lo] == sums[lo - 1]:
        lo -= 1
    return lo
