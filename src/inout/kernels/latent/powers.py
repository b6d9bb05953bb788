"""Numbers with powers of two beside them, out of the range of floats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def ldexp(values: Vector, exponents: NDArray[np.integer]) -> Vector:
    """value · 2^exponent for any exponents; what is too large is infinite.

    >>> ldexp(np.array([0.5, 1.0, 0.0]), np.array([1, 10**9, 10**9])).tolist()
    [1.0, inf, 0.0]
    """
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.ldexp(values, np.clip(exponents, -3000, 3000)))
