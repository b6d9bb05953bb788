"""E[exp(z . F)] of additive functions on a forest as a torch function.

Value and gradient run as compiled passes (`cpu/generating.py`) on the CPU. Second and higher
derivatives, and other devices, use the reference.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.kernels.autograd import differentiable_log_partition, tangents_by
from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.cpu import generating, scaled
from inout.kernels.forest.cpu.generating import ROOM, Arithmetic, Derivative, Exponents
from inout.kernels.forest.reference import reference_generating_function
from inout.kernels.limits import FOREST_GRID, FOREST_NUMBERS, FOREST_REACH
from inout.series import Lanes, Points, Truncated

Tier = Literal["cpu", "reference"]
Array = NDArray[Any]


def _arithmetic(lanes: Lanes, dtype: torch.dtype) -> Arithmetic:
    if not isinstance(lanes, Points | Truncated):
        raise ArgumentError("lanes", f"must be Truncated or Points. Got {type(lanes)}")
    points = lanes.points if isinstance(lanes, Points) else torch.zeros(0, 0)
    points = torch.nn.functional.pad(points, (1, 0))
    runs = np.zeros((0, 4), np.uint64)
    if lanes.shape:  # those of one series, at each point
        firsts = np.arange(0, lanes.size, math.prod(lanes.shape))[:, None, None]
        runs = (_runs(lanes.shape) + firsts * np.array([1, 1, 1, 0])).reshape(-1, 4)
        runs = runs.astype(np.uint64)
    return Arithmetic(
        runs,
        np.ascontiguousarray(runs[:, [0, 2, 1, 3]]),
        np.array(lanes.shape, np.int64),
        1.0 / np.arange(1, 1 + max(lanes.shape, default=0)),
        points.detach().cpu().to(dtype).contiguous().numpy(),
        not lanes.shape,
        np.uint64(lanes.size),
    )


def _derivative(lanes: Lanes, arithmetic: Arithmetic) -> Derivative:
    points, stride = arithmetic.points, lanes.size // arithmetic.points.shape[1]
    steps = np.tile(np.arange(lanes.size, dtype=np.uint64), (lanes.num_functions, 1))
    factors = np.zeros(steps.shape, points.dtype)
    factors[: len(points)] = points.repeat(stride, 1)
    for k, length in enumerate(arithmetic.shape.tolist(), len(points)):
        stride //= length
        degree = np.arange(lanes.size) // stride % length
        factors[k] = degree + 1 < length
        steps[k, degree + 1 < length] += np.uint64(stride)
    return Derivative(steps, factors)


def _runs(shape: tuple[int, ...]) -> Array:
    """(i, first, target, count): lane i of a factor meets lanes first, ... of the other.

    The lane of a product is the sum of the lanes of its factors.
    """
    runs = []
    strides = np.cumprod((1, *shape[:0:-1]))[::-1]
    for degrees in np.ndindex(*shape):
        lane = int(np.dot(degrees, strides))
        rest = [size - degree for size, degree in zip(shape, degrees, strict=True)]
        for outer in np.ndindex(*rest[:-1]):
            first = int(np.dot(outer, strides[:-1]))
            runs.append((lane, first, lane + first, rest[-1]))
    return np.array(runs)


class _Passes:
    """A forest's rows at one setting of weights [v] and values [k v]."""

    def __init__(
        self,
        arrays: ForestArrays,
        lanes: Lanes,
        weights: Tensor,
        values: Tensor,
        goals: Tensor,
        shift: float,
    ) -> None:
        self.arrays, self.lanes, self.shift = arrays, lanes, shift
        self.with_values = values.requires_grad
        self.potentials = weights, values = weights.detach(), values.detach()
        self.goals = goals.cpu().numpy()
        mantissas, _, shares = scaled.inside(arrays.structure, weights.contiguous().numpy())
        self.alive = mantissas != 0.0
        dtype = values.dtype
        if isinstance(lanes, Points):
            dtype = torch.promote_types(dtype, lanes.points.dtype)
        self.arithmetic = _arithmetic(lanes, dtype)
        own = np.ascontiguousarray(np.where(self.alive, values.numpy(), 0.0).T)
        parts = own.view(np.float64)  # real and imaginary parts side by side
        high, low, differences, moves, plain = generating.means(
            arrays.structure, mantissas, shares, parts, _grids(parts), shift
        )
        self.centres = torch.from_numpy((high + low).view(own.dtype)[self.goals].T)
        self.offsets = torch.zeros_like(self.centres)  # from the rows' centres
        has_own = np.zeros(len(own), np.bool_)
        if self._in_reach(high.view(own.dtype)) and shift == 0.0:
            # Values at points need no centres, and exponentials of items are fewer than of edges.
            has_own = (own != 0.0).any(1)
            plain = generating.without_values(arrays.structure, shares, ~has_own) | ~self.alive
            moves, differences = np.zeros(arrays.num_edges, np.bool_), differences[:0]
            self.offsets = self.centres
        number = self.arithmetic.points.dtype
        differences = differences.view(own.dtype).astype(number, copy=False)
        exponents = Exponents(shares, moves, differences, has_own, own.astype(number, copy=False))
        self.rows = np.where(plain, -1, np.cumsum(~plain) - 1)
        count, self.arity = int((~plain).sum()), int(np.diff(arrays.tail_offsets).max(initial=0))
        x = np.empty((count + ROOM + self.arity, lanes.size), number)
        self.one = np.zeros(lanes.size, number)  # the function 1
        self.one[:: lanes.size // self.arithmetic.points.shape[1]] = 1.0  # at each point
        x[count] = self.one
        self.x = x[:count]
        self.settings = (
            arrays.structure, exponents, self.arithmetic, self.rows,
            x.reshape(-1), np.uint64(count * lanes.size),
        )  # fmt: skip
        generating.forward(*self.settings)

    def _in_reach(self, means: Array) -> bool:
        if not self.arithmetic.pointwise:
            return False
        points = self.arithmetic.points
        points = np.abs(points if np.iscomplexobj(means) else points.real).max(1, initial=0.0)
        return bool(points @ np.abs(means).max(0, initial=0.0) < FOREST_REACH)

    @property
    def log_z(self) -> Tensor:
        """In the place of log Z: rows of the goals, [l g], about `centres` - `offsets`."""
        rows = self.rows[self.goals]
        found = np.repeat(self.one[None], len(rows), 0)
        found[rows >= 0] = self.x[rows[rows >= 0]]
        found[~self.alive[self.goals]] = 0.0
        return torch.from_numpy(found.T.copy())

    def gradients(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of weights . rows in the log-weights [v] and in the values [k v]."""
        size, rows, values = self.lanes.size, self.rows, self.potentials[1]
        # Products are not conjugated on the way; torch wants the conjugate of the derivative.
        seeds = weights.detach().conj().resolve_conj().numpy().T.astype(self.x.dtype)
        steps, factors = _derivative(self.lanes, self.arithmetic)
        if not self.with_values:
            steps, factors = steps[:0], factors[:0]
        adjoints = np.zeros((len(self.x) + 2, size), self.x.dtype)
        counts = np.zeros((len(rows), 1 + len(steps)), self.x.dtype)
        reached = np.zeros(len(rows), np.bool_)
        for seed, result, goal in zip(seeds, self.log_z.numpy().T, self.goals, strict=True):
            if not self.alive[goal]:
                continue
            reached[goal] = True
            if rows[goal] >= 0:
                adjoints[rows[goal]] += seed
            counts[goal, 0] += seed @ result
            counts[goal, 1:] += (seed[steps] * factors) @ result
        found = np.zeros((2, self.arity + 2), np.uint64)
        generating.backward(
            *self.settings, Derivative(steps, factors), adjoints.reshape(-1), counts, reached, found
        )
        of_weights = torch.from_numpy(counts[:, 0].real.copy())
        if not self.with_values:
            return of_weights, torch.zeros_like(values)
        of_values = torch.from_numpy(counts[:, 1:].T.conj())
        return of_weights, of_values if values.is_complex() else of_values.real

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Second derivatives, by autograd through the reference."""
        return tangents_by(self.twin, weights, self.potentials, directions)

    def twin(self, weights: Tensor, values: Tensor) -> Tensor:
        """The rows by code that autograd records."""
        x, centres = reference_generating_function(
            self.arrays, self.lanes, weights, values, torch.from_numpy(self.goals), self.shift
        )
        about = self.centres - self.offsets
        return self.lanes.times(x, self.lanes.exponential(centres - about))


def _grids(values: Array) -> Array:
    largest = np.abs(values).max(0, initial=0.0)
    return np.exp2(np.ceil(np.log2(np.where(largest == 0.0, 1.0, largest)))) / FOREST_GRID


def generating_function(
    arrays: ForestArrays,
    lanes: Lanes,
    weights: Float[Tensor, " v"],
    values: Inexact[Tensor, "k v"],
    goals: Int[Tensor, " g"],
    shift: float = 0.0,
    tier: Tier | None = None,
) -> tuple[Inexact[Tensor, "l g"], Inexact[Tensor, "k g"]]:
    """(x, centres): sums over the derivations of each goal of weight * exp(z . (F - centre)) / Z.

    F is the sum of `values` over the items of a derivation, once for each use. The centres are
    constants near the means, and Z is one too: x[0] is 1, but its gradient in the log-weights
    [v] is the expected counts, and that of x is E[counts * exp(z . (F - centre))]. Goals without
    derivations have x = 0 and gradient 0. `shift` moves the centres, also those inside.

    Float64, or complex128. With L lanes, O(e L²) time for power series and O(e L) at points,
    O(e k + v L) memory; the gradient costs about twice the value. Second and higher derivatives
    go through autograd-recorded code.

    Azuma & Matsumoto, theorem 1; its gradient is theorem 2.
    """
    wide = torch.complex128 if values.is_complex() else torch.float64
    weights, values = weights.double(), values.to(wide)
    tier = tier or ("cpu" if weights.device.type == "cpu" else "reference")
    if tier == "reference":
        return reference_generating_function(arrays, lanes, weights, values, goals, shift)
    most = max(2, FOREST_NUMBERS // (1 + arrays.num_items))
    if isinstance(lanes, Points) and lanes.size > most and lanes.points.shape[1] > 1:
        (x, centres), (more, _) = (
            generating_function(arrays, half, weights, values, goals, shift, tier)
            for half in (
                Points(some, lanes.orders) for some in torch.tensor_split(lanes.points, 2, dim=1)
            )
        )
        return torch.cat([x, more[math.prod(lanes.shape) :]]), centres
    passes = _Passes(arrays, lanes, weights, values, goals, shift)
    x = differentiable_log_partition(lambda *_: passes, passes.twin, weights, values)
    if passes.offsets is passes.centres:
        x = lanes.times(x, lanes.exponential(-passes.offsets))
    return x, passes.centres
