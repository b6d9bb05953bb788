"""Moments from values of the generating function on circles, by FFT, with a bound on the error.

z ↦ E[exp(z · F)] is entire, and its Taylor coefficients aₙ are moments. Read off M equally spaced
points of a circle of radius r, aₙ comes with aₙ₊ₘ rᴹ and so on added: the error falls
exponentially in M. It and the effect of rounding are bounded through Cauchy's inequality,
|aₙ| ≤ G(R) / Rⁿ with G(R) = E[exp(R |F|)], which in turn is at most a sum of evaluations at real
points, E[exp(R F)] + E[exp(−R F)].

At the best radius for n the bound is nearly tight, so little is lost to rounding at any order.
Orders are handled in groups, each at the best radius of its highest order, as long as the lower
ones keep the requested digits.

Azuma & Matsumoto, theorems 3 and 4, truncate every factor instead and take 2N points, which
aliases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout._core.errors import PrecisionError
from inout.series import powers
from inout.series.accuracy import CAUTION, absolute_moments, scales_of_moments, spreads
from inout.series.generating import Generating
from inout.series.lanes import Points, Truncated

_OUTER = 4  # further radii that only serve to bound what is beyond the others
_OPERATIONS = 4.0  # roundings for each step of depth
_ODD = 1.0 + 2.0**-5  # a unit that is no power of two
_MARGIN = math.log(10.0)  # by which each of the two kinds of error stays below the precision


class Reading(NamedTuple):
    """What the values on circles say, in `units`."""

    x: Inexact[Tensor, "l b"]  # coefficients of the sum of weight · exp(z · (F − centres))
    total: Inexact[Tensor, "1 b"]  # that sum at z = 0, under absolute weights
    centres: Inexact[Tensor, "k b"]
    units: Float[Tensor, "k b"]
    scales: Float[Tensor, "l b"]  # absolute moments, which errors are relative to
    error: Float[Tensor, "l b"]  # bounds, relative to Z


def by_circle(
    generating: Generating,
    orders: tuple[int, ...],
    kind: str,
    precision: float,
    circled: int | None = None,
) -> tuple[Inexact[Tensor, "l b"], Float[Tensor, "l b"]]:
    """Moments [l b] up to `orders`, differentiable, and bounds of their errors.

    The errors are relative to the absolute moments. O(points) for each product, about two points
    for each order. Only the first `circled` functions, if given, are transformed.
    """
    series = Truncated(orders)
    circled = len(orders) if circled is None else circled
    found = read_off(generating, series, kind, precision, circled)
    error = found.error
    if kind == "cumulants":
        error = error * _amplification(series, found.scales)
    x = found.x / torch.where(found.total == 0, 1.0, found.total)
    values = powers.moments(series, x, found.centres, kind)
    return powers.scaled(series, values, found.units), error


def read_off(
    generating: Generating,
    series: Truncated,
    kind: str,
    precision: float,
    circled: int,
    only_highest: bool = False,
) -> Reading:
    """The coefficients of the generating function that a series has; see `by_circle`.

    With `only_highest`, none but those of the highest degree are differentiable.
    """
    base, orders = generating.about(kind), series.orders
    # Dividing by powers of two is exact; none is above the spread, so that no scale is below 1.
    units = spreads(generating, kind).log2().floor().exp2()
    degrees = torch.tensor(powers.total_degrees(series), device=units.device)
    x = other = torch.zeros_like(units[:1])
    odd = torch.ones_like(units).index_fill(
        0, torch.arange(circled, len(units), device=units.device), _ODD
    )
    log_error = torch.full((), -torch.inf, dtype=torch.float64, device=units.device)
    for circle in _circles(base, units, max(sum(orders), 1), precision):
        grad = torch.is_grad_enabled() and (circle.highest >= sum(orders) or not only_highest)
        with torch.set_grad_enabled(grad):
            found, total, centres = _coefficients(base, series, units, circle, circled)
        lowest = 0 if circle.lowest == 1 else circle.lowest
        here = ((degrees >= lowest) & (degrees <= circle.highest))[:, None]
        x = torch.where(here, found, x)
        known = circle.log_error(degrees)
        if generating.angles is None:  # Z itself is known
            known = known.where((degrees > 0)[:, None], -torch.inf)
        log_error = torch.where(here, known, log_error)
        if circled < len(orders):  # series round as partial sums do, which no circle bounds
            with torch.no_grad():  # other units round differently
                again, *_ = _coefficients(base, series, units * odd, circle, circled)
            other = torch.where(here, powers.scaled(series, again, odd), other)
    with torch.no_grad():
        if len(orders) == 1 and not generating.is_complex:
            about = "raw" if kind == "raw" else "central"
            normal = x / torch.where(total == 0, 1.0, total)
            scales = scales_of_moments(powers.moments(series, normal, centres, about))
        else:
            scales = absolute_moments(generating, series, units, kind)
        error = log_error.exp()
        if circled < len(orders):
            error = error + CAUTION * (x - other).abs()
        error = error * powers.factorials(series, units)[:, None] / scales
    return Reading(x, total, centres, units, scales, error)


@dataclass(frozen=True)
class _Circle:
    """Degrees lowest..highest are read off `points` points (for each variable) of one circle."""

    functions: int
    lowest: int
    highest: int
    points: int
    log_radius: Float[Tensor, " b"]
    log_rounding: Float[Tensor, " b"]  # of the values of the generating function
    log_outer: Float[Tensor, " b"]  # another radius, with the bound G there
    log_outer_bound: Float[Tensor, " b"]

    def log_error(self, degrees: Tensor) -> Float[Tensor, "l b"]:
        """Log of a bound on the error of coefficients of these degrees."""
        n = degrees.double()[:, None]
        wrapped = self.points * (self.log_radius - self.log_outer)
        # Over all multiples but 0, in each variable: (1 − q)^−K − 1.
        tails = torch.expm1(-self.functions * torch.log1p(-wrapped.exp())).log()
        aliasing = self.log_outer_bound - n * self.log_outer + tails
        return torch.logaddexp(self.log_rounding - n * self.log_radius, aliasing)


def _circles(
    generating: Generating, units: Float[Tensor, "k b"], highest: int, precision: float
) -> list[_Circle]:
    """Circles for the degrees 1..highest, and 0 unless that sum is Z, which is known."""
    rounding = math.log(_OPERATIONS * generating.depth * torch.finfo(torch.float64).eps)
    log_radii, log_bounds = _majorant(generating, units, highest)
    n = torch.arange(1 + highest, dtype=torch.float64, device=units.device)
    # [degree, radius, b]: log of the bound on a coefficient; it is the least over the radii.
    costs = log_bounds - n[:, None, None] * log_radii[:, None]
    best = costs[:, :-_OUTER].amin(1)
    # At the best radius a coefficient is smaller than its bound by about the root of 2 pi n.
    wanted = best - 0.5 * torch.log(2 * math.pi * (1 + n))[:, None] + math.log(precision) - _MARGIN
    # The bound is for all functions together, and what wraps around comes from each of them.
    wanted = wanted - math.log(generating.real_parts().num_functions)
    circles = []
    top, first = highest, int(generating.angles is None)
    while top >= first:
        chosen = costs[top, :-_OUTER].argmin(0)
        loss = rounding + costs.gather(1, chosen.expand(1 + highest, 1, -1))[:, 0] - wanted
        fits = (loss <= 0).all(1)
        lowest = top
        while lowest > first and fits[lowest - 1]:
            lowest -= 1
        radius = log_radii[chosen]
        outer, points = _points(log_radii, log_bounds, radius, wanted[lowest : top + 1], lowest)
        circles.append(
            _Circle(
                generating.num_functions,
                lowest,
                top,
                max(points, highest + 1),
                radius,
                rounding + log_bounds.gather(0, chosen[None])[0],
                log_radii[outer],
                log_bounds.gather(0, outer[None])[0],
            )
        )
        top = lowest - 1
    return circles


def _points(
    log_radii: Tensor, log_bounds: Tensor, radius: Tensor, wanted: Tensor, lowest: int
) -> tuple[Tensor, int]:
    """The outer radius of each element that needs the fewest points, and their number."""
    n = torch.arange(lowest, lowest + len(wanted), dtype=torch.float64, device=radius.device)
    excess = log_bounds - n[:, None, None] * log_radii[:, None] - wanted[:, None]  # [n, R, b]
    gap = log_radii[:, None] - radius
    needed = torch.where(gap > 0, excess.amax(0) / gap, torch.inf)
    outer = needed.nan_to_num(nan=torch.inf).argmin(0)
    most = float(needed.gather(0, outer[None]).amax())
    if not math.isfinite(most):
        raise PrecisionError(
            "parts of a sum cancel so well that the generating function leaves the range of floats "
            'on every circle: use method="polynomial"'
        )
    return outer, 2 * math.ceil(max(most, 1.0) / 2 + 0.5)


@torch.no_grad()
def _majorant(
    generating: Generating, units: Float[Tensor, "k b"], highest: int
) -> tuple[Float[Tensor, " r"], Float[Tensor, "r b"]]:
    """Logs of radii, and of bounds of E[exp(radius · Σ |F_k|)] there."""
    octaves = torch.arange(-8, math.ceil(math.log2(1 + highest)) + 3 + _OUTER, device=units.device)
    log_radii = octaves.double() * math.log(2.0)
    real = generating.real_parts()
    units = units.repeat_interleave(real.num_functions // len(units), 0)
    signs = torch.tensor(list(product((1.0, -1.0), repeat=real.num_functions)))
    signs = signs.to(log_radii)
    points = (signs[:, :, None] * log_radii.exp()).movedim(1, 0).flatten(1)
    values, _ = real(Points(points), units)
    bounds = values[1:].reshape(len(signs), len(log_radii), -1).sum(0)
    logs = torch.where(bounds.isfinite(), bounds, torch.inf).log()
    return log_radii, torch.where(values[:1] == 0, 0.0, logs)


def _coefficients(
    generating: Generating,
    series: Truncated,
    units: Float[Tensor, "k b"],
    circle: _Circle,
    circled: int,
) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "1 b"], Inexact[Tensor, "k b"]]:
    """Coefficients [l b] by FFT of the values on one circle, the value at 0, and the centres."""
    count, real = circle.points, not generating.is_complex
    angles = torch.arange(count, dtype=torch.float64, device=units.device) * (2 * math.pi / count)
    axes = [angles] * circled
    if real:  # the values at conjugate points are conjugate
        axes[-1] = angles[: count // 2 + 1]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)
    radius = (circle.log_radius / math.log(2.0)).round().exp2()  # as exact as the units
    rest = Truncated(series.orders[circled:]) if circled < len(series.orders) else None
    lanes = Points(torch.polar(torch.ones_like(grid), -grid), rest.orders if rest else ())
    values, total, centres = generating.relative(lanes, units / radius)
    size = rest.size if rest else 1
    values = values[size:].reshape(*(len(axis) for axis in axes), size, -1)
    dims = tuple(range(circled))
    if real:
        found = torch.fft.irfftn(values, s=[count] * circled, dim=dims)
        total = total.real
    else:
        found = torch.fft.ifftn(values, dim=dims)
    found = found[tuple(slice(size) for size in series.shape[:circled])].flatten(0, circled)
    degrees = torch.tensor(powers.total_degrees(series), dtype=torch.float64, device=units.device)
    if generating.angles is None:
        found = torch.cat([total, found[1:]])  # no error there
    # The centres came in units of radius as well.
    return found * radius ** -degrees[:, None], total, centres / radius


def _amplification(series: Truncated, scales: Float[Tensor, "l b"]) -> Float[Tensor, "l b"]:
    """How much larger the errors of cumulants are: the logarithm, with absolute values of terms."""
    u = scales / powers.factorials(series, scales)[:, None]
    u = torch.cat([torch.zeros_like(u[:1]), u[1:]])
    total = -powers.logarithm(series, torch.cat([torch.ones_like(u[:1]), -u[1:]]))
    degrees = torch.tensor(powers.total_degrees(series), dtype=torch.float64, device=u.device)
    return torch.where(u == 0, 1.0, degrees[:, None] * total / torch.where(u == 0, 1.0, u))
