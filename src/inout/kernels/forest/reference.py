"""The inside algorithm in any semiring and E[exp(z . F)], differentiable to any order."""

from __future__ import annotations

from typing import TypeVar

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout.kernels.forest import by_level
from inout.kernels.forest.arrays import ForestArrays
from inout.semirings import Log, Semiring
from inout.series import Lanes

Element = TypeVar("Element")


def reference_inside(
    arrays: ForestArrays,
    semiring: Semiring[Element],
    leaves: Element,
    factors: Element | None = None,
    device: torch.device | None = None,
) -> Element:
    """Values of all items, given those of the axioms (and a factor for each derived item).

    value(h) = factor(h) * sum over edges of h of the product of the tails' values. O(e) semiring
    operations in as many vectorised steps as the forest has levels.
    """
    values = leaves
    for level in by_level.levels_of(arrays, device or torch.device("cpu")):
        size = level.last - level.first
        total = semiring.zero(size)
        for group in level.groups:
            product = semiring.one(len(group.edges))
            for tail in group.tails.unbind(1):
                product = semiring.times(product, semiring.take(values, tail))
            total = semiring.plus(total, semiring.sum(product, group.heads, size))
        if factors is not None:
            places = torch.arange(level.first, level.last, device=device) - arrays.num_axioms
            total = semiring.times(total, semiring.take(factors, places))
        values = semiring.cat([values, total])
    return values


def reference_log_inside(arrays: ForestArrays, weights: Float[Tensor, " v"]) -> Float[Tensor, " v"]:
    """Log values of all items by plain autograd-recorded torch code: the slow twin of `op.py`."""
    semiring = Log(dtype=weights.dtype, device=weights.device)
    # Lifted, so that an axiom of weight zero has gradient 0 also where it is the goal itself.
    leaves, factors = semiring.lift(weights[: arrays.num_axioms]), weights[arrays.num_axioms :]
    return reference_inside(arrays, semiring, leaves, factors, weights.device)


def reference_generating_function(
    arrays: ForestArrays, lanes: Lanes, weights: Tensor, values: Tensor, goals: Tensor, shift: float
) -> tuple[Tensor, Tensor]:
    """What `generating.generating_function` returns, as code that autograd records.

    x[h] = exp(change of the log-weight) * exp(z . change of the value)
    * sum over edges of share * exp(z . (mean of the edge - mean of h)) * product of x[tails]
    """
    fixed = weights.detach()
    inside = by_level.inside(arrays, fixed)
    shares = by_level.edge_probabilities(arrays, inside)
    alive = inside.logs > -torch.inf
    values = torch.where(alive, values, 0.0)
    changes = torch.where(alive, weights, 0.0)
    growth = torch.where(alive, (changes - changes.detach()).exp(), 0.0)
    constants = values.detach()
    means = _means(arrays, shares, constants, shift)
    own = lanes.exponential(values - constants) * growth
    x = own[:, : arrays.num_axioms]
    for level in by_level.levels_of(arrays, fixed.device):
        total = own.new_zeros(lanes.size, level.last - level.first)
        for group in level.groups:
            heads = group.heads + level.first
            below = means[:, group.tails].sum(-1)
            product = lanes.exponential(constants[:, heads] + below - means[:, heads])
            for tail in group.tails.unbind(1):
                product = lanes.times(product, x[:, tail])
            total = total.index_add(1, group.heads, shares[group.edges] * product)
        x = torch.cat([x, lanes.times(own[:, level.first : level.last], total)], dim=1)
    return x[:, goals], means[:, goals]


def _means(
    arrays: ForestArrays, shares: Float[Tensor, " e"], values: Inexact[Tensor, "k v"], shift: float
) -> Inexact[Tensor, "k v"]:
    """The mean of each function below each item, moved by `shift` below derived ones."""
    means = values.clone()
    numbers = torch.arange(values.numel(), dtype=torch.float64, device=values.device)
    pattern = shift * torch.cos(1.0 + 7.0 * numbers).reshape(values.shape)
    for level in by_level.levels_of(arrays, values.device):
        for group in level.groups:
            below = shares[group.edges] * means[:, group.tails].sum(-1)
            means.index_add_(1, group.heads + level.first, below)
        here = slice(level.first, level.last)
        means[:, here] += pattern[:, here]
    return means
