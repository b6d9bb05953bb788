"""Moments by truncated power series: exact but for rounding, which is measured."""

from __future__ import annotations

from jaxtyping import Float, Inexact
from torch import Tensor

from inout.series import powers
from inout.series.accuracy import estimated
from inout.series.generating import Generating
from inout.series.lanes import Truncated


def by_polynomials(
    generating: Generating, orders: tuple[int, ...], kind: str, *, measure: bool = True
) -> tuple[Inexact[Tensor, "l b"], Float[Tensor, "l b"]]:
    """Moments [l b] up to `orders`, differentiable, and estimates of their relative errors.

    O(size²) for each product of the inside algorithm. Without `measure` errors are NaN.
    """
    series, units = Truncated(orders), generating.magnitudes
    x, centres = generating.about(kind)(series, units)
    found = powers.moments(series, x, centres, kind)
    values = powers.scaled(series, found, units)
    return values, estimated(generating, series, kind, found, measure)
