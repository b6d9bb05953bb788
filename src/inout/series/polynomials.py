"""Moments by truncated power series of Z or of log Z, differentiable."""

from __future__ import annotations

import torch

from inout.series import powers
from inout.series.generating import Generating
from inout.series.lanes import Truncated


def by_polynomials(generating: Generating, series: Truncated, kind: str) -> powers.Rows:
    """Moments [l b] in units of the functions' magnitudes, from the power series of Z.

    O(size²) for each product of the inside algorithm.
    """
    x, centres = generating.about(kind)(series, generating.magnitudes)
    return powers.moments(series, x, centres, kind)


def by_taylor(generating: Generating, series: Truncated, kind: str) -> powers.Rows:
    """The same from the Taylor series of log Z, whose coefficients are cumulants.

    Slow, and independent of the other ways: for checking them.
    """
    logs = generating.log_series(series, generating.magnitudes)
    logs = torch.cat([torch.zeros_like(logs[:1]), logs[1:]])
    x = logs
    if kind != "cumulants":
        means = powers.linear(series, logs)
        x = powers.exponential(series, powers.with_linear(series, logs, torch.zeros_like(means)))
        x = powers.shifted(series, x, means) if kind == "raw" else x
    return x * powers.factorials(series, x.real)[:, None]
