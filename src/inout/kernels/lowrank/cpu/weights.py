"""Weights of factored models relative to the largest of each factor, and along a direction."""

from __future__ import annotations

import numpy as np

from inout.kernels.math.underflow import Array
from inout.kernels.pcfg.cpu.chart import relative

Relative = tuple[Array, Array]  # weights up to 1, and the logs of their scales


def per_element(values: Array) -> Relative:
    """Weights relative to the largest of each element; (values, 0) of no values."""
    if values.size == 0:
        return values, np.zeros(len(values))
    return relative(values, tuple(range(1, values.ndim)))


def per_position(values: Array) -> Relative:
    """Weights [b n s] relative to the largest at each position; -inf where there is none."""
    weights, tops = relative(values, (2,))
    return weights, np.where(weights.max(-1) == 0, -np.inf, tops)


def possible(values: Array) -> Array:
    """Log-weight 0 for everything possible."""
    result: Array = np.where(values > -np.inf, values.dtype.type(0), values.dtype.type(-np.inf))
    return result


class Step:
    """A small imaginary step along directions: weights w (1 + i h u), derivatives as parts of h."""

    def __init__(self, weights: tuple[Array, ...], directions: tuple[Array, ...]) -> None:
        """The directions may be anything where a weight is 0."""
        self.directions = [
            np.where(w == 0, 0.0, u) for w, u in zip(weights, directions, strict=True)
        ]
        largest = max((float(abs(u).max()) for u in self.directions if u.size), default=0.0)
        # h² is below the rounding errors; weights times h are far above the smallest number.
        self.size = 2.0**-40 / largest if largest > 0 else 1.0
        self.weights = [
            w * (1 + 1j * self.size * u) for w, u in zip(weights, self.directions, strict=True)
        ]

    def derivative(self, values: Array) -> Array:
        """Derivatives along the directions."""
        result: Array = values.imag / self.size
        return result
