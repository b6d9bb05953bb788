"""E[exp(z . F)] of additive functions on a forest as a torch function.

Value and gradient run as compiled passes (`cpu/generating.py`) on the CPU. Second and higher
derivatives, and other devices, use the reference.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.cpu import generating
from inout.kernels.forest.cpu import scaled as forest_cpu
from inout.kernels.forest.reference import reference_generating_function
from inout.series import Lanes, Points, Truncated

Tier = Literal["cpu", "reference"]
Array = NDArray[Any]

# Means are kept as multiples of the largest value over this, and a small rest.
_GRID = 2.0**26
# Values at points that are not centred stay within exp(± this).
_REACH = 300.0
# Numbers in the rows of one pass; more points than fit go in several passes.
_MOST = 2**27
# Rows behind those of the items, for the passes: the function 1 and three products.
_ROOM = 4


class _Arithmetic:
    """Lanes as the compiled passes want them."""

    def __init__(self, lanes: Lanes, dtype: torch.dtype) -> None:
        points = torch.zeros(lanes.num_functions, 0)
        shape, runs = [0], np.zeros((0, 3), np.uint64)
        if isinstance(lanes, Points):
            points = torch.nn.functional.pad(lanes.points, (1, 0))
        elif isinstance(lanes, Truncated):
            shape, runs = list(lanes.shape), _runs(lanes.shape)
        else:
            raise ArgumentError("lanes", f"must be Truncated or Points. Got {type(lanes)}")
        self.points = points.detach().cpu().to(dtype).contiguous().numpy()
        self.pointwise = isinstance(lanes, Points)
        self.size = lanes.size
        self.lanes = lanes
        # What the passes take.
        self.arguments = (
            runs,
            np.array(shape, np.int64),
            1.0 / np.arange(1, 1 + max(shape)),
            self.points,
            self.pointwise,
            np.uint64(lanes.size),
        )

    @property
    def one(self) -> Array:
        """The function 1, [l]."""
        return np.array([self.pointwise or lane == 0 for lane in range(self.size)], float)

    @property
    def derivative(self) -> tuple[Array, Array]:
        """(steps [k l], factors [k l]): lane j of x goes into lane steps[k, j] of z_k x."""
        size = self.size
        steps = np.tile(np.arange(size, dtype=np.uint64), (len(self.points), 1))
        if self.pointwise:
            return steps, self.points
        assert isinstance(self.lanes, Truncated)
        factors = np.zeros(steps.shape, self.points.dtype)
        stride = size
        for k, length in enumerate(self.lanes.shape):
            stride //= length
            degree = np.arange(size) // stride % length
            factors[k] = degree + 1 < length
            steps[k, degree + 1 < length] += np.uint64(stride)
        return steps, factors


def _runs(shape: tuple[int, ...]) -> Array:
    """(i, first, last): lane i of one factor meets lanes first..last-1 of the other.

    The lane of a product is the sum of the lanes of its factors.
    """
    runs = []
    strides = np.cumprod((1, *shape[:0:-1]))[::-1]
    for degrees in np.ndindex(*shape):
        rest = [size - degree for size, degree in zip(shape, degrees, strict=True)]
        for outer in np.ndindex(*rest[:-1]):
            first = int(np.dot(outer, strides[:-1]))
            runs.append((int(np.dot(degrees, strides)), first, first + rest[-1]))
    return np.array(runs, np.uint64)


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
        self.goals = goals.cpu().numpy()
        mantissas, _, shares = forest_cpu.inside(
            *arrays.structure, weights.detach().contiguous().numpy()
        )
        self.alive = mantissas != 0.0
        dtype = values.dtype
        if isinstance(lanes, Points):
            dtype = torch.promote_types(dtype, lanes.points.dtype)
        self.arithmetic = _Arithmetic(lanes, dtype)
        own = np.ascontiguousarray(np.where(self.alive, values.detach().numpy(), 0.0).T)
        parts = own.view(np.float64)  # real and imaginary parts side by side
        grids = _grids(parts)
        high, low, differences, moves, plain = generating.means(
            *arrays.structure, mantissas, shares, parts, grids, shift
        )
        self.centres = torch.from_numpy((high + low).view(own.dtype)[self.goals].T)
        self.offsets = torch.zeros_like(self.centres)  # from the rows' centres
        has_own = np.zeros(len(own), np.bool_)
        if self._in_reach(high.view(own.dtype)) and shift == 0.0:
            # Values at points need no centres, and exponentials of items are fewer than of edges.
            has_own = (own != 0.0).any(1)
            plain = generating.without_values(*arrays.structure, shares, ~has_own) | ~self.alive
            moves, differences = np.zeros(arrays.num_edges, np.bool_), differences[:0]
            self.offsets = self.centres
        number = self.arithmetic.points.dtype
        self.rows = np.where(plain, -1, np.cumsum(~plain) - 1)
        count, arity = int((~plain).sum()), int(np.diff(arrays.tail_offsets).max(initial=0))
        x = np.empty((count + _ROOM + arity, lanes.size), number)
        x[count] = self.arithmetic.one
        self.x = x[:count]
        self.settings = (
            *arrays.structure, shares, self.rows, moves,
            differences.view(own.dtype).astype(number, copy=False),
            own.astype(number, copy=False), has_own, *self.arithmetic.arguments,
            np.uint64(count * lanes.size), x.reshape(-1),
        )  # fmt: skip
        generating.forward(*self.settings)

    def _in_reach(self, means: Array) -> bool:
        if not self.arithmetic.pointwise:
            return False
        points = self.arithmetic.points
        points = np.abs(points if np.iscomplexobj(means) else points.real).max(1, initial=0.0)
        return bool(points @ np.abs(means).max(0, initial=0.0) < _REACH)

    def result(self) -> Tensor:
        """Rows of the goals, [l g], about `centres` - `offsets`."""
        rows = self.rows[self.goals]
        found = np.repeat(self.arithmetic.one.astype(self.x.dtype)[None], len(rows), 0)
        found[rows >= 0] = self.x[rows[rows >= 0]]
        found[~self.alive[self.goals]] = 0.0
        return torch.from_numpy(found.T.copy())

    def adjoint(self, gradient: Tensor, with_values: bool) -> tuple[Tensor, Tensor | None]:
        """Gradients of gradient . result in the weights [v] and in the values [k v]."""
        size, rows = self.lanes.size, self.rows
        # Products are not conjugated on the way; torch wants the conjugate of the derivative.
        seeds = gradient.detach().conj().resolve_conj().numpy().T.astype(self.x.dtype)
        steps, factors = self.arithmetic.derivative
        if not with_values:
            steps, factors = steps[:0], factors[:0]
        adjoints = np.zeros((len(self.x) + 2, size), self.x.dtype)
        counts = np.zeros((len(rows), 1 + len(steps)), self.x.dtype)
        reached = np.zeros(len(rows), np.bool_)
        results = self.result().numpy().T
        for seed, result, goal in zip(seeds, results, self.goals, strict=True):
            if not self.alive[goal]:
                continue
            reached[goal] = True
            if rows[goal] >= 0:
                adjoints[rows[goal]] += seed
            counts[goal, 0] += seed @ result
            counts[goal, 1:] += (seed[steps] * factors) @ result
        first = np.uint64(len(self.x) * size)
        arity = int(np.diff(self.arrays.tail_offsets).max(initial=0))
        found = np.zeros((2, arity + 2), np.uint64)
        generating.backward(
            *self.settings, steps, factors, adjoints.reshape(-1), first, counts, reached, found,
            np.uint64((len(self.x) + _ROOM) * size),
        )  # fmt: skip
        of_weights = torch.from_numpy(counts[:, 0].real.copy())
        of_values = torch.from_numpy(counts[:, 1:].T.conj()) if with_values else None
        return of_weights, of_values


def _grids(values: Array) -> Array:
    largest = np.abs(values).max(0, initial=0.0)
    return np.exp2(np.ceil(np.log2(np.where(largest == 0.0, 1.0, largest)))) / _GRID


class _Generating(torch.autograd.Function):
    """(weights [v], values [k v]) -> x [l g]."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, passes: _Passes) -> Tensor:
        ctx.save_for_backward(weights, values)
        ctx.passes = passes
        return passes.result()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, values = ctx.saved_tensors
        if torch.is_grad_enabled():  # there may be second derivatives
            return *_apply(_Adjoint, gradients[0], weights, values, ctx.passes), None
        return *_adjoint(ctx.passes, gradients[0], values, ctx.needs_input_grad[1]), None


