"""`moments`: raw and central moments and cumulants of additive functions; their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout._core.checks import expect, expect_one_of
from inout._core.errors import ArgumentError, PrecisionError
from inout.series import powers
from inout.series.accuracy import rounding
from inout.series.circle import by_circle, read_off
from inout.series.generating import Generating
from inout.series.lanes import Truncated
from inout.series.polynomials import by_polynomials, by_taylor

KINDS = ("raw", "central", "cumulants")
METHODS = ("auto", "polynomial", "circle", "taylor")
Method = str | tuple[str, ...]  # of all functions, or of each
HIGHEST_ORDER = 150  # n! and the moments themselves leave the range of floats soon after
# Measured (benchmarks/results/moments.md): a circle is quicker from order 16 to 32 on for functions
# of pairs of labels, and hardly ever for functions of labels.
CIRCLE_FROM = 33
_USUAL_PRECISION = 1e-8


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of F₁, …, F_K of every order up to some (n₁, …, n_K) at once.

    `values` [*b 1+n₁ … 1+n_K]; `moments[2, 1]` is that of F₁² F₂, [*b]. `error` has the same
    shape: a bound (method "circle") or an estimate ("polynomial") of the error of each value,
    relative to the absolute moment E|F₁|^n₁ ⋯ |F_K|^n_K (of several functions: to the product of
    their norms of that order, which is at least as much); NaN if it was not measured. The sums
    Σ weight · F₁^n₁ ⋯ F_K^n_K are exp(log_partition) times the raw moments, also where factors
    make the weights signed or complex: log_partition is then that of their absolute values.
    """

    values: Inexact[Tensor, ...]
    error: Float[Tensor, ...]
    log_partition: Float[Tensor, "*b"]
    kind: str
    method: str

    def __getitem__(self, powers: int | tuple[int, ...]) -> Inexact[Tensor, "*b"]:
        place = (powers,) if isinstance(powers, int) else powers
        orders = self.values.shape[self.log_partition.ndim :]
        fits = len(place) == len(orders) and all(
            0 <= n < size for n, size in zip(place, orders, strict=True)
        )
        most = [size - 1 for size in orders]
        expect(fits, "powers", f"must be {len(orders)} numbers up to {most}", list(place))
        values = self.values
        for n in reversed(place):
            values = values[..., n]
        return values

    def __repr__(self) -> str:
        return f"Moments({self.kind}, by {self.method}: {self.values})"


def moments(
    generating: Generating,
    orders: Sequence[int],
    log_partition: Float[Tensor, "*b"],
    kind: str = "raw",
    method: Method = "auto",
    precision: float | None = 1e-8,
) -> Moments:
    """All moments up to `orders`, with at least the requested precision."""
    orders = checked_orders(orders, generating.num_functions)
    expect_one_of("kind", kind, KINDS)
    method = checked_method(method, generating, kind)
    fine = precision is None or 0 < precision < 1
    expect(fine, "precision", "must be between 0 and 1, or None", precision)
    single = len(orders) == 1 and not generating.is_complex
    choices: list[Method] = [method]
    if method == "auto" or not log_partition.numel():
        choices = ["polynomial"]
        if single and log_partition.numel():  # a circle needs few points then
            choices.insert(0 if orders[0] >= CIRCLE_FROM else 1, "circle")
    attempts: list[tuple[int, Method, Tensor, Tensor]] = []
    for choice in choices:
        try:
            values, error = _evaluate(generating, orders, kind, choice, precision)
        except PrecisionError:
            if choice == choices[-1] and not attempts:
                raise
            continue
        attempts.append((_first_bad(values, error, precision), choice, values, error))
        if attempts[-1][0] == len(error):
            break
    _, choice, values, error = max(attempts, key=lambda attempt: attempt[0])
    untried = "circle" if single and method in ("polynomial", "taylor") else None
    refuse_imprecise(orders, error, precision, values, untried)
    values = values if generating.has_complex_moments else values.real
    shape = (*log_partition.shape, *Truncated(orders).shape)
    some = torch.where(log_partition == -torch.inf, 0.0, 1.0).to(values.device).detach()
    values = values.movedim(0, -1) * some.reshape(-1, 1)
    return Moments(
        values.reshape(shape),
        error.movedim(0, -1).reshape(shape),
        log_partition,
        kind,
        choice if isinstance(choice, str) else ", ".join(choice),
    )


