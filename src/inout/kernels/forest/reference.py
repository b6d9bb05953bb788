"""The inside algorithm in any semiring, readable and differentiable to any order."""

from __future__ import annotations

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.levels import levels_of
from inout.semirings import Log, Semiring

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
    for level in levels_of(arrays, device or torch.device("cpu")):
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
