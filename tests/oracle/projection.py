"""Projections onto the convex hull of points, by least squares with weights of one sign.

Shares no code with the library.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Array = NDArray[np.float64]


def nearest_in_hull(points: Array, target: Array) -> Array:
    """The point of the convex hull of the rows of `points` [m d] that is nearest to the target.

    The x >= 0 that minimises |x (points - target)|² + (sum of x - 1)² has the direction of the
    weights: for weights p = x / t the best t leaves r² / (1 + r²), which grows with the distance r.
    """
    rows = np.concatenate([(points - target).T, np.ones((1, len(points)))])
    x, _ = nnls(rows, np.append(np.zeros(points.shape[1]), 1.0))
    nearest: Array = x / x.sum() @ points
    return nearest


def duality_gap(points: Array, scores: Array, weights: Array) -> float:
    """By how much weights p may fall short of the maximum of scores . p - |p points|²/2.

    The objective is concave, so no point of the hull is better than the best vertex of its linear
    approximation at p (Jaggi 2013, section 2).
    """
    slopes = scores - points @ (weights @ points)
    return float(slopes.max() - weights @ slopes)
