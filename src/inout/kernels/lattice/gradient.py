"""`Gradient`: of the weights of histories, and steps along it; `truncated`: made sparse."""

from __future__ import annotations

import numpy as np

from inout.kernels.lattice.arrays import Vector
from inout.kernels.lattice.cpu import histories as table
from inout.kernels.lattice.histories import Histories, padded
from inout.kernels.lattice.op import Lattice


class Gradient:
    """What lattices add to the gradient in the weights of histories, up to the next step.

    Threads that train the same histories have one each. Only `Histories` is shared: steps add to
    its weights and to its sums of squares without a lock.
    """

    def __init__(self, histories: Histories) -> None:
        self._histories = histories
        self._values = np.zeros(0)
        self._touched = np.zeros((0, 2), np.int64)
        self._num_touched = 0

    def add(self, lattice: Lattice, edge_weights: Vector) -> None:
        """Add the weights of edges to those of their features."""
        self._values = padded(self._values, self._histories.capacity)
        wanted = self._num_touched + lattice.slot_rows.size
        if len(self._touched) < wanted:
            self._touched = np.resize(self._touched, (2 * wanted, 2))
        self._num_touched = table.add_gradient(
            lattice.slots, lattice.edge_offsets, lattice.columns, self._histories.streams.places,
            edge_weights, 1.0, self._values, self._touched, self._num_touched,
        )  # fmt: skip

    def step(self, step: float, delta: float) -> None:
        """One step of AdaGrad along what was added up, which is cleared.

        w += step · g / (delta + √Σ g²), the sum over all steps so far (Duchi et al. 2010).
        """
        weights, squares = self._histories.trained
        table.adagrad(weights, self._values, squares, self._touched, self._num_touched, step, delta)
        self._num_touched = 0


def truncated(slopes: Vector, least: float, rng: np.random.Generator) -> Vector:
    """Numbers below ±least rounded to 0 or ±least, at random, with unchanged expectation.

    A number x with |x| < least becomes least · sign(x) with probability |x| / least, else 0. So
    most small ones vanish, and every sum of them, as the gradient in a weight is one of slopes of
    edges, stays right on average; its variance grows by at most least · Σ |x|.

    >>> truncated(np.array([0.5, -0.1, 0.001, 0.0]), 0.2, np.random.default_rng(0))
    array([ 0.5, -0.2,  0. ,  0. ])

    Steinhardt & Liang (2015), appendix B.
    """
    sizes = np.abs(slopes)
    rounded = np.where(rng.random(len(slopes)) * least < sizes, np.copysign(least, slopes), 0.0)
    return np.where(sizes < least, rounded, slopes)
