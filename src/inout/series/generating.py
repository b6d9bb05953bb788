"""`Generating`: the generating function of K additive functions, for evaluation over lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout.series.lanes import Lanes, Truncated

Function = Mapping[str, Tensor]
Evaluation = Callable[[Lanes, Sequence[Function], float], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Generating:
    """z ↦ E[exp(z · F)] of additive functions F₁, …, F_K under each of b distributions.

    A function has values [b ...] for each kind of part. `evaluate(lanes, functions, shift)` gives
    Σ weight · exp(z · (F − centres)) [l b], in units of a constant that equals Z, and the centres
    [k b], constants near the means. `shift` moves the centres inside, which changes nothing but
    rounding. `depth` bounds the number of roundings that a value goes through.
    """

    evaluate: Evaluation
    taylor: Callable[
        [tuple[int, ...], Sequence[Function]], Tensor
    ]  # log of the sum, in Taylor mode
    functions: tuple[Function, ...]
    depth: int
    about_zero: bool = False

    def relative(
        self, lanes: Lanes, units: Float[Tensor, "k b"], shift: float = 0.0
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        """Σ weight · exp(z · (F − centres)) and the centres, of functions divided by `units`."""
        x, centres = self.evaluate(lanes, self._in(units), shift)
        if self.about_zero:
            x = lanes.times(x, lanes.exponential(centres))
            centres = torch.zeros_like(centres)
        return x, centres

    def __call__(
        self, lanes: Lanes, units: Float[Tensor, "k b"], shift: float = 0.0
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        """E[exp(z · (F − centres))] and the centres; 0 where there is no event."""
        x, centres = self.relative(lanes, units, shift)
        total = x[:1]
        return x / torch.where(total == 0, 1.0, total), centres

    def log_series(self, series: Truncated, units: Float[Tensor, "k b"]) -> Inexact[Tensor, "l b"]:
        """log Σ weight · exp(z · F) as a power series, of functions divided by `units`."""
        return self.taylor(series.orders, self._in(units))

    def _in(self, units: Float[Tensor, "k b"]) -> list[Function]:
        return [
            {name: values / _beside(unit, values) for name, values in f.items()}
            for f, unit in zip(self.functions, units, strict=True)
        ]

    def about(self, kind: str) -> Generating:
        """The same with centres 0 for raw moments."""
        return replace(self, about_zero=kind == "raw")

    @property
    def num_functions(self) -> int:
        """K."""
        return len(self.functions)

    @property
    def is_complex(self) -> bool:
        """Whether one of the functions is complex."""
        return any(values.is_complex() for f in self.functions for values in f.values())

    @cached_property
    def magnitudes(self) -> Float[Tensor, "k b"]:
        """Powers of two above all absolute values of each function: dividing by them is exact."""
        rows = [
            torch.stack([_largest(values) for values in f.values()]).amax(0) for f in self.functions
        ]
        exponents = torch.frexp(torch.stack(rows)).exponent
        return exponents.clamp(min=-1000, max=1000).double().exp2()

    def real_parts(self) -> Generating:
        """The same distributions with twice as many functions, Re F and Im F, if one is complex."""
        if not self.is_complex:
            return self
        parts: list[Function] = []
        for f in self.functions:
            whole = {name: torch.view_as_real(v + 0j) for name, v in f.items()}
            parts += [{name: v[..., side] for name, v in whole.items()} for side in (0, 1)]
        return replace(self, functions=tuple(parts))

    def only(self, k: int) -> Generating:
        """The generating function of the k-th function alone."""
        return replace(self, functions=self.functions[k : k + 1])


def _beside(unit: Tensor, values: Tensor) -> Tensor:
    """One number for each of b elements, shaped to divide values [b ...]."""
    return unit.reshape(-1, *[1] * (values.ndim - 1))


def _largest(values: Tensor) -> Tensor:
    rows = values.detach().abs().double().flatten(1)
    return rows.amax(1) if rows.shape[1] else rows.new_zeros(len(rows))
