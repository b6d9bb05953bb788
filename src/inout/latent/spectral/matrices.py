"""Feature vectors of nodes as sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Vector = NDArray[np.float64]
Matrix = Any  # a sparse array of scipy


def feature_matrix(
    keys: Sequence[Numbers], weights: Vector, *, fewest: float = 0.0, scaling: float | None = None
) -> Matrix:
    """The feature vectors [n d] of n nodes: a constant, and an indicator for each key of each row.

    `keys` has an array [n] for each feature function, -1 where it saw nothing. Features whose
    nodes weigh less than `fewest` together are left out. With `scaling` κ, a feature of weight c
    is not 1 but √(n / (c + κ)), n being the weight of all nodes: what is seen rarely says more
    (Cohen et al. 2013, section 4.1; without κ, it would have variance 1). O(nodes · functions).

    >>> keys = [np.array([4, 4, 7]), np.array([-1, 0, 1])]
    >>> feature_matrix(keys, np.ones(3)).toarray().tolist()
    [[1.0, 1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0, 1.0]]
    >>> feature_matrix(keys, np.ones(3), fewest=2).shape
    (3, 2)
    """
    # Imported here for the sake of start-up: few need scipy.
    from scipy import sparse  # type: ignore[import-untyped]

    count = len(weights)
    rows, columns = [np.arange(count)], [np.zeros(count, np.int64)]
    counts = [np.array([weights.sum()])]
    width = 1
    for column in keys:
        fires = np.flatnonzero(column >= 0)
        _, inverse = np.unique(column[fires], return_inverse=True)
        seen = np.bincount(inverse, weights[fires])
        kept = (seen >= fewest) & (seen > 0)
        numbers = np.where(kept, np.cumsum(kept) - 1, -1)[inverse]
        rows.append(fires[numbers >= 0])
        columns.append(width + numbers[numbers >= 0])
        counts.append(seen[kept])
        width += int(kept.sum())
    every = np.concatenate(columns)
    values = np.ones(width)
    if scaling is not None:
        values = np.sqrt(weights.sum() / (np.concatenate(counts) + scaling))
    return sparse.csr_array((values[every], (np.concatenate(rows), every)), (count, width))
