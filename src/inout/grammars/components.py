"""Strongly connected components of a graph of nonterminals, and its Perron roots."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = Any  # a scipy sparse array; scipy is imported lazily

# Up to here all eigenvalues of a dense matrix take milliseconds.
_DENSE = 200


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


def csr_matrix(
    values: NDArray[np.float64], places: tuple[NDArray[Any], NDArray[Any]], size: int
) -> Matrix:
    """A square sparse matrix of values at (rows, columns), duplicates added up."""
    # Imported here for the sake of start-up: few need scipy.
    from scipy import sparse  # type: ignore[import-untyped]

    return sparse.csr_array((values, places), shape=(size, size))


def spectral_radius(matrix: Matrix) -> float:
    """The largest absolute eigenvalue of a matrix [n n] without negative entries.

    It is the largest Perron root of the strongly connected components, each found on its own:
    iterations on the whole matrix can be arbitrarily slow where it is reducible. Dense
    eigenvalues up to 200 rows, Arnoldi iteration above.

    >>> from scipy import sparse
    >>> spectral_radius(sparse.csr_array([[0.5, 100.0], [0.0, 0.25]]))
    0.5
    """
    # Imported here for the sake of start-up: few need scipy.
    from scipy import sparse

    entries = sparse.coo_array(matrix)
    rows, columns = entries.coords
    positive = entries.data > 0
    parts = strong_components(matrix.shape[0], rows[positive], columns[positive])
    matrix = sparse.csr_array(matrix)
    return max((perron_root(matrix[part][:, part]) for part in parts), default=0.0)


def perron_root(block: Matrix) -> float:
    """The Perron root of an irreducible matrix: its eigenvalue of the largest real part."""
    # Imported here for the sake of start-up: few need scipy.
    from scipy.sparse import linalg as sparse_linalg  # type: ignore[import-untyped]

    size = block.shape[0]
    if size == 1:
        return float(block.toarray()[0, 0])
    if size > _DENSE:
        try:
            values = sparse_linalg.eigs(
                block, k=1, which="LR", v0=np.ones(size), return_eigenvectors=False
            )
            return float(values[0].real)
        except sparse_linalg.ArpackNoConvergence:
            pass  # dense is slow, and certain
    return float(np.linalg.eigvals(block.toarray()).real.max())
