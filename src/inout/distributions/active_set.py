"""Concave quadratic programs over the convex hull of events that an oracle finds one by one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.lazy import LazyModule

Array = NDArray[np.float64]
# Few need scipy, and importing it takes long.
linalg: Any = LazyModule("scipy.linalg")

# What an event's column adds to the others, relative to itself, is a ratio of determinants of
# integers: far above this, or 0, which rounding may hide.
_DEPENDENT = 1e-9


class Column(NamedTuple):
    """An event: its score, and the parts that are regularised, with how often it uses each."""

    event: bytes
    score: float
    parts: NDArray[np.int64]
    counts: Array


class ActiveSet:
    """The maximum over weights p of s . p - 1/2 |M p|² for the events that have been added so far.

    s are the scores of the events, and the columns of M their counts of parts. Weights are at least
    0 and add up to 1. Events whose weight would be negative leave, so the columns that stay are
    affinely independent, and the weights are the solution of a linear system. Each event that joins
    raises the maximum, so no set occurs twice (Nocedal & Wright, "Numerical Optimization", 16.5).
    """

    def __init__(self) -> None:
        self.names: list[int] = []
        self.columns: list[Column] = []
        self.weights: Array = np.empty(0)
        self.products: Array = np.empty((0, 0))  # of columns, each with a 1 below

    def add(self, name: int, column: Column, dense: Array) -> None:
        """Takes in an event, whose counts are given for all parts as well, and solves again."""
        before = self.products
        row = np.array([dense[x.parts] @ x.counts + 1 for x in self.columns])
        own = np.array([[column.counts @ column.counts + 1]])
        self.products = np.block([[before, row[:, None]], [row[None], own]])
        self.weights = np.append(self.weights, 0.0 if self.names else 1.0)
        self.names.append(name)
        self.columns.append(column)
        if self._last_pivot() <= _DEPENDENT * own[0, 0]:
            # The event is a combination of the others, so the objective is linear on the way from
            # these to it, and grows until one of them is used up.
            self._move(np.append(-np.linalg.solve(before, row), 1.0))
        while (target := self._solution()).min() < 0:
            self._move(target - self.weights)
        self.weights = target

    def _last_pivot(self) -> float:
        """The squared distance of the last column from the span of the others."""
        try:
            return float(np.linalg.cholesky(self.products)[-1, -1] ** 2)
        except np.linalg.LinAlgError:
            return 0.0

    def _move(self, direction: Array) -> None:
        """Goes as far as weights stay at least 0, and lets an event leave that is at 0 then."""
        shrinking = np.flatnonzero(direction < 0)
        steps = self.weights[shrinking] / -direction[shrinking]
        gone = shrinking[steps.argmin()]
        kept = np.arange(len(direction)) != gone
        # Rounding may leave a weight just below 0.
        self.weights = np.maximum(self.weights + steps.min() * direction, 0.0)[kept]
        self.products = self.products[np.ix_(kept, kept)]
        for values in (self.names, self.columns):
            del values[gone]

    def _solution(self) -> Array:
        """The weights, of any sign, that add up to 1 and maximise the objective."""
        scores = np.array([x.score for x in self.columns])
        # Only differences of scores matter, and the weights are of the size of these.
        sides = np.stack([scores - scores[0], np.ones(len(scores))], 1)
        x, z = linalg.cho_solve(linalg.cho_factor(self.products), sides).T
        solution: Array = x + z * (1 - x.sum()) / z.sum()
        return solution

    def slopes(self) -> Array:
        """The derivatives of the weights in the scores: [m m]."""
        inverse = np.linalg.inv(self.products)
        sums = inverse.sum(0)
        slopes: Array = inverse - np.outer(sums, sums) / sums.sum()
        return slopes

    def means(self, size: int) -> Array:
        """The weighted mean of the columns: M p [size]."""
        parts = np.concatenate([x.parts for x in self.columns])
        sizes = [len(x.parts) for x in self.columns]
        counts = np.concatenate([x.counts for x in self.columns]) * np.repeat(self.weights, sizes)
        means: Array = np.bincount(parts, counts, size).astype(np.float64, copy=False)
        return means

    def has(self, column: Column) -> bool:
        """Whether an event is in the set."""
        return any(column.event == x.event for x in self.columns)

    def gain(self, column: Column, means: Array) -> float:
        """By how much the objective rises towards an event: the slope there less that at the mean.

        The slopes towards all events of the set are the same.
        """
        own, known = (x.score - x.counts @ means[x.parts] for x in (column, self.columns[0]))
        return float(own - known)
