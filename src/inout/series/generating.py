"""`Generating`: the generating function of K additive functions, for evaluation over lanes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout.series.lanes import Lanes, Points, Truncated

Function = Mapping[str, Tensor]
Evaluation = Callable[[Lanes, Sequence[Function], float], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Generating:
    """z ↦ E[exp(z · F)] of additive functions F₁, …, F_K under each of b distributions.

    A function has values [b ...] for each kind of part. `evaluate(lanes, functions, shift)` gives
    Σ weight · exp(z · (F − centres)) [l b], in units of a constant that equals Z, and the centres
    [k b], constants near the means. `shift` moves the centres inside, which changes nothing but
    rounding. `depth` bounds the number of roundings that a value goes through.

    Weights may be signed or complex: with `angles`, every part turns the weight of its events by
    such an angle, at all z but at the point 0 of `Points`. What is said of Z and of means is then
    about absolute values, and `about_zero` must hold.
    """

    evaluate: Evaluation
    # The log of the sum, in Taylor mode.
    taylor: Callable[[tuple[int, ...], Sequence[Function]], Tensor]
    functions: tuple[Function, ...]
    depth: int
    about_zero: bool = False
    angles: Function | None = None

    def relative(
        self, lanes: Lanes, units: Float[Tensor, "k b"], shift: float = 0.0
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "1 b"], Inexact[Tensor, "k b"]]:
        """Σ weight · exp(z · (F − centres)), its value at 0, and the centres, in `units`."""
        functions, given = self._in(units), lanes
        if self.angles is not None:
            functions, given = [self.angles, *functions], _turned(lanes, units)
        x, centres = self.evaluate(given, functions, shift)
        if self.about_zero:
            x = given.times(x, given.exponential(centres))
            centres = torch.zeros_like(centres)
        return x[-lanes.size :], x[:1], centres[-len(self.functions) :]

    def __call__(
        self, lanes: Lanes, units: Float[Tensor, "k b"], shift: float = 0.0
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        """E[exp(z · (F − centres))] and the centres; 0 where there is no event."""
        x, total, centres = self.relative(lanes, units, shift)
        return x / torch.where(total == 0, 1.0, total), centres

    def log_series(self, series: Truncated, units: Float[Tensor, "k b"]) -> Inexact[Tensor, "l b"]:
        """log Σ weight · exp(z · F) as a power series, of functions divided by `units`."""
        return self.taylor(series.orders, self._in(units))

    def _in(self, units: Float[Tensor, "k b"]) -> list[Function]:
        return [
            {name: v / unit.reshape(-1, *[1] * (v.ndim - 1)) for name, v in f.items()}
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
    def has_complex_functions(self) -> bool:
        """Whether one of the functions is complex."""
        return any(values.is_complex() for f in self.functions for values in f.values())

    @property
    def is_complex(self) -> bool:
        """Whether values at conjugate points need not be conjugate."""
        return self.has_complex_functions or self.angles is not None

    @property
    def has_complex_moments(self) -> bool:
        """Whether the functions are complex, or the weights more than signed."""
        angles = () if self.angles is None else self.angles.values()
        signed = all(bool(((a == 0) | (a == math.pi)).all()) for a in angles)
        return self.has_complex_functions or not signed

    @cached_property
    def magnitudes(self) -> Float[Tensor, "k b"]:
        """Powers of two above all absolute values of each function: dividing by them is exact."""
        rows = [
            torch.stack([_largest(values) for values in f.values()]).amax(0) for f in self.functions
        ]
        exponents = torch.frexp(torch.stack(rows)).exponent
        return exponents.clamp(min=-1000, max=1000).double().exp2()

    def real_parts(self) -> Generating:
        """Twice as many functions, Re F and Im F, if one is complex; absolute weights."""
        if not self.has_complex_functions:
            return replace(self, angles=None)
        parts: list[Function] = []
        for f in self.functions:
            whole = {name: torch.view_as_real(v + 0j) for name, v in f.items()}
            parts += [{name: v[..., side] for name, v in whole.items()} for side in (0, 1)]
        return replace(self, functions=tuple(parts), angles=None)

    def only(self, k: int) -> Generating:
        """The generating function of the k-th function alone, under absolute weights."""
        return replace(self, functions=self.functions[k : k + 1], angles=None)

    def ordered(self, places: Sequence[int]) -> Generating:
        """The same with the functions in another order."""
        return replace(self, functions=tuple(self.functions[k] for k in places))


def polar(factors: Inexact[Tensor, " ..."]) -> tuple[Float[Tensor, " ..."], Float[Tensor, " ..."]]:
    """The logs of the absolute values of factors, −inf for 0, and their angles."""
    zero = factors == 0
    some = torch.where(zero, 1.0, factors.to(torch.promote_types(factors.dtype, torch.float64)))
    return torch.where(zero, -torch.inf, some.abs().log()), torch.angle(some)


def _turned(lanes: Lanes, like: Tensor) -> Points:
    """Lanes with a variable more in front, the one that angles belong to; it is i throughout."""
    assert isinstance(lanes, Points | Truncated)
    points = lanes.points if isinstance(lanes, Points) else like.new_zeros(0, 1)
    i = torch.full((1, points.shape[1]), 1j, dtype=torch.complex128, device=like.device)
    return Points(torch.cat([i, points.to(i)]), lanes.orders)


def _largest(values: Tensor) -> Tensor:
    rows = values.detach().abs().double().flatten(1)
    return rows.amax(1) if rows.shape[1] else rows.new_zeros(len(rows))
