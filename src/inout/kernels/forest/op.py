"""Log values and expected counts of a forest as torch functions, differentiable to any order.

Forward, first and second derivative run as compiled passes (`cpu/scaled.py`) or, for tensors on a
GPU, level by level (`by_level.py`). Third and higher derivatives fall back on the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.kernels.autograd import differentiable_gradients, differentiable_log_partition
from inout.kernels.forest import by_level
from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.cpu import recomputed, scaled
from inout.kernels.forest.cpu.recomputed import Blocks
from inout.kernels.forest.reference import reference_log_inside
from inout.kernels.recomputing import Memory, refuse_less
from inout.kernels.tiers import Tier, choose_tier


class _Passes:
    """The roots' log Z [r] of one forest at one setting of its log-weights, on the CPU."""

    def __init__(self, arrays: ForestArrays, weights: Tensor, roots: Tensor) -> None:
        self.arrays, self.roots, self.dtype = arrays, roots, weights.dtype
        self.weights = weights.detach().double().contiguous()
        self.prepare()

    def prepare(self) -> None:
        self.mantissas, self.exponents, self.shares = (
            torch.from_numpy(x) for x in scaled.inside(self.arrays.structure, self.weights.numpy())
        )

    @property
    def log_z(self) -> Tensor:
        mantissas, exponents = self.mantissas[self.roots], self.exponents[self.roots]
        return torch.from_numpy(scaled.log_values(mantissas.numpy(), exponents.numpy()))

    def counts(self, seeds: Tensor) -> Tensor:
        values = self.mantissas.numpy(), self.shares.numpy()
        return torch.from_numpy(scaled.outside(self.arrays.structure, *values, seeds.numpy()))

    def dots(self, seeds: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        values = self.mantissas.numpy(), self.shares.numpy()
        log_dots, count_dots = scaled.tangent(
            self.arrays.structure, *values, seeds.numpy(), direction.numpy()
        )
        return torch.from_numpy(log_dots), torch.from_numpy(count_dots)

    def edge_probabilities(self) -> Tensor:
        return self.shares

    def _seeds(self, gradient: Tensor) -> Tensor:
        seeds = self.weights.new_zeros(self.arrays.num_items)
        return seeds.index_add_(0, self.roots, gradient.detach().double())

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        return (self.counts(self._seeds(weights)).to(self.dtype),)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        direction = directions[0].detach().double().contiguous()
        log_dots, count_dots = self.dots(self._seeds(weights), direction)
        return count_dots.to(self.dtype), log_dots[self.roots]


class _LevelPasses(_Passes):
    """The same, level by level, on any device."""

    def prepare(self) -> None:
        self.values = by_level.inside(self.arrays, self.weights)

    @property
    def log_z(self) -> Tensor:
        return self.values.logs[self.roots]

    def counts(self, seeds: Tensor) -> Tensor:
        return by_level.outside(self.arrays, self.values, seeds)

    def dots(self, seeds: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        return by_level.tangent(self.arrays, self.values, seeds, direction)

    def edge_probabilities(self) -> Tensor:
        return by_level.edge_probabilities(self.arrays, self.values)


class _BlockPasses(_Passes):
    """The same block by block; only what crosses the bounds of blocks is kept."""

    def __init__(self, blocks: Blocks, *given: Any) -> None:
        self.blocks = blocks
        super().__init__(*given)

    def prepare(self) -> None:
        weights, roots = self.weights.numpy(), self.roots.numpy()
        logs, *self.kept = recomputed.inside(self.arrays, self.blocks, weights, roots)
        self.logs = torch.from_numpy(logs)

    @property
    def log_z(self) -> Tensor:
        return self.logs

    def counts(self, seeds: Tensor) -> Tensor:
        weights, kept = self.weights.numpy(), (self.kept[0], self.kept[1])
        counts = recomputed.outside(self.arrays, self.blocks, weights, kept, seeds.numpy())
        return torch.from_numpy(counts)

    def dots(self, seeds: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        """Second derivatives keep everything."""
        return _Passes(self.arrays, self.weights, self.roots).dots(seeds, direction)


_BLOCKS: WeakKeyDictionary[ForestArrays, dict[Memory, Blocks]] = WeakKeyDictionary()


def _blocks(arrays: ForestArrays, memory: Memory) -> Blocks | None:
    """The blocks that `memory` calls for; None if the usual passes fit in it."""
    usual = 16 * arrays.num_items + 8 * arrays.num_edges
    if memory is None or (isinstance(memory, int) and usual <= memory):
        return None
    found = _BLOCKS.setdefault(arrays, {})
    if memory not in found:
        levels = len(arrays.level_offsets) - 1
        count, most = (2, memory) if isinstance(memory, int) else (isqrt(levels) + 1, None)
        blocks, least = recomputed.cut(arrays, count, most)
        if blocks is None:
            refuse_less(memory, least)
        else:
            found[memory] = blocks
    return found[memory]


def _passes(
    arrays: ForestArrays, weights: Tensor, roots: Tensor, tier: Tier, memory: Memory = None
) -> _Passes:
    if tier != "cpu":
        if memory is not None:
            raise ArgumentError("memory", "can be limited on the CPU only")
        return _LevelPasses(arrays, weights, roots)
    blocks = _blocks(arrays, memory)
    given = arrays, weights, roots
    return _Passes(*given) if blocks is None else _BlockPasses(blocks, *given)


def _twin(arrays: ForestArrays, roots: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda weights: reference_log_inside(arrays, weights)[roots]


def log_values(
    arrays: ForestArrays,
    weights: Float[Tensor, " v"],
    roots: Int[Tensor, " r"],
    tier: Tier | None = None,
    memory: Memory = None,
) -> Float[Tensor, " r"]:
    """Log values of the root items, given the log-weights of all items.

    Time and memory O(e); the gradient costs about twice the value, a Hessian-vector product
    about four times. Computed in float64 and returned in the dtype of `weights`. `memory`: see
    `Forest.with_memory`.
    """
    tier = tier or choose_tier(weights.device)
    if tier == "reference":
        return reference_log_inside(arrays, weights)[roots]
    return differentiable_log_partition(
        lambda given: _passes(arrays, given, roots, tier, memory), _twin(arrays, roots), weights
    )


def item_counts(
    arrays: ForestArrays,
    weights: Float[Tensor, " v"],
    roots: Int[Tensor, " r"],
    gradient: Float[Tensor, " r"],
    tier: Tier | None = None,
    memory: Memory = None,
) -> Float[Tensor, " v"]:
    """Expected counts of all items: the gradient of gradient . log_values in the log-weights."""
    counts: Tensor
    tier = tier or choose_tier(weights.device)
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
    passes = _passes(arrays, weights, roots, tier, memory)
    (counts,) = differentiable_gradients(passes, _twin(arrays, roots), gradient, weights)
    return counts


def edge_probabilities(
    arrays: ForestArrays, weights: Float[Tensor, " v"], tier: Tier | None = None
) -> Float[Tensor, " e"]:
    """Probability of every edge given its head, as plain numbers (not differentiable)."""
    tier = tier or choose_tier(weights.device)
    no_roots = torch.zeros(0, dtype=torch.int64, device=weights.device)
    return _passes(arrays, weights, no_roots, tier).edge_probabilities()
