"""`moments`: raw and central moments and cumulants of additive functions, three ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout._core.checks import expect_one_of
from inout._core.errors import ArgumentError, PrecisionError
from inout.series import powers
from inout.series.circle import by_circle
from inout.series.generating import Generating
from inout.series.lanes import Truncated
from inout.series.polynomials import by_polynomials
from inout.series.taylor import by_taylor

KINDS = ("raw", "central", "cumulants")
METHODS = ("auto", "polynomial", "circle", "taylor")
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
    Σ weight · F₁^n₁ ⋯ F_K^n_K are exp(log_partition) times the raw moments.
    """

    values: Inexact[Tensor, ...]
    error: Float[Tensor, ...]
    log_partition: Float[Tensor, "*b"]
    kind: str
    method: str

    def __getitem__(self, powers: int | tuple[int, ...]) -> Inexact[Tensor, "*b"]:
        place = (powers,) if isinstance(powers, int) else powers
        orders = self.values.shape[self.log_partition.ndim :]
        if len(place) != len(orders) or not all(
            0 <= n < size for n, size in zip(place, orders, strict=True)
        ):
            raise ArgumentError(
                "powers",
                f"must be {len(orders)} numbers up to {[size - 1 for size in orders]}. "
                f"Got {list(place)}",
            )
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
    method: str = "auto",
    precision: float | None = 1e-8,
) -> Moments:
    """All moments up to `orders`, with at least the requested precision."""
    orders = checked_orders(orders, generating.num_functions)
    expect_one_of("kind", kind, KINDS)
    expect_one_of("method", method, METHODS)
    if precision is not None and not 0 < precision < 1:
        raise ArgumentError("precision", f"must be between 0 and 1, or None. Got {precision}")
    single = len(orders) == 1 and not generating.is_complex
    choices = [method]
    if method == "auto" or not log_partition.numel():
        choices = ["polynomial"]
        if single and log_partition.numel():  # a circle needs few points then
            choices.insert(0 if orders[0] >= CIRCLE_FROM else 1, "circle")
    attempts: list[tuple[int, str, Tensor, Tensor]] = []
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
    shape = (*log_partition.shape, *Truncated(orders).shape)
    some = torch.where(log_partition == -torch.inf, 0.0, 1.0).to(values.device).detach()
    values = values.movedim(0, -1) * some.reshape(-1, 1)
    return Moments(
        values.reshape(shape), error.movedim(0, -1).reshape(shape), log_partition, kind, choice
    )


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
    if len(orders) != num_functions or num_functions == 0:
        wanted = f"must be one order for each of the {num_functions} functions"
        raise ArgumentError("orders", f"{wanted}. Got {list(orders)}")
    if any(order < 0 for order in orders):
        raise ArgumentError("orders", f"must be whole numbers >= 0. Got {list(orders)}")
    if sum(orders) > HIGHEST_ORDER:
        raise PrecisionError(
            f"orders of more than {HIGHEST_ORDER} in all leave the range of floats. "
            f"Got {list(orders)}; the whole distribution is in histogram(f)"
        )
    return tuple(orders)


def _evaluate(
    generating: Generating, orders: tuple[int, ...], kind: str, method: str, precision: float | None
) -> tuple[Tensor, Tensor]:
    if method == "circle":
        return by_circle(generating, orders, kind, precision or _USUAL_PRECISION)
    by = by_taylor if method == "taylor" else by_polynomials
    return by(generating, orders, kind, measure=precision is not None)


def _first_bad(values: Tensor, error: Tensor, precision: float | None) -> int:
    """The first lane that is not known well enough; their number if all are."""
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
    """Raise for the first order that is not known well enough, with what to do about it.

    `untried` is a method that may do better.
    """
    if precision is None:
        return
    finite = torch.ones_like(error).bool() if values is None else values.detach().isfinite()
    bad = ~((error <= precision) & finite).all(1)
    if not bool(bad.any()):
        return
    place = int(bad.nonzero()[0])
    at = powers.multi_indices(Truncated(orders))[place]
    if not bool(finite[place].all()):
        raise PrecisionError(
            f"the moment of order {_shown(at)} leaves the range of floats: divide the function "
            "by its spread, or ask for lower orders"
        )
    worst = float(error[place].max())
    advice = [f"ask for orders below {sum(at)} in all"] if sum(at) > 2 else []
    if worst < 0.1:
        advice.append(f"ask for a precision of {10 * worst:.0e}")
    if untried is not None:
        advice.append(f'use method="{untried}"')
    raise PrecisionError(
        f"the moment of order {_shown(at)} is only known to {worst:.0e} of its absolute "
        f"moment, and precision={precision:.0e} was asked for: "
        + (", or ".join(advice) or "parts of the function cancel too well for floats")
    )


def _shown(at: tuple[int, ...]) -> str:
    return str(at[0]) if len(at) == 1 else str(at)
