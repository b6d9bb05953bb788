"""Moments and histograms of additive functions: generating functions of any distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Inexact
from torch import Tensor

from inout._core.checks import expect_shape
from inout._core.errors import ArgumentError
from inout.distributions.arguments import broadcasts, refuse_non_tensors
from inout.semirings import Jet
from inout.series import Generating, Lanes
from inout.series.generating import Function, polar
from inout.series.moments import Method, weighted_gradients

if TYPE_CHECKING:
    from inout.distributions.base import StructuredDistribution

Functions = Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]]


def generating_function(
    d: StructuredDistribution, functions: Sequence[Function], angles: Function | None = None
) -> Generating:
    """The generating function of additive functions under each element of the batch.

    The parts turn weights by `angles`, if given; see `with_factors`.
    """
    used = _possible_parts(d)
    checked = tuple(_checked(d, k, f, used) for k, f in enumerate(functions))

    def evaluate(lanes: Lanes, several: Sequence[Function], shift: float) -> tuple[Tensor, Tensor]:
        return d._generating(lanes, _stacked(several), shift)

    def taylor(orders: tuple[int, ...], several: Sequence[Function]) -> Tensor:
        return d._log_series(orders, _stacked(several))

    depth = 4 + 2 * d.event_shape[0]
    turns = None if angles is None else _checked(d, 0, angles, used)
    return Generating(evaluate, taylor, checked, depth, angles=turns)


def with_factors(
    d: StructuredDistribution, factors: Function | None
) -> tuple[StructuredDistribution, Function | None]:
    """The distribution with absolute values of factors in its weights, and their angles."""
    if factors is None:
        return d, None
    d.refuse_unknown("factors", factors)
    twin, angles, potentials = copy(d), {}, d._expanded()
    twin.potentials = dict(d.potentials)
    for name, given in factors.items():
        refuse_non_tensors(**{f"factors[{name!r}]": given})
        if not broadcasts(given.shape, potentials[name].shape):
            expect_shape(f"factors[{name!r}]", given, potentials[name].shape)
        logs, angles[name] = polar(given)
        possible = potentials[name].detach() > -torch.inf
        if not bool((given.detach().isfinite() | ~possible).all()):
            raise ArgumentError(f"factors[{name!r}]", "must be finite. Got NaN or inf")
        if bool((logs != 0).any()):  # otherwise what elements share stays shared
            changed = potentials[name] + logs.to(potentials[name].dtype)
            twin.potentials[name] = torch.where(possible, changed, -torch.inf)
    return twin, angles


@torch.no_grad()
def _possible_parts(d: StructuredDistribution) -> dict[str, Bool[Tensor, " ..."]]:
    """Which parts [*b ...] some possible event has.

    A marginal may underflow, even if all events weigh the same. So the event with the most parts
    not yet seen is decoded, until it has none of them.
    """
    wide = d._in_double()
    alive = wide.log_partition() > -torch.inf
    found = {name: x > 0 for name, x in wide.marginals().items()}
    unseen = {name: (p > -torch.inf) & ~found[name] for name, p in wide._expanded().items()}
    seen = wide._supported({name: x.double() * 0 for name, x in unseen.items()}).marginals()
    more = True
    while any(bool(x.any()) for x in unseen.values()):
        for name, x in unseen.items():
            own = alive.reshape(*d.batch_shape, *[1] * len(d._part_shapes[name]))
            found[name] = found[name] | (x & own & (seen[name] > 0))
        left = {name: x & ~found[name] for name, x in unseen.items()}
        if not more and all(torch.equal(left[name], unseen[name]) for name in left):
            break
        unseen, more = left, False
        seen = wide._best_parts({n: x.double() for n, x in unseen.items()})
    return found


def _checked(
    d: StructuredDistribution, k: int, f: Function, used: Mapping[str, Bool[Tensor, " ..."]]
) -> dict[str, Tensor]:
    """A function as {name: values [b ...]} in float64 or complex128, 0 for unused parts.

    Dimensions of size 1 stay: families exploit functions that do not depend on a dimension.
    """
    if not isinstance(f, Mapping):
        raise ArgumentError("f", f": a function maps names of potentials to values. Got {f!r:.80}")
    d.refuse_unknown(f"function {k}", f)
    checked = {}
    for name, possible in used.items():
        values = f.get(name, torch.zeros((), device=possible.device))
        if isinstance(values, Tensor) and values.is_sparse:
            values = values.to_dense()
        refuse_non_tensors(**{f"function {k}[{name!r}]": values})
        wanted, own = possible.shape, len(d._part_shapes[name])
        if not broadcasts(values.shape, wanted):
            expect_shape(f"function {k}[{name!r}]", values, wanted)
        values = values.to(torch.promote_types(values.dtype, torch.float64))
        values = values.reshape(*[1] * (len(wanted) - values.ndim), *values.shape)
        values = values.expand(*d.batch_shape, *values.shape[len(d.batch_shape) :])
        shared = [i for i, size in enumerate(values.shape) if size < wanted[i]]
        seen = possible.byte().amax(shared, keepdim=True) > 0 if shared else possible
        values = torch.where(seen, values, 0.0) if seen.numel() else values
        if not bool(values.detach().isfinite().all()):
            raise ArgumentError(f"function {k}", f"must be finite. Got NaN or inf in {name!r}")
        checked[name] = values.reshape(d.batch_shape.numel(), *values.shape[values.ndim - own :])
    return checked


def _stacked(functions: Sequence[Function]) -> dict[str, Tensor]:
    """Values [k b ...] of all functions for each name."""
    dtype = torch.float64
    for f in functions:
        for values in f.values():
            dtype = torch.promote_types(dtype, values.dtype)
    return {
        name: torch.stack(
            torch.broadcast_tensors(*(f[name].to(dtype) for f in functions))  # type: ignore[no-untyped-call]
        )
        for name in functions[0]
    }


def log_series(
    d: StructuredDistribution, orders: tuple[int, ...], values: Mapping[str, Tensor]
) -> Inexact[Tensor, "l b"]:
    """log Σ weight · exp(z · F) by the explicit forest."""
    forest = d.forest()
    rows = []
    for name in forest.relations:
        whole = (len(orders), d.batch_shape.numel(), *d._part_shapes[name])
        rows.append(values[name].expand(whole).flatten(1))
    table = torch.cat(rows, 1).T[forest.axiom_rows]
    jet = Jet(orders, dtype=table.dtype, device=table.device)
    return forest.evaluate(jet, table).flatten(1).movedim(1, 0)


def weighted_marginals(
    d: StructuredDistribution,
    functions: Sequence[Function],
    powers: Sequence[int],
    factors: Function | None,
    kind: str,
    method: Method,
    precision: float,
) -> dict[str, Inexact[Tensor, ...]]:
    """E[F₁^n₁ ⋯ F_K^n_K N_v] for all parts v: the derivative of the sum without N_v."""
    keep = torch.is_grad_enabled() and (
        d._differentiable(d.potentials)
        or any(d._differentiable(f) for f in (*functions, factors or {}))
    )
    with torch.inference_mode(False), torch.enable_grad():
        twin = copy(d)
        twin.potentials = {
            name: p if p.requires_grad else p.detach().clone().requires_grad_()
            for name, p in d._expanded().items()
        }
        changed, angles = with_factors(twin, factors)
        generating = generating_function(changed, functions, angles)
        inputs = list(twin.potentials.values())
        found = weighted_gradients(generating, powers, kind, method, precision, inputs, keep)
        return dict(zip(twin.potentials, found, strict=True))


def refuse_misfits(d: StructuredDistribution, others: Mapping[str, Tensor]) -> None:
    """Raise unless `others` are the values [j ...] of j functions for one element."""
    d.refuse_unknown("others", others)
    for name, values in others.items():
        if values.shape[1:] != d._part_shapes[name] or not values.ndim:
            raise ArgumentError(
                f"others[{name!r}]",
                f"must be [j, {', '.join(map(str, d._part_shapes[name]))}]. "
                f"Got {list(values.shape)}",
            )
    if len({len(values) for values in others.values()}) != 1:
        raise ArgumentError(
            "others",
            "must have values of the same number j of functions for each potential. "
            f"Got {{{', '.join(f'{n}: {list(v.shape)}' for n, v in others.items())}}}",
        )


def expected_products(
    d: StructuredDistribution,
    weighted: Mapping[str, Inexact[Tensor, " ..."]],
    others: Mapping[str, Inexact[Tensor, " ..."]],
) -> Inexact[Tensor, "*b j"]:
    """Sums over parts of weighted marginals times each of j functions, given for one element."""
    terms = []
    for name, values in others.items():
        rows = weighted[name].reshape(d.batch_shape.numel(), d._part_shapes[name].numel())
        dtype = torch.promote_types(rows.dtype, values.dtype)
        terms.append((_table(values).to(dtype) @ rows.to(dtype).T).T)
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total.reshape(*d.batch_shape, total.shape[-1])


def _table(values: Inexact[Tensor, "j ..."]) -> Inexact[Tensor, "j p"]:
    """Values of j functions as a matrix, sparse if they are."""
    if not values.is_sparse:
        return values.flatten(1)
    values = values.coalesce()
    row, *place = values.indices()
    column = torch.zeros_like(row)
    for index, size in zip(place, values.shape[1:], strict=True):
        column = column * size + index
    whole = (len(values), values.shape[1:].numel())
    places = torch.stack([row, column])
    return torch.sparse_coo_tensor(places, values.values(), whole, check_invariants=True)


def value_range(d: StructuredDistribution, f: Function) -> tuple[int, int]:
    """The smallest and the largest value of an integer-valued function over all possible events.

    Found by decoding with the function's values as log-potentials.
    """
    values = {
        name: x.detach().reshape(*d.batch_shape, *x.shape[1:]).expand(p.shape)
        for (name, p), x in zip(d._expanded().items(), f.values(), strict=True)
    }
    possible = (d.log_partition() > -torch.inf).reshape(-1)
    ends = []
    for sign in (-1.0, 1.0):
        parts = d._best_parts({name: sign * x for name, x in values.items()})
        sums = [(values[n] * x).flatten(len(d.batch_shape)).sum(-1) for n, x in parts.items()]
        ends.append(torch.stack(sums).sum(0).reshape(-1)[possible])
    if not bool(possible.any()):
        return 0, 0
    return round(float(ends[0].min())), round(float(ends[1].max()))


def refuse_fractions(f: Function) -> None:
    """Raise unless all values of a function are integers."""
    for name, values in f.items():
        if values.is_complex() or bool((values.detach() != values.detach().round()).any()):
            raise ArgumentError("f", f"must have whole numbers. Got others among its {name!r}")
