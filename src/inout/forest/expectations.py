"""Expected counts by label; entropy, expectations and covariances, from derivatives of log Z."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Inexact
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.kernels.forest import op

if TYPE_CHECKING:
    from inout.forest.forest import Forest


def as_item_values(
    forest: Forest,
    f: Tensor | Mapping[str, Any] | Callable[[Hashable], complex],
    like: Tensor | None = None,
) -> Inexact[Tensor, " v"]:
    """An additive function as one number per item; see `Forest.expectation`.

    The numbers are `like` another tensor, the log-weights if it is left out.
    """
    like = forest.log_weights if like is None else like
    if isinstance(f, Tensor):
        wanted = f"must have one value per item, [{forest.num_items}]"
        expect(f.shape == (forest.num_items,), "f", wanted, list(f.shape))
        return f.to(like)
    if isinstance(f, Mapping):
        parts = []
        for name, weights in forest.relations.items():
            values = _numbers(f"f[{name!r}]", f.get(name, torch.zeros_like(weights)), like)
            wanted = f"must have one value per fact, [{len(weights)}]"
            expect(values.shape == weights.shape, f"f[{name!r}]", wanted, list(values.shape))
            parts.append(values)
        if unknown := set(f) - set(forest.relations):
            raise ArgumentError("f", f"names relations that have no facts: {sorted(unknown)}")
        axioms = torch.cat(parts)[forest.axiom_rows.to(like.device)]
        return torch.nn.functional.pad(axioms, (0, forest.num_items - len(axioms)))
    if callable(f):
        return _numbers("what f gives", [f(label) for label in forest.labels], like)
    raise ArgumentError(
        "f", f"must be a tensor, a mapping of relations or a function of a label. Got {type(f)}"
    )


def _numbers(name: str, values: Any, like: Tensor) -> Tensor:
    """`values` as a tensor like another one."""
    try:
        # Straight into the dtype of the weights: torch would make lists float32 on the way.
        return torch.as_tensor(values, dtype=like.dtype).to(like)
    except (TypeError, ValueError) as error:
        raise ArgumentError(name, f"must be numbers. Got {values!r:.80}") from error


def _for_each_goal(
    forest: Forest, per_item: Callable[[Tensor], Float[Tensor, " v"]]
) -> Float[Tensor, "*g"]:
    """For each goal the sum over items of `per_item(goals)`, which is additive over goals.

    One pass serves all goals of a batch, whose items belong to one goal each; goals that share
    items need a pass each.
    """
    goals = forest.goal_items
    if forest.goal_of_item is not None:
        owners = forest.goal_of_item.to(goals.device)
        terms = per_item(goals)
        return terms.new_zeros(len(goals)).index_add(0, owners, terms)
    sums = [per_item(goal[None]).sum() for goal in goals]
    if forest.single_goal:
        return sums[0]
    return torch.stack(sums) if sums else forest.log_weights.new_zeros(0)


def expectation(forest: Forest, f: Any) -> Float[Tensor, "*g"]:
    """E[F] for each goal."""
    values = as_item_values(forest, f)
    return _for_each_goal(forest, lambda goals: _weigh(forest._item_counts(goals), values))


def _weigh(counts: Tensor, values: Tensor) -> Tensor:
    """counts * values, with 0 * -inf = 0."""
    return counts * torch.where(counts == 0, 0.0, values)


def entropy(forest: Forest) -> Float[Tensor, "*g"]:
    """log Z - E[log weight] for each goal."""
    # The difference of two numbers that may be large: in float32 nothing might be left of it.
    wide = in_double(forest)
    result = wide.log_partition() - expectation(wide, wide.item_weights)
    return not_negative(result).to(forest.log_weights.dtype)


def not_negative(x: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
    """x, with 0 for what only rounding made negative; -inf stays, and so do gradients."""
    return x + torch.where((x < 0) & (x > -torch.inf), -x, 0.0).detach()


def in_double(forest: Forest) -> Forest:
    """The same forest with its weights in float64."""
    return replace(forest, relations={n: w.double() for n, w in forest.relations.items()})


def covariance(forest: Forest, f: Any, g: Any) -> Float[Tensor, "*g"]:
    """Cov[F, G] for each goal: the Hessian of log Z between the two."""
    left, right = as_item_values(forest, f), as_item_values(forest, g)
    differentiable = forest.log_weights.requires_grad or left.requires_grad
    keep = torch.is_grad_enabled() and differentiable

    def terms(goals: Tensor) -> Tensor:
        with torch.enable_grad():
            weights = forest.item_weights
            if not weights.requires_grad:
                weights = weights.detach().requires_grad_()
            ones = torch.ones(len(goals), dtype=weights.dtype, device=weights.device)
            counts = op.item_counts(forest.arrays, weights, goals, ones, forest.tier)
            mean = _weigh(counts, left).sum()
            if not mean.requires_grad:  # the reference knows that these counts never change
                return torch.zeros_like(counts)
            (row,) = torch.autograd.grad(mean, weights, create_graph=keep, materialize_grads=True)
        return row * torch.where(counts == 0, 0.0, right)

    return _for_each_goal(forest, terms)


def item_and_edge_posteriors(forest: Forest) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Expected counts of items [v] and of edges [e], outside any graph."""
    with torch.no_grad():
        counts = forest.expected_counts().double().cpu().numpy()
        shares = op.edge_probabilities(forest.arrays, forest.item_weights, forest.tier)
    return counts, shares.cpu().numpy() * counts[forest.arrays.heads]


