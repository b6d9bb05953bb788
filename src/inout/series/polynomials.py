"""Moments by truncated power series: exact but for rounding, which is measured."""

from __future__ import annotations

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout.series import powers
from inout.series.generating import Generating
from inout.series.lanes import Truncated

# Up to here rounding costs less than six of sixteen digits whatever the functions; it is not
# worth a second evaluation.
SAFE_DEGREE = 8
_SHIFT = 2.0**-5  # in units of the function's spread
_CAUTION = 16.0  # times the difference that two roundings make
_FLOOR = 1e-8  # spreads below this share of the largest value count as rounding themselves


def by_polynomials(
    generating: Generating, orders: tuple[int, ...], kind: str
) -> tuple[Inexact[Tensor, "l b"], Float[Tensor, "l b"]]:
    """Moments [l b] up to `orders`, differentiable, and estimates of their relative errors.

    O(size²) for each product of the inside algorithm.
    """
    series, units = Truncated(orders), generating.magnitudes
    x, centres = (generating.raw if kind == "raw" else generating)(series, units)
    found = finished(series, x, centres, torch.ones_like(units), kind)
    return powers.scaled(series, found, units), rounding(generating, series, kind, found)


def finished(
    series: Truncated, x: Tensor, centres: Tensor, units: Tensor, kind: str
) -> Inexact[Tensor, "l b"]:
    """Moments of the kind asked for, from a series about centres near the means, in `units`."""
    if kind != "raw":
        off = powers.linear(series, x)
        x = powers.shifted(series, x, -off)
        if kind == "cumulants":
            x = powers.logarithm(series, x)
            x = powers.with_linear(series, x, off + centres)
    return powers.scaled(series, x * powers.factorials(series, units)[:, None], units)


def relative_moments(
    generating: Generating, powers_: tuple[int, ...], kind: str
) -> tuple[Float[Tensor, " b"], Inexact[Tensor, " b"]]:
    """Sums of weights, and of weights times F₁^n₁ ⋯ F_K^n_K, in units of a constant equal to Z.

    Their derivatives are those of the sums: what moments of conditional distributions need.
    Functions are taken about their means, as constants, unless `kind` is "raw".
    """
    series, units = Truncated(powers_), generating.magnitudes
    x, _ = generating.relative(series, units)
    if kind != "raw":
        x = powers.shifted(series, x, -powers.linear(series, x.detach()))
    return x[0].real, finished(series, x, torch.zeros_like(units), units, "raw")[-1]


@torch.no_grad()
def rounding(
    generating: Generating, series: Truncated, kind: str, found: Inexact[Tensor, "l b"]
) -> Float[Tensor, "l b"]:
    """Estimated errors of moments, relative to the absolute moments; all in units of magnitudes.

    The same sum with other centres has other roundings; the difference, largest over the lower
    orders, is what rounding does here. Up to `SAFE_DEGREE` in all nothing is measured.
    """
    units = generating.magnitudes
    degrees = torch.tensor(powers.total_degrees(series), device=units.device)
    least = torch.finfo(torch.float64).eps * generating.depth
    error = torch.full(found.shape, least, dtype=torch.float64, device=units.device)
    if sum(series.orders) <= SAFE_DEGREE:
        return error
    base = generating.raw if kind == "raw" else generating
    spread = spreads(generating, kind)
    other = finished(series, *base(series, spread, _SHIFT), torch.ones_like(units), kind)
    found = powers.scaled(series, found, units / spread)
    if kind != "cumulants" and len(series.orders) == 1 and not found.is_complex():
        scales = scales_of_moments(found)
    else:
        scales = absolute_moments(generating, series, spread, kind)
    off = (found - other).abs() / scales
    off = torch.where(off.isnan(), torch.inf, off)  # beyond the range of floats
    for degree in range(2, 1 + sum(series.orders)):
        upto = torch.where(((degrees > 1) & (degrees <= degree))[:, None], off, 0.0).amax(0)
        error = torch.where((degrees == degree)[:, None], least + _CAUTION * upto, error)
    return error


def scales_of_moments(moments: Float[Tensor, "l b"]) -> Float[Tensor, "l b"]:
    """Absolute moments of one real function in units of its spread, from its moments.

    An even one is the moment itself, an odd one at least that power of the norm before it. None
    is below 1, unless the spread is only rounding.
    """
    n = torch.arange(len(moments), dtype=torch.float64, device=moments.device)
    even = (n - n % 2).long()
    return moments[even].clamp(min=1.0) ** (n / even.clamp(min=1))[:, None]


def absolute_moments(
    generating: Generating, series: Truncated, units: Float[Tensor, "k b"], kind: str
) -> Float[Tensor, "l b"]:
    """Bounds of E|F₁|^n₁ ⋯ |F_K|^n_K from above, in units of the functions' spreads.

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

    Never below a tiny share of the largest value: what is constant has a spread of rounding only.
    """
    units = generating.magnitudes
    norms = [_norms(generating, k, 2, units[k], kind)[1] for k in range(len(units))]
    return units * torch.stack(norms).clamp(min=_FLOOR)


def _norms(
    generating: Generating, k: int, even: int, unit: Float[Tensor, " b"], kind: str
) -> Float[Tensor, "m b"]:
    """(E|F_k|ᴺ)^(1/N) for N = 0 (as for 2), 2, 4, …, even; |Re| and |Im| added up if complex."""
    series = Truncated((max(even, 2),))
    alone = generating.only(k).real_parts()
    total = torch.zeros((), dtype=torch.float64, device=unit.device)
    for part in range(alone.num_functions):
        real = alone.only(part)
        x, centres = (real.raw if kind == "raw" else real)(series, unit[None])
        about = "raw" if kind == "raw" else "central"
        moments = finished(series, x, centres, torch.ones_like(unit)[None], about)[0::2]
        orders = torch.arange(0, 2 * len(moments), 2, dtype=torch.float64, device=unit.device)
        norms = moments[1:].clamp(min=0.0) ** (1 / orders[1:, None])
        norms = norms.cummax(0).values  # norms grow with the order: but for rounding
        total = total + torch.cat([norms[:1], norms])
    return total
