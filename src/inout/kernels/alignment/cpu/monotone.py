"""Monotonic alignment search: best paths that go on to the same or to the next column in each row.

The lattice of `Alignment(mode="monotone")`, for which `decode.viterbi` is many times as slow: here
a row is one vector loop, because both moves to a node weigh the same.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner


@inner
def next_row(diagonal, same, weights, best, stays):
    """The best scores of a row's nodes from those of the row before; whether they stay there."""
    for j in range(best.shape[0]):
        stays[j] = same[j] > diagonal[j]
        before = same[j] if same[j] > diagonal[j] else diagonal[j]
        best[j] = before + weights[j]


@compiled
def search(match, columns, sizes, lo, hi, paths):
    """Fills paths [b n], all -1, from match [b n * columns]: 0 for the next column, 1 for the same.

    At a tie, the next one, from the end backwards. -1 stays behind the last, or if there is none.
    """
    most = max(sizes[lo:hi, 0].max(), 1), sizes[lo:hi, 1].max()
    scores = np.empty((2, most[1] + 1))
    stays = np.empty((most[0], most[1]), np.uint8)
    for b in range(lo, hi):
        n, m = sizes[b, 0], sizes[b, 1]
        if m == 0 or m > n:
            continue
        scores[:] = -np.inf
        scores[0, 1], stays[0, 0] = match[b, 0], 0
        for i in range(1, n):
            before, best, start = scores[(i - 1) % 2], scores[i % 2], i * columns
            weights = match[b, start : start + m]
            next_row(before[:m], before[1 : m + 1], weights, best[1 : m + 1], stays[i, :m])
        if scores[(n - 1) % 2, m] == -np.inf:
            continue
        j = m - 1
        for i in range(n - 1, -1, -1):
            stay = stays[i, j]
            paths[b, i] = stay
            j += stay - 1
