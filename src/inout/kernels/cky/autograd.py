"""log Z as a torch function, for any number of potentials, differentiable to any order.

The family gives its passes (log Z, gradient, Hessian times a direction) and a slow twin in plain
torch code, which third and higher derivatives use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
LogPartition = Callable[..., Tensor]


@runtime_checkable
class Passes(Protocol):
    """A batch at one setting of its potentials: log Z now, derivatives on demand."""

    log_z: NDArray[np.float64]  # [b]

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradient of weights [b] . log Z by each potential."""

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian of weights . log Z times the directions, and last E[U] [b].

        U is the sum of the directions over the parts of a structure.
        """


class _LogPartition(torch.autograd.Function):
    """(potentials) -> log Z [b]."""

    @staticmethod
    def forward(ctx: Any, make: Callable[..., Passes], twin: LogPartition, *p: Tensor) -> Tensor:
        ctx.passes, ctx.twin = make(*p), twin
        ctx.save_for_backward(*p)
        return torch.from_numpy(ctx.passes.log_z).to(p[0].dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (
            None,
            None,
            *_apply(_Gradient, ctx.passes, ctx.twin, gradients[0], *ctx.saved_tensors),
        )


class _Gradient(torch.autograd.Function):
    """(g [b], potentials) -> gradients of g . log Z."""

    @staticmethod
    def forward(
        ctx: Any, passes: Passes, twin: LogPartition, weights: Tensor, *potentials: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.passes, ctx.twin = passes, twin
        ctx.save_for_backward(weights, *potentials)
        return passes.gradients(weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        results = _apply(_Tangent, ctx.passes, ctx.twin, *ctx.saved_tensors, *gradients)
        return None, None, results[-1], *results[:-1]


class _Tangent(torch.autograd.Function):
    """(g, potentials, directions) -> (Hessian of g . log Z times the directions, E[U] [b])."""

    @staticmethod
    def forward(
        ctx: Any, passes: Passes, twin: LogPartition, weights: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.twin = twin
        ctx.save_for_backward(weights, *rest)
        return passes.tangents(weights, rest[len(rest) // 2 :])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        higher = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases: what flows where one input depends on another is the caller's graph's task.
            inputs = [
                x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
                for x in ctx.saved_tensors
            ]
            count = len(inputs) // 2
            weights, potentials, directions = inputs[0], inputs[1 : count + 1], inputs[count + 1 :]
            log_z = ctx.twin(*potentials)
            log_z = torch.where(log_z == -torch.inf, 0.0, log_z)
            first = torch.autograd.grad(
                log_z, potentials, weights, create_graph=True, materialize_grads=True
            )
            outputs = torch.autograd.grad(
                first, [*potentials, weights], directions, create_graph=True, materialize_grads=True
            )
            results = torch.autograd.grad(
                outputs, inputs, gradients, create_graph=higher, materialize_grads=True
            )
        return None, None, *results


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply`, which torch leaves untyped."""
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def differentiable_log_partition(
    make: Callable[..., Passes], twin: LogPartition, *potentials: Tensor
) -> Tensor:
    """log Z [b] of the passes that `make(*potentials)` gives; `twin` is the slow log Z."""
    result: Tensor = _apply(_LogPartition, make, twin, *potentials)
    return result
