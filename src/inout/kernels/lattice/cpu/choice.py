"""The best elements of a column, by a heap: step 2 of appendix A."""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import inner


@inner(inline="always")
def _is_worse(values, size, a, b):
    """Whether element a should be left out rather than b; of equal ones the later in order."""
    if values[a] != values[b]:
        return values[a] < values[b]
    return a % size > b % size or (a % size == b % size and a > b)


@inner
def _sift(heap, count, values, size):
    """Put the root of a heap, whose worst element is to be at the root, into its place."""
    place = 0
    while True:
        worst, left = place, 2 * place + 1
        if left < count and _is_worse(values, size, heap[left], heap[worst]):
            worst = left
        if left + 1 < count and _is_worse(values, size, heap[left + 1], heap[worst]):
            worst = left + 1
        if worst == place:
            return
        heap[place], heap[worst] = heap[worst], heap[place]
        place = worst


@inner
def choose(values, allowed, size, wanted, room):
    """Mark the `wanted` elements with the largest values above -inf; returns how many are new."""
    heap, active, count = room.heap, room.active, 0
    for k in range(len(allowed)):
        if not allowed[k]:
            continue
        for e in range(k * size, (k + 1) * size):
            if count == wanted:
                # Most elements are left out by this comparison alone.
                if count == 0 or values[e] < values[heap[0]]:
                    continue
                if _is_worse(values, size, heap[0], e):
                    heap[0] = e
                    _sift(heap, count, values, size)
            elif values[e] > -np.inf:
                place = count
                count += 1
                while place > 0:
                    above = (place - 1) // 2
                    if not _is_worse(values, size, e, heap[above]):
                        break
                    heap[place] = heap[above]
                    place = above
                heap[place] = e
    added = 0
    for place in range(count):
        if not active[heap[place]]:
            active[heap[place]] = True
            added += 1
    return added
