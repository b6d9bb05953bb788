"""Truncated power series [l b]: shifts, logarithms, and what their coefficients mean."""

from __future__ import annotations

from itertools import product
from math import factorial, prod
from typing import TypeAlias

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout.series.lanes import Truncated

Rows: TypeAlias = Inexact[Tensor, "l b"]
Means: TypeAlias = Inexact[Tensor, "k b"]
_NOTHING = 1e-12  # rounding errors of moments of functions of the order of 1


def multi_indices(series: Truncated) -> list[tuple[int, ...]]:
    """The exponents of z that the lanes stand for, in order."""
    return list(product(*(range(size) for size in series.shape)))


def total_degrees(series: Truncated) -> list[int]:
    """n₁ + … + n_K of each lane."""
    return [sum(index) for index in multi_indices(series)]


def factorials(series: Truncated, like: Tensor) -> Inexact[Tensor, " l"]:
    """n₁! ⋯ n_K! of each lane: what turns a coefficient into a moment."""
    values = [float(prod(factorial(n) for n in index)) for index in multi_indices(series)]
    return torch.tensor(values, dtype=like.dtype, device=like.device)


def linear_lanes(series: Truncated) -> list[int | None]:
    """The lanes of z₁, …, z_K; None if the order of that variable is 0."""
    sizes = series.shape
    return [prod(sizes[k + 1 :]) if size > 1 else None for k, size in enumerate(sizes)]


def linear(series: Truncated, x: Rows) -> Means:
    """The coefficients of z₁, …, z_K; 0 where the order of that variable is 0."""
    lanes = linear_lanes(series)
    return torch.stack([torch.zeros_like(x[0]) if lane is None else x[lane] for lane in lanes])


def shifted(series: Truncated, x: Rows, by: Means) -> Rows:
    """x(z) · exp(z · by): the moments of F + by, if x has those of F."""
    return series.times(x, series.exponential(by))


def with_linear(series: Truncated, x: Rows, means: Means) -> Rows:
    """The series with other coefficients of z₁, …, z_K."""
    rows = list(x.unbind(0))
    for lane, mean in zip(linear_lanes(series), means, strict=True):
        if lane is not None:
            rows[lane] = mean.to(x.dtype)
    return torch.stack(rows)


def moments(series: Truncated, x: Rows, centres: Means, kind: str) -> Rows:
    """Moments of a kind, n! times coefficients, from a series about centres near the means.

    The centres of a raw series are 0.
    """
    if kind != "raw":
        off = linear(series, x)
        x = shifted(series, x, -off)
        if kind == "cumulants":
            x = with_linear(series, logarithm(series, x), off + centres)
    return x * factorials(series, x.real)[:, None]


def scaled(series: Truncated, moments: Rows, units: Float[Tensor, "k b"]) -> Rows:
    """The moments of functions that were divided by `units`; NaN if these are too small."""
    degrees = torch.tensor(multi_indices(series), dtype=units.dtype, device=units.device)
    factors = (degrees @ units.log2()).exp2()  # exact for powers of two
    lost = (factors == 0) & (moments.abs() > _NOTHING)
    return torch.where(lost, torch.nan, moments * factors)


def exponential(series: Truncated, x: Rows) -> Rows:
    """exp x(z) of series that are 0 at z = 0: 1 + x (1 + x/2 (1 + x/3 (…)))."""
    result = one = series.one(x, *x.shape[1:])
    for degree in range(sum(series.orders), 0, -1):
        result = one + series.times(x / degree, result)
    return result


def logarithm(series: Truncated, x: Rows) -> Rows:
    """log x(z) of series that are 1 at z = 0: u − u²/2 + u³/3 − …, where u = x − 1."""
    u = torch.cat([torch.zeros_like(x[:1]), x[1:]])
    one, result = series.one(x, *x.shape[1:]), torch.zeros_like(u)
    for degree in range(sum(series.orders), 0, -1):  # u (1 − u (1/2 − u (1/3 − …)))
        result = series.times(u, one / degree - result)
    return result
