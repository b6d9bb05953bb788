"""Derivatives of moments: what parts of events are like, weighted by powers of functions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Inexact
from torch import Tensor

from inout._core.checks import expect
from inout.series import powers as power_series
from inout.series.accuracy import rounding
from inout.series.generating import Generating
from inout.series.lanes import Truncated
from inout.series.moments import checked_orders, refuse_imprecise


def weighted_gradients(
    generating: Generating,
    powers: Sequence[int],
    kind: str,
    precision: float,
    inputs: Sequence[Tensor],
    keep: bool,
) -> list[Inexact[Tensor, ...]]:
    """E[F₁^n₁ ⋯ F_K^n_K N_v] for every entry v of the inputs, log-potentials that N_v counts.

    The sum of weight · F₁^n₁ ⋯ F_K^n_K, differentiated by the log-potentials, in units of Z; over
    all elements of the batch, each with inputs of its own. Call it where gradients are enabled;
    with `keep` the results have one.
    """
    expect(kind in ("raw", "central"), "kind", 'must be "raw" or "central"', kind)
    orders = checked_orders(powers, generating.num_functions)
    series, units = Truncated(orders), generating.magnitudes
    x, _ = generating.about(kind).relative(series, units)
    total = x[0].real
    total = torch.where(total == 0, 1.0, total)
    means = power_series.linear(series, x.detach() / total.detach())
    if kind == "central":
        x = power_series.shifted(series, x, -means)
    found = power_series.moments(series, x, torch.zeros_like(means), "raw")
    error = rounding(generating, series, kind, found.detach() / total.detach())
    refuse_imprecise(orders, error, precision)
    sums = power_series.scaled(series, found, units)[-1]
    if not sums.requires_grad:  # events without parts
        return [torch.zeros_like(x) for x in inputs]
    seeds = 1 / total if keep else 1 / total.detach()
    sides = [
        torch.autograd.grad(
            side, inputs, seeds, create_graph=keep, retain_graph=True, materialize_grads=True
        )
        for side in ((sums.real, sums.imag) if sums.is_complex() else (sums,))
    ]
    return list(sides[0]) if len(sides) == 1 else list(map(torch.complex, *sides))
