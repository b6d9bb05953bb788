"""Factored models on a GPU: scaled arithmetic, and more range where it is not enough."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self
from weakref import finalize

import torch
from jaxtyping import Int
from torch import Tensor
from torch.autograd import forward_ad

from inout.kernels.lowrank.passes import TorchPasses, tangents_of
from inout.kernels.recording import SHELF, Recording, signature
from inout.kernels.shapes import PerElement

# The chart of potentials and lengths, with `log_z` [b]; and from it and weights [b] the gradients
# of weights . log Z. They do not wait for the device.
Functions = tuple[Callable[..., Any], Callable[[Any, Tensor], Sequence[Tensor]]]


class _Recorded:
    """The chart and the gradients for one shape of potentials; the second are of the first."""

    def __init__(self, functions: Functions, *given: Tensor) -> None:
        inside, self._gradients = functions
        self.inside = Recording(inside, *given)
        self.chart = self.inside(*given)
        self._ones = torch.ones_like(given[-1], dtype=given[0].dtype)

    @cached_property
    def gradients(self) -> Recording[Sequence[Tensor]]:
        """Of the sum of weights . log Z, given the weights; recorded when first needed."""
        return Recording(
            lambda weights: self._gradients(self.chart, weights), self._ones, after=self.inside
        )

    @property
    def num_bytes(self) -> int:
        """What both keep."""
        if "gradients" not in vars(self):
            return self.inside.num_bytes
        return self.gradients.num_bytes + self.inside.input_bytes


class ScaledPasses:
    """Elements at one setting of their potentials, of which some may be shared by all.

    A subclass says how a chart is made of them. Elements that do not fit are done in float64, and
    what does not fit there by torch code in log space.
    """

    reference: ClassVar[Callable[..., Tensor]]  # of the potentials and the lengths

    def __init__(self, potentials: Sequence[Tensor], lengths: Tensor, *, record: bool) -> None:
        self.potentials, self.lengths, self.record = tuple(potentials), lengths, record

    @property
    def dtype(self) -> torch.dtype:
        return self.potentials[0].dtype

    @property
    @abstractmethod
    def functions(self) -> Functions:
        """How charts and gradients are made."""

    @abstractmethod
    def _wider(self, *given: Tensor) -> Self:
        """The same passes of some elements in float64, not recorded."""

    @cached_property
    def _recorded(self) -> _Recorded | None:
        """Both passes for potentials of this shape, if it has come before: ours alone for now."""
        if not (self.record and self.lengths.is_cuda):
            return None
        given = *self.potentials, self.lengths
        key = self.functions, signature(*given)
        recorded: _Recorded | None = SHELF.take(key, lambda: _Recorded(self.functions, *given))
        if recorded is not None:
            finalize(self, SHELF.give_back, recorded).atexit = False
        return recorded

    @cached_property
    def chart(self) -> Any:
        """Inside values of all elements."""
        run = self._recorded.inside if self._recorded else self.functions[0]
        return run(*self.potentials, self.lengths)

    @property
    @abstractmethod
    def bad(self) -> Int[Tensor, " bad"]:
        """The elements in which something possible that may matter was lost."""

    def _of(self, elements: Tensor) -> tuple[Tensor, ...]:
        """Potentials and lengths of some elements."""
        b = len(self.lengths)
        given = *self.potentials, self.lengths
        return tuple(x[elements] if len(x) == b else x for x in given)

    @cached_property
    def fallback(self) -> Self | TorchPasses | None:
        """The passes of the elements that do not fit, None if there are none."""
        if not len(self.bad):
            return None
        *potentials, lengths = self._of(self.bad)
        wide = [x.double() for x in potentials]
        if self.dtype == torch.float32:
            return self._wider(*wide, lengths)
        return TorchPasses(type(self).reference, *wide, lengths=lengths)

    @cached_property
    def log_z(self) -> PerElement:
        """log Z in float64."""
        log_z: Tensor = self.chart.log_z.clone()
        if self.fallback is not None:
            log_z[self.bad] = self.fallback.log_z
        return log_z

    def _weights_that_fit(self, weights: Tensor) -> Tensor:
        given = weights.detach().to(self.dtype)
        return given.index_fill(0, self.bad, 0.0) if len(self.bad) else given

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradients by the potentials."""
        given = self._weights_that_fit(weights)
        if self._recorded:
            results = tuple(x.clone() for x in self._recorded.gradients(given))
        else:
            results = tuple(self.functions[1](self.chart, given))
        if self.fallback is not None:
            self._insert(results, self.fallback.gradients(weights[self.bad].double()))
        return results

    def _insert(self, results: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
        """Puts the fallback's results in their places, or adds them to what elements share."""
        for result, other in zip(results, exact, strict=True):
            if len(result) == len(self.lengths):
                result[self.bad] = other.to(result)
            else:
                result += other.to(result)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian times the directions, and E[U]: the gradients in forward mode, in float64."""
        if forward_ad._current_level >= 0:  # levels cannot be nested
            reference = type(self).reference
            return tangents_of(reference, self.potentials, self.lengths, weights, directions)
        if self.dtype != torch.float64:
            wide = self._wider(*(x.double() for x in self.potentials), self.lengths)
            given = weights.double(), tuple(u.double() for u in directions)
            return tuple(x.to(self.dtype) for x in wide.tangents(*given))
        inside, gradients = self.functions
        with torch.inference_mode(False), forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(x.clone(), torch.where(x == -torch.inf, 0.0, u.detach()))
                for x, u in zip(self.potentials, directions, strict=True)
            ]
            chart = inside(*duals, self.lengths)
            found = [*gradients(chart, self._weights_that_fit(weights)), chart.log_z]
            results = tuple(map(_tangent, found))
        if self.fallback is not None:
            own = (u[self.bad] if len(u) == len(self.lengths) else u for u in directions)
            self._insert(results, self.fallback.tangents(weights[self.bad], tuple(own)))
        return results


def _tangent(dual: Tensor) -> Tensor:
    primal, tangent = forward_ad.unpack_dual(dual)
    if tangent is None:
        return torch.zeros_like(primal)
    # That of log Z would be NaN where nothing is possible.
    return torch.where(primal > -torch.inf, tangent, 0.0)