def local_probabilities(forest: Forest) -> Float[Tensor, " e"]:
    """exp(sum of log tails - log head) for each edge."""
    arrays, device = forest.arrays, forest.log_weights.device
    everything = torch.arange(arrays.num_items, device=device)
    values = op.log_values(arrays, forest.item_weights.double(), everything, forest.tier)
    heads = torch.from_numpy(arrays.heads).long().to(device)
    tails = torch.from_numpy(arrays.tails).long().to(device)
    lengths = torch.from_numpy(arrays.tail_offsets).to(device).diff()
    edge_of_tail = torch.repeat_interleave(torch.arange(arrays.num_edges, device=device), lengths)
    products = values.new_zeros(arrays.num_edges).index_add(0, edge_of_tail, values[tails])
    dead = products == -torch.inf
    # Where an edge weighs nothing its share is 0, also below a head of weight nothing.
    logs = torch.where(dead, 0.0, products) - torch.where(dead, 0.0, values[heads])
    shares = torch.where(dead, 0.0, logs.exp())
    # Large logarithms are rounded coarsely: without this the shares of a head miss 1 by as much.
    totals = shares.new_zeros(arrays.num_items).index_add(0, heads, shares)[heads]
    return (shares / torch.where(dead, 1.0, totals)).to(forest.log_weights.dtype)


class Marginals(Mapping[Hashable, float]):
    """Expected count of each item by label; `tensor` [v] holds them by number, with gradient.

    Items with the same label (a fact given twice) are added up.
    """

    def __init__(self, labels: Sequence[Hashable], tensor: Float[Tensor, " v"]) -> None:
        self.labels, self.tensor = labels, tensor

    @cached_property
    def _by_label(self) -> dict[Hashable, float]:
        table: dict[Hashable, float] = {}
        for label, count in zip(self.labels, self.tensor.tolist(), strict=True):
            table[label] = table.get(label, 0.0) + count
        return table

    def __getitem__(self, label: Hashable) -> float:
        return self._by_label[label]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._by_label)

    def __len__(self) -> int:
        return len(self._by_label)

    def __repr__(self) -> str:
        rows = ", ".join(f"{label}: {count:.4g}" for label, count in list(self.items())[:6])
        return f"Marginals({{{rows}{', …' if len(self) > 6 else ''}}})"