def weighted_gradients(
    generating: Generating,
    exponents: Sequence[int],
    kind: str,
    method: Method,
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
    orders = checked_orders(exponents, generating.num_functions)
    method = checked_method(method, generating, kind)
    expect(method != "taylor", "method", 'must be "auto", "polynomial" or "circle"', method)
    if method == "auto":
        single = len(orders) == 1 and not generating.is_complex
        method = "circle" if single and orders[0] >= CIRCLE_FROM else "polynomial"
    sums, total = _weighted_sums(generating, orders, kind, method, precision)
    if not sums.requires_grad:  # events without parts
        return [torch.zeros_like(x) for x in inputs]
    seeds = 1 / total if keep else 1 / total.detach()
    sums = sums if generating.has_complex_moments else sums.real
    sides = [
        torch.autograd.grad(
            side, inputs, seeds, create_graph=keep, retain_graph=True, materialize_grads=True
        )
        for side in ((sums.real, sums.imag) if sums.is_complex() else (sums,))
    ]
    return list(sides[0]) if len(sides) == 1 else list(map(torch.complex, *sides))


def _weighted_sums(
    generating: Generating, orders: tuple[int, ...], kind: str, method: Method, precision: float
) -> tuple[Inexact[Tensor, " b"], Float[Tensor, " b"]]:
    """Σ weight · F₁^n₁ ⋯ F_K^n_K, in units of a constant that equals Z, and Z in these units."""
    if method == "polynomial":
        series, units = Truncated(orders), generating.magnitudes
        x, total, _ = generating.about(kind).relative(series, units)
        error = None
    else:
        places, circled = _circled_first(method, len(orders))
        generating, orders = generating.ordered(places), tuple(orders[k] for k in places)
        series = Truncated(orders)
        found = read_off(generating, series, kind, precision, circled, kind == "raw")
        x, total, units, error = found.x, found.total, found.units, found.error
    z = torch.where(total[0].real == 0, 1.0, total[0].real)
    means = powers.linear(series, x.detach() / z.detach())
    if kind == "central":
        x = powers.shifted(series, x, -means)
    found_moments = powers.moments(series, x, torch.zeros_like(means), "raw")
    if error is None:
        error = rounding(generating, series, kind, found_moments.detach() / z.detach())
    refuse_imprecise(orders, error, precision)
    return powers.scaled(series, found_moments, units)[-1], z


def as_lists(functions: Any, orders: int | Sequence[int]) -> tuple[list[Any], list[int]]:
    """One function and one order, or as many of each, as lists."""
    several = list(functions) if isinstance(functions, list | tuple) else [functions]
    try:
        numbers = [index(order) for order in (orders if isinstance(orders, Sequence) else [orders])]
    except TypeError as error:
        raise ArgumentError("orders", f"must be whole numbers. Got {orders!r}") from error
    return several, numbers


def checked_orders(orders: Sequence[int], num_functions: int) -> tuple[int, ...]:
    """Orders as a tuple, one for each function."""
    wanted = f"must be one order for each of the {num_functions} functions"
    expect(len(orders) == num_functions > 0, "orders", wanted, list(orders))
    expect(min(orders) >= 0, "orders", "must be whole numbers >= 0", list(orders))
    if sum(orders) > HIGHEST_ORDER:
        raise PrecisionError(
            f"orders must sum to at most {HIGHEST_ORDER}: higher moments leave the range of "
            f"floats. Got {list(orders)}; histogram(f) gives the whole distribution"
        )
    return tuple(orders)


def checked_method(method: Any, generating: Generating, kind: str) -> Method:
    """One of METHODS, or one of "polynomial" and "circle" for each function."""
    if isinstance(method, list | tuple):
        count = generating.num_functions
        good = len(method) == count and set(method) <= {"polynomial", "circle"}
        wanted = f'must be "polynomial" or "circle" for each of the {count} functions'
        expect(good, "method", wanted, method)
        method = tuple(method) if len(set(method)) > 1 else method[0]
    else:
        expect_one_of("method", method, METHODS)
    if generating.angles is not None:
        expect(kind == "raw", "kind", 'must be "raw" with factors', kind)
        expect(method != "taylor", "method", 'must not be "taylor" with factors', method)
    return method  # type: ignore[no-any-return]


def _circled_first(method: Method, count: int) -> tuple[list[int], int]:
    """The functions, those to be transformed first, and their number."""
    each = [method] * count if isinstance(method, str) else list(method)
    return sorted(range(count), key=lambda k: each[k] != "circle"), each.count("circle")


def _evaluate(
    generating: Generating,
    orders: tuple[int, ...],
    kind: str,
    method: Method,
    precision: float | None,
) -> tuple[Tensor, Tensor]:
    if method in ("polynomial", "taylor"):
        series = Truncated(orders)
        one = (by_taylor if method == "taylor" else by_polynomials)(generating, series, kind)
        values = powers.scaled(series, one, generating.magnitudes)
        if precision is None:
            return values, torch.full_like(values.real, torch.nan, dtype=torch.float64)
        return values, rounding(generating, series, kind, one)
    places, circled = _circled_first(method, len(orders))
    inner, shape = generating.ordered(places), [1 + orders[k] for k in places]
    found = by_circle(
        inner, tuple(orders[k] for k in places), kind, precision or _USUAL_PRECISION, circled
    )
    back = [places.index(k) for k in range(len(orders))]
    values, error = (
        x.reshape(*shape, -1).permute(*back, -1).flatten(0, len(orders) - 1) for x in found
    )
    return values, error


def _first_bad(values: Tensor, error: Tensor, precision: float | None) -> int:
    """The first lane that is not accurate enough; their number if all are."""
    if precision is None:
        return len(error)
    good = ((error <= precision) & values.detach().isfinite()).all(1)
    return int(good.long().cumprod(0).sum())


def refuse_imprecise(
    orders: tuple[int, ...],
    error: Float[Tensor, "l b"],
    precision: float | None,
    values: Inexact[Tensor, "l b"] | None = None,
    untried: str | None = None,
) -> None:
    """Raise for the first order that is not accurate enough, with advice.

    `untried` is a method that may do better.
    """
    if precision is None:
        return
    values = error if values is None else values
    place = _first_bad(values, error, precision)
    if place == len(error):
        return
    at = powers.multi_indices(Truncated(orders))[place]
    name = f"the moment of order {at[0] if len(at) == 1 else at}"
    if not bool(values[place].isfinite().all()):
        raise PrecisionError(
            f"{name} leaves the range of floats: divide the function by its spread, or compute "
            "lower orders only"
        )
    worst = float(error[place].max())
    advice = [f"lower the orders to a sum below {sum(at)}"] if sum(at) > 2 else []
    if worst < 0.1:
        advice.append(f"set precision={10 * worst:.0e}")
    if untried is not None:
        advice.append(f'use method="{untried}"')
    raise PrecisionError(
        f"{name} is only accurate to {worst:.0e} of its absolute moment, not to "
        f"precision={precision:.0e}: "
        + (", or ".join(advice) or "parts of the function cancel too well for floats")
    )
