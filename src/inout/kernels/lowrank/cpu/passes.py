"""Factored models on the CPU: scaled arithmetic, and log space where it is not enough."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from inout.kernels.limits import GRAMMAR_TINY
from inout.kernels.lowrank.cpu.weights import Step, possible
from inout.kernels.lowrank.passes import TorchPasses
from inout.kernels.math.underflow import Array, ScaledChart, ScaledPasses

LogChart = TypeVar("LogChart", bound=Sequence[Array])


class FactoredChart(ScaledChart, Protocol):
    """A chart under real or complex weights."""

    weights: Any  # a tuple of arrays, those of `FactoredPasses.potentials`

    def sums(self) -> Array:
        """The totals of the whole elements [b] as weights and chart are now."""

    def shift(self, change: Array) -> None:
        """Multiply the weights at all positions by 1 + a small number for each element [b]."""

    def gradients(self, factors: Array) -> tuple[Array, ...]:
        """Derivatives of the sum of factors [b] . totals by the logarithms of the weights."""


class FactoredPasses(ScaledPasses):
    """Elements at one setting of their potentials, of which some may be shared by all.

    A subclass says how a chart is made of them. Those that do not fit are left to float64, or to
    torch code in log space.
    """

    # A NamedTuple of arrays [1|b ...], impossible or 0 in the padding. `weigh` makes weights
    # relative to their scales, and these as the chart needs them.
    potentials: Any
    reference: ClassVar[Callable[..., Tensor]]  # of tensors of them, and the lengths
    # Of weights, scales, lengths, tiny, and a floor.
    chart_of: ClassVar[Callable[..., Any]]

    def _of(self, elements: Array) -> Any:
        """The potentials of some elements."""
        b = len(self.lengths)
        kept = (x[elements] if len(x) == b else x for x in self.potentials)
        return type(self.potentials)(*kept)

    @cached_property
    def chart(self) -> Any:
        """Inside values; totals below tiny are 0 in it, whether possible or not."""
        return type(self).chart_of(*self.potentials.weigh(), self.lengths, self.tiny)

    def _upper_chart(self, elements: Array, floor: float) -> Any:
        given = self._of(elements).weigh()
        return type(self).chart_of(*given, self.lengths[elements], self.tiny, floor)

    def _possible_chart(self, elements: Array) -> Any:
        given = self._of(elements)
        weights = type(given)(*map(possible, given)).weigh()
        return type(self).chart_of(*weights, self.lengths[elements], 0.0)

    @abstractmethod
    def log_chart(self) -> Any:
        """Logs of the chart: a tuple of arrays [b ...]."""

    def _with_exact(self, found: LogChart, exact: Callable[[], Sequence[Array]]) -> LogChart:
        """A log chart with the elements that did not fit: by float64, or as `exact` has them."""
        if self.fallback is not None:
            wide = self.fallback
            others = wide.log_chart() if isinstance(wide, FactoredPasses) else exact()
            for table, other in zip(found, others, strict=True):
                table[self.bad] = other
        return found

    @cached_property
    def fallback(self) -> Self | TorchPasses | None:
        if not len(self.bad):
            return None
        given = [torch.from_numpy(x.astype(np.float64)) for x in self._of(self.bad)]
        lengths = torch.from_numpy(self.lengths[self.bad])
        if self.dtype == np.float32:
            return type(self)(*given, lengths)  # type: ignore[call-arg]
        return TorchPasses(type(self).reference, *given, lengths=lengths)

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradients by the potentials."""
        results = self.chart.gradients(self._root_factors(weights)[:, 0])
        if self.fallback is not None:
            self._insert(results, self.fallback.gradients(weights[torch.from_numpy(self.bad)]))
        return tuple(map(torch.from_numpy, results))

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian times the directions, and E[U]; by one step of complex numbers, in float64.

        The direction is first shifted by the same number at every position, so that its mean is 0:
        every event has as many, so no second derivative changes, and nothing large is left to
        cancel.
        """
        wide = type(self.potentials)(*(x.astype(np.float64) for x in self.potentials))
        plain, scales = wide.weigh()
        along = (
            u.detach().double().expand(x.shape).numpy()
            for u, x in zip(directions, plain, strict=True)
        )
        step = Step(plain, tuple(along))
        tiny = GRAMMAR_TINY.of(np.dtype(np.float64))
        chart = type(self).chart_of(type(plain)(*step.weights), scales, self.lengths, tiny)
        fits = (self._totals < np.inf) & (chart.total.real >= tiny)
        expected = step.derivative(chart.total) / np.where(fits, chart.total.real, np.inf)
        chart.shift(-1j * step.size * expected / np.maximum(self.lengths, 1))
        factors = weights.detach().double().numpy() / np.where(fits, chart.sums(), 1)
        found = chart.gradients(np.where(fits, factors, 0))
        results = (*(step.derivative(x).astype(self.dtype) for x in found), expected)
        if self.fallback is not None:
            bad = torch.from_numpy(self.bad)
            own = (u[bad] if len(u) == len(self.lengths) else u for u in directions)
            exact = self.fallback.tangents(weights[bad], tuple(u.double() for u in own))
            self._insert(results, exact)
        return tuple(map(torch.from_numpy, results))
