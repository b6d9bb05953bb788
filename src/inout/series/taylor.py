"""Moments from the Taylor series of log Z, whose coefficients are cumulants."""

from __future__ import annotations

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout.series import powers
from inout.series.accuracy import estimated
from inout.series.generating import Generating
from inout.series.lanes import Truncated


def by_taylor(
    generating: Generating, orders: tuple[int, ...], kind: str, *, measure: bool = True
) -> tuple[Inexact[Tensor, "l b"], Float[Tensor, "l b"]]:
    """Moments [l b] by Taylor mode through log Z, and estimates of their errors.

    Slow, and independent of the other ways: for checking them.
    """
    series, units = Truncated(orders), generating.magnitudes
    logs = generating.log_series(series, units)
    logs = torch.cat([torch.zeros_like(logs[:1]), logs[1:]])
    if kind != "cumulants":
        means = powers.linear(series, logs)
        logs = powers.with_linear(series, logs, torch.zeros_like(means))
        x = powers.exponential(series, logs)
        x = powers.shifted(series, x, means) if kind == "raw" else x
    else:
        x = logs
    found = x * powers.factorials(series, units)[:, None]
    values = powers.scaled(series, found, units)
    return values, estimated(generating, series, kind, found, measure)
