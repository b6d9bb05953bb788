"""Which elements scaled arithmetic is not enough for, and what is done with them."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inout.kernels.limits import GRAMMAR_MULTIPLE, GRAMMAR_SLACK, GRAMMAR_TINY
from inout.kernels.shapes import PerElement

Array = NDArray[Any]


class ScaledChart(Protocol):
    """A chart in scaled arithmetic: sums of products of weights, nothing negative."""

    betas: Array  # [b ...], 0 where a total is below tiny
    total: Array  # [b], of the whole elements
    log_z: Array  # [b], its logarithm with all scales
    low: Array  # [b], whether any total fell below tiny


class ScaledPasses:
    """A batch in scaled arithmetic; the elements that do not fit are left to another object."""

    lengths: Array
    dtype: Any
    shortest: ClassVar[int]  # length of the shortest element that needs a chart

    @cached_property
    def tiny(self) -> float:
        """Totals below this are 0 in the chart, whether possible or not."""
        return GRAMMAR_TINY.of(self.dtype)

    @property
    @abstractmethod
    def chart(self) -> ScaledChart:
        """Inside values of all elements."""

    @abstractmethod
    def _upper_chart(self, elements: Array, floor: float) -> ScaledChart:
        """The chart of some elements with all totals starting from `floor`."""

    @abstractmethod
    def _possible_chart(self, elements: Array) -> ScaledChart:
        """The chart of some elements with 1 for everything possible; it cannot underflow."""

    @cached_property
    def bad(self) -> Array:
        """The elements in which something possible that may matter became 0."""
        low = self.chart.low | ~(self.chart.total >= self.tiny)
        elements: Array = (low & (self.lengths >= self.shortest)).nonzero()[0]
        for criterion in (self._may_have_lost, self._have_lost):
            if len(elements):
                elements = elements[criterion(elements)]
        return elements

    def _may_have_lost(self, elements: Array) -> Array:
        """In which elements the totals set to 0 may be worth more than the limits' share of Z.

        Let L be a total of the chart, T the true one, and U that of a pass in which all totals
        start from K tiny (K = GRAMMAR_MULTIPLE).
        1. A total is a polynomial P of those below it, without negative coefficients, less what
           is lost there: at most tiny, in its span's scale.
        2. So P(L + t (T - L)) is convex in t, P(L + K (T - L)) >= P(L) + K (P(T) - P(L)), and by
           induction over widths U >= L + K (T - L).
        3. U <= e^slack L for the whole element shows T - L <= (e^slack - 1) / K L.

        What is lost are trees: the expected count of a part, which is in no tree more than n
        times, changes by at most n times that share. Whether there is any tree, where L = 0, this
        cannot say.
        """
        floor = GRAMMAR_MULTIPLE.of(self.dtype) * self.tiny
        upper = self._upper_chart(elements, floor)
        # Not `>`: NaN must not pass.
        return ~(upper.log_z <= self.chart.log_z[elements] + GRAMMAR_SLACK.of(self.dtype))

    def _have_lost(self, elements: Array) -> Array:
        """In which elements with a tree something possible became 0."""
        possible = self._possible_chart(elements)
        dims = tuple(range(1, possible.betas.ndim))
        lost = ((possible.betas > 0) & (self.chart.betas[elements] == 0)).any(dims)
        lost |= ~(self.chart.total[elements] >= self.tiny)
        result: Array = lost & (possible.total > 0)
        return result

    @property
    @abstractmethod
    def fallback(self) -> Any:
        """The passes of the elements that do not fit, None if there are none."""

    @cached_property
    def log_z(self) -> PerElement:
        """log Z in float64."""
        logs = self.chart.log_z.copy()
        if self.fallback is not None:
            logs[self.bad] = self.fallback.log_z.numpy()
        return torch.from_numpy(logs)

    @cached_property
    def _totals(self) -> Array:
        """Totals of the chart [b], inf for elements without trees and those done elsewhere."""
        fits = self.chart.total >= self.tiny
        fits[self.bad] = False
        totals: Array = np.where(fits, self.chart.total, self.dtype.type(np.inf))
        return totals

    def _root_factors(self, weights: Tensor) -> Array:
        """weights / total [b 1]; 0 if the total is inf."""
        given, factors = weights.detach().numpy(), np.zeros_like(self._totals)
        np.divide(given.astype(self.dtype), self._totals, factors, where=self._totals < np.inf)
        return factors[:, None]

    def _insert(self, results: tuple[Array, ...], exact: tuple[Tensor, ...]) -> None:
        """Puts the fallback's results in their places, or adds them to what elements share."""
        for result, other in zip(results, exact, strict=True):
            if len(result) == len(self.lengths):
                result[self.bad] = other.numpy()
            else:
                result += other.numpy().astype(result.dtype)
