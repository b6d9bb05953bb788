"""Kernels for sampling derivations of a forest from the top down, on the CPU (numba).

Each derived item draws one of its edges by Walker's alias method, in constant time. Sample i reads
its own stream of random numbers, a function of the seed and i alone, so the samples do not depend
on the number of threads. The kernels release the interpreter lock, and threads of Python run them:
`parallel=True` would double the time to compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import config
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled
from inout.kernels.math.cpu.draws import GAMMA, mix, next_uniform, substream

# The cores this process may use, unless the variable of that name says otherwise.
NUM_THREADS: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]

# What a size can say instead.
TOO_LARGE = -1
IMPOSSIBLE = -2


class Tables(NamedTuple):
    """How to draw an edge of an item: take one at random, keep it or else take its alias."""

    accept: NDArray[np.float64]  # [e], the probability with which an edge is kept
    alias: NDArray[np.int32]  # [e]


@compiled
def alias_tables(edge_offsets, probabilities, tables):
    """Fills the tables by the method of Vose, item by item."""
    accept, alias = tables
    widest = 0
    for item in range(len(edge_offsets) - 1):
        widest = max(widest, edge_offsets[item + 1] - edge_offsets[item])
    work = np.empty(widest, np.int64)
    for item in range(len(edge_offsets) - 1):
        begin, end = edge_offsets[item], edge_offsets[item + 1]
        n = end - begin
        total = 0.0
        heaviest = begin
        for edge in range(begin, end):
            total += probabilities[edge]
            if probabilities[edge] > probabilities[heaviest]:
                heaviest = edge
        if total == 0.0:
            for edge in range(begin, end):
                accept[edge] = 0.0
                alias[edge] = IMPOSSIBLE
            continue
        scale = n / total
        # `work` holds two stacks: edges below their share from the left, the others from the right.
        small, large = 0, n
        for edge in range(begin, end):
            accept[edge] = probabilities[edge] * scale
            alias[edge] = edge
            if accept[edge] < 1.0:
                work[small] = edge
                small += 1
            else:
                large -= 1
                work[large] = edge
        while small > 0 and large < n:
            small -= 1
            giver, taker = work[large], work[small]
            alias[taker] = giver
            accept[giver] = (accept[giver] + accept[taker]) - 1.0
            if accept[giver] < 1.0:
                large += 1
                work[small] = giver
                small += 1
        # What is left over has its share but for rounding.
        for i in range(large, n):
            accept[work[i]] = 1.0
        for i in range(small):
            if probabilities[work[i]] > 0.0:
                accept[work[i]] = 1.0
            else:
                alias[work[i]] = heaviest


@compiled
def sample_range(forest, tables, roots, seed, first, last, limit, offsets, edges, fill):
    """Sizes of the samples first .. last-1 in `offsets`, or (fill) their edges in `edges`."""
    num_axioms, edge_offsets, tail_offsets, tails = forest
    accept, alias = tables
    stack = np.empty(64, np.int64)
    key = mix(seed + GAMMA)
    total = 0
    for sample in range(first, last):
        random = substream(key, sample)
        place = offsets[sample] if fill else 0
        size = 0
        depth = 0
        if roots[sample] >= num_axioms:
            stack[0] = roots[sample]
            depth = 1
        while depth > 0:
            depth -= 1
            item = stack[depth]
            edge = edge_offsets[item]
            n = edge_offsets[item + 1] - edge
            if n == 0:
                size = IMPOSSIBLE
                break
            uniform = 0.0
            if n > 1:
                # 53 random bits times n, rounded down, is below n for every n < 2^53.
                random, uniform = next_uniform(random)
                edge += np.int64(uniform * n)
                random, uniform = next_uniform(random)
            if uniform >= accept[edge]:
                edge = alias[edge]
                if edge == IMPOSSIBLE:
                    size = IMPOSSIBLE
                    break
            if fill:
                edges[place + size] = edge
            size += 1
            if total + size > limit:
                size = TOO_LARGE
                break
            begin, end = tail_offsets[edge], tail_offsets[edge + 1]
            if depth + end - begin > len(stack):
                grown = np.empty(2 * (depth + end - begin), np.int64)
                for i in range(depth):
                    grown[i] = stack[i]
                stack = grown
            for t in range(end - 1, begin - 1, -1):
                if tails[t] >= num_axioms:
                    stack[depth] = tails[t]
                    depth += 1
        if not fill:
            offsets[sample + 1] = size
            if size < 0:
                break
        total += size
