"""Derivatives of moments: what parts of events are like, weighted by powers of functions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Inexact
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.series.generating import Generating
from inout.series.moments import checked_orders, refuse_imprecise
from inout.series.polynomials import SAFE_DEGREE, by_polynomials, relative_moments


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
    if kind not in ("raw", "central"):
        raise ArgumentError(f'kind must be "raw" or "central". Got {kind!r}')
    orders = checked_orders(powers, generating.num_functions)
    generating = generating.raw if kind == "raw" else generating
    if sum(orders) > SAFE_DEGREE:
        with torch.no_grad():
            error = by_polynomials(generating, orders, kind)[1]
        refuse_imprecise(orders, "polynomial", error, precision)
    total, sums = relative_moments(generating, orders, kind)
    seeds = 1 / torch.where(total == 0, 1.0, total)
    seeds = seeds if keep else seeds.detach()
    sides = [
        torch.autograd.grad(
            side, inputs, seeds, create_graph=keep, retain_graph=True, materialize_grads=True
        )
        for side in ((sums.real, sums.imag) if sums.is_complex() else (sums,))
    ]
    return list(sides[0]) if len(sides) == 1 else list(map(torch.complex, *sides))
