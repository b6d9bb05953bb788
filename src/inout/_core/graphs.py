"""Strongly connected components of graphs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def strong_components(
    size: int, sources: NDArray[np.integer], targets: NDArray[np.integer]
) -> list[NDArray[np.int64]]:
    """The strongly connected components of a graph, each after those that it points to.

    Tarjan's algorithm (1972) without recursion: O(nodes + edges).

    >>> edges = np.array([(0, 1), (1, 2), (2, 1)])
    >>> [c.tolist() for c in strong_components(3, edges[:, 0], edges[:, 1])]
    [[1, 2], [0]]
    """
    order = np.argsort(sources, kind="stable")
    bounds = np.searchsorted(sources[order], np.arange(size + 1)).tolist()
    heads = targets[order].tolist()
    found = [-1] * size  # when each node was first seen
    lowest = [0] * size
    closed = [False] * size
    stack: list[int] = []
    components = []
    clock = 0
    for root in range(size):
        if found[root] >= 0:
            continue
        path = [(root, bounds[root])]
        while path:
            node, edge = path.pop()
            if found[node] < 0:
                found[node] = lowest[node] = clock
                clock += 1
                stack.append(node)
            elif edge > bounds[node]:
                lowest[node] = min(lowest[node], _low(heads[edge - 1], lowest, closed))
            while edge < bounds[node + 1] and found[heads[edge]] >= 0:
                lowest[node] = min(lowest[node], _low(heads[edge], lowest, closed))
                edge += 1
            if edge < bounds[node + 1]:
                path.append((node, edge + 1))
                path.append((heads[edge], bounds[heads[edge]]))
            elif lowest[node] == found[node]:
                first = len(stack) - 1 - stack[::-1].index(node)
                members = stack[first:]
                del stack[first:]
                for member in members:
                    closed[member] = True
                components.append(np.sort(np.array(members, dtype=np.int64)))
    return components


def _low(node: int, lowest: list[int], closed: list[bool]) -> int:
    return len(lowest) if closed[node] else lowest[node]
