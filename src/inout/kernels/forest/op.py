"""Log values and expected counts of a forest as torch functions, differentiable to any order.

Forward, first and second derivative run as compiled passes (`cpu/scaled.py`) or, for tensors on a
GPU, level by level (`by_level.py`). Third and higher derivatives fall back on the reference.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.forest import by_level
from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.cpu import scaled
from inout.kernels.forest.reference import reference_log_inside

Tier = Literal["cpu", "gpu", "reference"]


def choose_tier(weights: Tensor) -> Tier:
    """The tier that runs for these weights: compiled on the CPU, level by level elsewhere."""
    return "cpu" if weights.device.type == "cpu" else "gpu"


class _Passes:
    """One forest at one setting of its log-weights: values now, counts and tangents on demand."""

    def __init__(self, arrays: ForestArrays, weights: Tensor, tier: Tier) -> None:
        self.arrays, self.tier = arrays, tier
        self.weights = weights.detach().double().contiguous()
        if tier == "cpu":
            self.mantissas, self.exponents, self.shares = scaled.inside(
                *arrays.structure, self.weights.numpy()
            )
        else:
            self.values = by_level.inside(arrays, self.weights)

    def log_values(self, roots: Tensor) -> Tensor:
        if self.tier == "cpu":
            at = roots.numpy()
            return torch.from_numpy(scaled.log_values(self.mantissas[at], self.exponents[at]))
        return self.values.logs[roots]

    def _seeds(self, roots: Tensor, gradient: Tensor) -> Tensor:
        seeds = self.weights.new_zeros(self.arrays.num_items)
        return seeds.index_add_(0, roots, gradient.detach().double())

    def counts(self, roots: Tensor, gradient: Tensor) -> Tensor:
        seeds = self._seeds(roots, gradient)
        if self.tier == "cpu":
            counts = scaled.outside(
                *self.arrays.structure, self.mantissas, self.shares, seeds.numpy()
            )
            return torch.from_numpy(counts)
        return by_level.outside(self.arrays, self.values, seeds)

    def tangent(self, roots: Tensor, gradient: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        seeds, direction = self._seeds(roots, gradient), direction.detach().double().contiguous()
        if self.tier == "cpu":
            dots = scaled.tangent(
                *self.arrays.structure,
                self.mantissas,
                self.shares,
                seeds.numpy(),
                direction.numpy(),
            )
            log_dots, count_dots = (torch.from_numpy(x) for x in dots)
        else:
            log_dots, count_dots = by_level.tangent(self.arrays, self.values, seeds, direction)
        return log_dots[roots], count_dots

    def edge_probabilities(self) -> Tensor:
        if self.tier == "cpu":
            return torch.from_numpy(self.shares)
        return by_level.edge_probabilities(self.arrays, self.values)


class _LogValues(torch.autograd.Function):
    """weights [v] -> log values of the roots [r]."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, roots: Tensor, passes: _Passes) -> Tensor:
        ctx.save_for_backward(weights, roots)
        ctx.passes = passes
        return passes.log_values(roots).to(weights.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, roots = ctx.saved_tensors
        return _apply(_Counts, weights, gradients[0], roots, ctx.passes), None, None


class _Counts(torch.autograd.Function):
    """(weights [v], g [r]) -> gradient [v] of g . log values: the outside pass."""

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, gradient: Tensor, roots: Tensor, passes: _Passes
    ) -> Tensor:
        ctx.save_for_backward(weights, gradient, roots)
        ctx.passes = passes
        return passes.counts(roots, gradient).to(weights.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, gradient, roots = ctx.saved_tensors
        count_dots, log_dots = _apply(_Tangent, weights, gradient, gradients[0], roots, ctx.passes)
        return count_dots, log_dots, None, None


class _Tangent(torch.autograd.Function):
    """(weights, g, direction u) -> (Hessian of g . log values times u, Jacobian times u)."""

    @staticmethod
    def forward(
        ctx: Any,
        weights: Tensor,
        gradient: Tensor,
        direction: Tensor,
        roots: Tensor,
        passes: _Passes,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(weights, gradient, direction, roots)
        ctx.arrays = passes.arrays
        log_dots, count_dots = passes.tangent(roots, gradient, direction)
        return count_dots.to(weights.dtype), log_dots.to(weights.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *given, roots = ctx.saved_tensors
        higher = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases: the direction may itself depend on the weights, and what flows through that
            # dependence is for the caller's graph to carry, not for this one.
            weights, gradient, direction = inputs = [
                x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in given
            ]
            outputs = _reference_tangent(ctx.arrays, weights, gradient, direction, roots)
            results = torch.autograd.grad(
                outputs, inputs, gradients, create_graph=higher, materialize_grads=True
            )
        return (*results, None, None)


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply`, which torch leaves untyped."""
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def _reference_tangent(
    arrays: ForestArrays, weights: Tensor, gradient: Tensor, direction: Tensor, roots: Tensor
) -> tuple[Tensor, Tensor]:
    """What `_Tangent` computes, as torch code that autograd can differentiate again."""
    log_values = reference_log_inside(arrays, weights)[roots]
    # A root that cannot be derived is -inf whatever the weights: it must not turn into NaN.
    log_values = torch.where(log_values == -torch.inf, 0.0, log_values)
    (counts,) = torch.autograd.grad(
        log_values, weights, gradient, create_graph=True, materialize_grads=True
    )
    products = torch.autograd.grad(
        counts, (weights, gradient), direction, create_graph=True, materialize_grads=True
    )
    return products[0], products[1]


def log_values(
    arrays: ForestArrays,
    weights: Float[Tensor, " v"],
    roots: Int[Tensor, " r"],
    tier: Tier | None = None,
) -> Float[Tensor, " r"]:
    """Log values of the root items, given the log-weights of all items.

    Time and memory O(e); the gradient costs about twice the value, a Hessian-vector product
    about four times. Computed in float64 and returned in the dtype of `weights`.
    """
    tier = tier or choose_tier(weights)
    if tier == "reference":
        return reference_log_inside(arrays, weights)[roots]
    passes = _Passes(arrays, weights, tier)
    values: Tensor = _apply(_LogValues, weights, roots, passes)
    return values


def item_counts(
    arrays: ForestArrays,
    weights: Float[Tensor, " v"],
    roots: Int[Tensor, " r"],
    gradient: Float[Tensor, " r"],
    tier: Tier | None = None,
) -> Float[Tensor, " v"]:
    """Expected counts of all items: the gradient of gradient . log_values in the log-weights."""
    counts: Tensor
    tier = tier or choose_tier(weights)
    if tier == "reference":
        higher = torch.is_grad_enabled() and (weights.requires_grad or gradient.requires_grad)
        with torch.enable_grad():
            weights = weights if weights.requires_grad else weights.detach().requires_grad_()
            total = log_values(arrays, weights, roots, tier)
            total = torch.where(total == -torch.inf, 0.0, total)
            (counts,) = torch.autograd.grad(
                total, weights, gradient, create_graph=higher, materialize_grads=True
            )
        return counts
    passes = _Passes(arrays, weights, tier)
    counts = _apply(_Counts, weights, gradient, roots, passes)
    return counts


def edge_probabilities(
    arrays: ForestArrays, weights: Float[Tensor, " v"], tier: Tier | None = None
) -> Float[Tensor, " e"]:
    """Probability of every edge given its head, as plain numbers (not differentiable)."""
    tier = tier or choose_tier(weights)
    return _Passes(arrays, weights, "cpu" if tier == "cpu" else "gpu").edge_probabilities()