def _adjoint(
    passes: _Passes, gradient: Tensor, values: Tensor, with_values: bool
) -> tuple[Tensor, Tensor | None]:
    of_weights, of_values = passes.adjoint(gradient, with_values)
    if of_values is not None and not values.is_complex():
        of_values = of_values.real
    return of_weights, of_values


class _Adjoint(torch.autograd.Function):
    """(g [l g], weights, values) -> gradients of g . x in the weights and in the values."""

    @staticmethod
    def forward(
        ctx: Any, gradient: Tensor, weights: Tensor, values: Tensor, passes: _Passes
    ) -> tuple[Tensor, Tensor | None]:
        ctx.save_for_backward(gradient, weights, values)
        ctx.passes = passes
        return _adjoint(passes, gradient, values, ctx.needs_input_grad[2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        passes: _Passes = ctx.passes
        higher = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases: what flows where one input depends on another is the caller's graph's task.
            inputs = gradient, weights, values = [
                x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
                for x in ctx.saved_tensors
            ]
            goals = torch.from_numpy(passes.goals)
            x, centres = reference_generating_function(
                passes.arrays, passes.lanes, weights, values, goals, passes.shift
            )
            rows_about = passes.centres - passes.offsets
            x = passes.lanes.times(x, passes.lanes.exponential(centres - rows_about))
            firsts = torch.autograd.grad(
                x, (weights, values), gradient, create_graph=True, materialize_grads=True
            )
            wanted = [
                (first, direction)
                for first, direction in zip(firsts, gradients, strict=True)
                if direction is not None and first.requires_grad
            ]
            if not wanted:
                return None, None, None, None
            outputs, directions = zip(*wanted, strict=True)
            results = torch.autograd.grad(
                outputs, inputs, directions, create_graph=higher, materialize_grads=True
            )
        return (*results, None)


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply`, which torch leaves untyped."""
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


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
    if isinstance(lanes, Points) and lanes.size > max(2, _MOST // (1 + arrays.num_items)):
        parts = [
            generating_function(arrays, Points(some), weights, values, goals, shift, tier)
            for some in torch.tensor_split(lanes.points, 2, dim=1)
        ]
        return torch.cat([parts[0][0], parts[1][0][1:]]), parts[0][1]
    passes = _Passes(arrays, lanes, weights, values, goals, shift)
    if torch.is_grad_enabled() and (weights.requires_grad or values.requires_grad):
        x = _apply(_Generating, weights, values, passes)
    else:
        x = passes.result()
    if passes.offsets is passes.centres:
        x = lanes.times(x, lanes.exponential(-passes.offsets))
    return x, passes.centres
