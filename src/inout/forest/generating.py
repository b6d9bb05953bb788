"""Moments and histograms of additive functions on forests, by their generating functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact
from torch import Tensor

from inout._core.checks import expect, expect_shape
from inout._core.errors import ArgumentError
from inout.forest import decoding
from inout.forest.expectations import as_item_values
from inout.kernels.forest import generating as op
from inout.kernels.forest.reference import reference_inside
from inout.semirings import Jet
from inout.series import Generating, Lanes
from inout.series.generating import Function, polar
from inout.series.moments import Method, weighted_gradients

if TYPE_CHECKING:
    from inout.forest.forest import Forest

_NAME = "items"  # the one kind of part that forests have


def item_values(forest: Forest, functions: Sequence[Any]) -> Inexact[Tensor, "k v"]:
    """Values of all items in float64 or complex128, 0 where no derivation uses them."""
    like = torch.zeros((), dtype=torch.complex128, device=forest.log_weights.device)
    used = _possible_items(forest).to(like.device)
    rows = []
    for number, f in enumerate(functions):
        values = torch.where(used, as_item_values(forest, f, like), 0.0)
        if not bool(values.detach().isfinite().all()):
            message = f": function {number} must be finite. Got NaN or inf among its values"
            raise ArgumentError("f", message)
        rows.append(values if _is_complex(f, values) else values.real)
    if not rows:
        raise ArgumentError("f", ": at least one function is needed. Got none")
    return torch.stack(rows)


def _possible_items(forest: Forest) -> Bool[Tensor, " v"]:
    """Which items some possible derivation has; an expected count may underflow."""
    # Here for the sake of start-up: only histograms and moments need it.
    from scipy.sparse import csr_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import breadth_first_order  # type: ignore[import-untyped]

    arrays = forest.arrays
    scores = torch.where(forest.item_weights.detach() == -torch.inf, -torch.inf, 0.0).double()
    alive = decoding.viterbi(forest, scores.cpu().contiguous().numpy()).best > -np.inf
    edges = np.repeat(np.arange(arrays.num_edges), np.diff(arrays.tail_offsets))
    good = np.ones(arrays.num_edges, np.bool_)
    np.logical_and.at(good, edges, alive[arrays.tails])
    good &= alive[arrays.heads]
    kept = good[edges]
    # Reached from one more item above all goals.
    top, goals = arrays.num_items, arrays.goals[alive[arrays.goals]]
    above = np.concatenate([arrays.heads[edges][kept], np.full(len(goals), top)])
    below = np.concatenate([arrays.tails[kept], goals])
    graph = csr_array((np.ones(len(above)), (above, below)), shape=(top + 1, top + 1))
    reached = np.zeros(top + 1, np.bool_)
    reached[breadth_first_order(graph, top, return_predecessors=False)] = True
    return torch.from_numpy(reached[:-1])


def _is_complex(f: Any, values: Tensor) -> bool:
    if isinstance(f, Mapping):
        return any(torch.as_tensor(x).is_complex() for x in f.values())
    if isinstance(f, Tensor):
        return f.is_complex()
    return bool(values.imag.any())


class _Rows:
    """Values of items as one row [b n] for each goal, and the inverse.

    If goals share no items, a row holds the items of its goal, and one pass serves all goals;
    otherwise each row holds all items and needs a pass of its own.
    """

    def __init__(self, forest: Forest) -> None:
        self.num_goals = len(forest.arrays.goals)
        self.together = self.num_goals == 1 or forest.goal_of_item is not None
        self.owners = torch.zeros(forest.num_items, dtype=torch.int64)
        if forest.goal_of_item is not None:
            self.owners = forest.goal_of_item.to("cpu", torch.int64)
        sizes = torch.bincount(self.owners, minlength=self.num_goals)
        # Of items sorted by their owners, how far each is from its owner's first.
        order = self.owners.argsort(stable=True)
        firsts = (sizes.cumsum(0) - sizes)[self.owners[order]]
        self.places = torch.empty_like(order)
        self.places[order] = torch.arange(len(order)) - firsts

    def spread(self, values: Inexact[Tensor, "k v"]) -> Inexact[Tensor, "k b n"]:
        if not self.together:
            return values[:, None].expand(-1, self.num_goals, -1)
        width = int(self.places.max()) + 1 if len(self.places) else 0
        owners, places = self.owners.to(values.device), self.places.to(values.device)
        table = values.new_zeros(len(values), self.num_goals, width)
        index = (torch.arange(len(values), device=values.device)[:, None], owners, places)
        return table.index_put(index, values)

    def gather(self, table: Inexact[Tensor, "k b n"]) -> Inexact[Tensor, "k v"]:
        return table[:, self.owners.to(table.device), self.places.to(table.device)]


def with_factors(
    forest: Forest, factors: Mapping[str, Any] | None
) -> tuple[Forest, Float[Tensor, " v"] | None]:
    """The forest with absolute values of factors in its weights, and the angles of all items."""
    if factors is None:
        return forest, None
    given = isinstance(factors, Mapping)
    expect(given, "factors", "must map relations to one number for each fact", factors)
    if unknown := set(factors) - set(forest.relations):
        raise ArgumentError("factors", f"names relations that have no facts: {sorted(unknown)}")
    relations, angles = dict(forest.relations), {}
    for name, values in factors.items():
        weights = relations[name]
        numbers = torch.as_tensor(values).to(weights.device)
        expect_shape(f"factors[{name!r}]", numbers, weights.shape)
        good = bool(numbers.detach().isfinite().all())
        expect(good, f"factors[{name!r}]", "must be finite", "NaN or inf")
        logs, angles[name] = polar(numbers)
        relations[name] = weights + logs.to(weights.dtype)
    turned = replace(forest, relations=relations)
    like = torch.zeros((), dtype=torch.float64, device=forest.log_weights.device)
    return turned, as_item_values(turned, angles, like)


def generating_function(
    forest: Forest,
    values: Inexact[Tensor, "k v"],
    weights: Callable[[], Tensor] | None = None,
    angles: Float[Tensor, " v"] | None = None,
) -> Generating:
    """The generating function of additive functions under the distribution of each goal.

    `weights` gives the items' log-weights, the forest's own if it is left out; items turn weights
    by `angles`, if given (`with_factors`).
    """
    rows, goals, arrays = _Rows(forest), forest.goal_items, forest.arrays
    item_weights = weights or (lambda: forest.item_weights)
    tier: op.Tier | None = forest.tier if forest.tier in (None, "cpu") else "reference"

    def per_goal(
        several: Sequence[Function], task: Callable[[Tensor, Tensor], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        dtype = torch.complex128 if any(f[_NAME].is_complex() for f in several) else torch.float64
        table = torch.stack([f[_NAME].to(dtype) for f in several])
        if rows.together or not rows.num_goals:
            return task(rows.gather(table) if rows.num_goals else values, goals)
        parts = [task(table[:, i], goals[i : i + 1]) for i in range(rows.num_goals)]
        return tuple(torch.cat(part, dim=1) for part in zip(*parts, strict=True))

    def evaluate(lanes: Lanes, several: Sequence[Function], shift: float) -> tuple[Tensor, Tensor]:
        w = item_weights()

        def task(values: Tensor, goals: Tensor) -> tuple[Tensor, ...]:
            return op.generating_function(arrays, lanes, w, values, goals, shift, tier)

        x, centres = per_goal(several, task)
        return x, centres

    def taylor(orders: tuple[int, ...], several: Sequence[Function]) -> Tensor:
        w = item_weights().double()

        def task(values: Tensor, goals: Tensor) -> tuple[Tensor, ...]:
            jet = Jet(orders, dtype=values.dtype, device=values.device)
            items = jet.lift(w, values.T)
            leaves, factors = items[: arrays.num_axioms], items[arrays.num_axioms :]
            jets = reference_inside(arrays, jet, leaves, factors, values.device)[goals]
            return (jets.flatten(1).movedim(1, 0),)

        return per_goal(several, task)[0]

    functions = tuple({_NAME: table} for table in rows.spread(values))
    turns = None if angles is None else {_NAME: rows.spread(angles[None])[0]}
    return Generating(evaluate, taylor, functions, 4 + 2 * _size(forest, rows), angles=turns)


def _size(forest: Forest, rows: _Rows) -> int:
    """The expected number of derived items in a derivation, the largest over the goals."""
    with torch.no_grad():
        counts = forest._item_counts().double().cpu()
    counts[: forest.arrays.num_axioms] = 0.0
    sizes = torch.zeros(max(rows.num_goals, 1), dtype=torch.float64)
    return math.ceil(float(sizes.index_add(0, rows.owners, counts).max()))


def weighted_counts(
    forest: Forest,
    functions: Sequence[Any],
    powers: Sequence[int],
    factors: Mapping[str, Any] | None,
    kind: str,
    method: Method,
    precision: float,
) -> Inexact[Tensor, " v"]:
    """E[F₁^n₁ ⋯ F_K^n_K N_v] for all items v, added up over the goals."""
    forest, angles = with_factors(forest, factors)
    values = item_values(forest, functions)
    moving = (forest.log_weights, values, *(() if angles is None else (angles,)))
    keep = torch.is_grad_enabled() and any(x.requires_grad for x in moving)
    with torch.inference_mode(False), torch.enable_grad():
        weights = forest.item_weights
        if not weights.requires_grad:
            weights = weights.detach().clone().requires_grad_()
        generating = generating_function(forest, values, lambda: weights, angles)
        return weighted_gradients(generating, powers, kind, method, precision, [weights], keep)[0]


def value_range(forest: Forest, values: Inexact[Tensor, " v"]) -> tuple[int, int]:
    """The least and the largest value of an integer-valued function over all derivations."""
    if values.is_complex() or bool((values.detach() != values.detach().round()).any()):
        raise ArgumentError("f", "must have whole numbers. Got others among its values")
    dead = forest.item_weights.detach() == -torch.inf
    ends = []
    for sign in (-1.0, 1.0):
        scores = torch.where(dead, -torch.inf, sign * values.detach()).cpu().contiguous()
        best = decoding.viterbi(forest, scores.numpy()).best[forest.arrays.goals]
        best = best[best > -math.inf]
        ends.append(round(float(best.max())) if len(best) else 0)
    return -ends[0], ends[1]
