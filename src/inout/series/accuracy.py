"""How many digits moments have, relative to the absolute moments E|F₁|^n₁ ⋯ |F_K|^n_K."""

from __future__ import annotations

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout.series import powers
from inout.series.generating import Generating
from inout.series.lanes import Truncated

_SHIFT = 2.0**-5  # of the centres, in units of the functions' spreads
CAUTION = 16.0  # times the difference between two roundings
_GOOD = 1e-9  # a crude bound below this is enough: nothing is measured
_FLOOR = 2.0**14  # a spread below this many roundings of the largest value is rounding


@torch.no_grad()
def rounding(
    generating: Generating, series: Truncated, kind: str, found: Inexact[Tensor, "l b"]
) -> Float[Tensor, "l b"]:
    """Estimated errors of moments that were `found` in units of the functions' magnitudes.

    Rounding is relative to powers of partial sums of a function, which may be larger than the
    whole. If their largest possible value is harmless, it bounds the error. Otherwise the error is
    measured: the same sum with other centres is rounded differently, and the largest difference
    over the lower orders estimates it.
    """
    units, spread = generating.magnitudes, spreads(generating, kind)
    degrees = torch.tensor(powers.total_degrees(series), device=units.device)
    least = torch.finfo(torch.float64).eps * generating.depth
    sums = 2 * generating.depth * units / spread
    crude = powers.scaled(series, torch.full_like(found.real, least), sums)
    if bool((crude <= _GOOD).all()):
        return crude
    other = powers.moments(series, *generating.about(kind)(series, spread, _SHIFT), kind)
    found = powers.scaled(series, found, units / spread)
    if kind != "cumulants" and len(series.orders) == 1 and not found.is_complex():
        scales = scales_of_moments(found)
    else:
        scales = absolute_moments(generating, series, spread, kind)
    means = (degrees == 1)[:, None] & (kind == "cumulants")  # the only ones that know the offset
    scales = torch.where(means, torch.maximum(scales, found.abs()), scales)
    off = (found - other).abs() / scales
    off = torch.where(off.isnan(), torch.inf, off)  # beyond the range of floats
    error = torch.full_like(off, least)
    for degree in range(1, 1 + sum(series.orders)):
        upto = torch.where(((degrees > 0) & (degrees <= degree))[:, None], off, 0.0).amax(0)
        error = torch.where((degrees == degree)[:, None], least + CAUTION * upto, error)
    return error


def scales_of_moments(moments: Float[Tensor, "l b"]) -> Float[Tensor, "l b"]:
    """Absolute moments of one real function in units of its spread, from its moments.

    An even one is the moment itself, an odd one at least the moment, and at least that power of
    the norm before it. None is below 1, unless the spread is only rounding.
    """
    n = torch.arange(len(moments), dtype=torch.float64, device=moments.device)
    even = (n - n % 2).long()
    norms = moments[even].clamp(min=1.0) ** (n / even.clamp(min=1))[:, None]
    return torch.maximum(norms, moments.abs())


@torch.no_grad()
def absolute_moments(
    generating: Generating, series: Truncated, units: Float[Tensor, "k b"], kind: str
) -> Float[Tensor, "l b"]:
    """Bounds of E|F₁|^n₁ ⋯ |F_K|^n_K from above, in `units`, which are the functions' spreads.

    By Hölder, the product of ‖F_k‖ᴺ to the powers n_k/N for the next even N; for one real
    function and an even order that is the moment itself.
    """
    highest = sum(series.orders)
    even = highest + highest % 2
    norms = torch.stack([_norms(generating, k, even, units[k], kind) for k in range(len(units))])
    norms = norms.clamp(min=1.0)  # as they are, unless the spread is only rounding
    rows = []
    for index in powers.multi_indices(series):
        degree = (sum(index) + 1) // 2
        row = torch.ones_like(units[0])
        for k, n in enumerate(index):
            row = row * norms[k, degree] ** n
        rows.append(row)
    return torch.stack(rows)


@torch.no_grad()
def spreads(generating: Generating, kind: str) -> Float[Tensor, "k b"]:
    """Root mean squares of the functions, about their means unless `kind` is "raw".

    At least their rounding errors, which are the spread of a constant function.
    """
    units = generating.magnitudes
    norms = [_norms(generating, k, 2, units[k], kind)[1] for k in range(len(units))]
    floor = _FLOOR * generating.depth * torch.finfo(torch.float64).eps
    return units * torch.stack(norms).clamp(min=floor)


def _norms(
    generating: Generating, k: int, even: int, unit: Float[Tensor, " b"], kind: str
) -> Float[Tensor, "m b"]:
    """(E|F_k|ᴺ)^(1/N) for N = 0 (as for 2), 2, 4, …, even; |Re| and |Im| added up if complex."""
    series = Truncated((max(even, 2),))
    alone = generating.only(k).real_parts()
    kind = "raw" if kind == "raw" else "central"
    total = torch.zeros((), dtype=torch.float64, device=unit.device)
    for part in range(alone.num_functions):
        x, centres = alone.only(part).about(kind)(series, unit[None])
        moments = powers.moments(series, x, centres, kind)[0::2]
        orders = torch.arange(0, 2 * len(moments), 2, dtype=torch.float64, device=unit.device)
        norms = moments[1:].clamp(min=0.0) ** (1 / orders[1:, None])
        norms = norms.cummax(0).values  # norms grow with the order: but for rounding
        total = total + torch.cat([norms[:1], norms])
    return total
