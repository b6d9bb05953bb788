"""Moments by truncated power series of Z or of log Z; rounding errors are estimated."""

from __future__ import annotations

import torch
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


def by_taylor(
    generating: Generating, orders: tuple[int, ...], kind: str, *, measure: bool = True
) -> tuple[Inexact[Tensor, "l b"], Float[Tensor, "l b"]]:
    """Moments [l b] from the Taylor series of log Z (its coefficients are cumulants), with errors.

    Slow, and independent of the other ways: for checking them.
    """
    series, units = Truncated(orders), generating.magnitudes
    logs = generating.log_series(series, units)
    logs = torch.cat([torch.zeros_like(logs[:1]), logs[1:]])
    x = logs
    if kind != "cumulants":
        means = powers.linear(series, logs)
        x = powers.exponential(series, powers.with_linear(series, logs, torch.zeros_like(means)))
        x = powers.shifted(series, x, means) if kind == "raw" else x
    found = x * powers.factorials(series, units)[:, None]
    values = powers.scaled(series, found, units)
    return values, estimated(generating, series, kind, found, measure)
