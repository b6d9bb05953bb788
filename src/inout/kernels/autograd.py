"""log Z as a torch function, for any number of potentials, differentiable to any order.

Also used for (possibly complex) values of generating functions. A family supplies its passes (log
Z, gradient, Hessian-vector product) and a slow twin in plain torch code, for third and higher
derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

LogPartition = Callable[..., Tensor]


@runtime_checkable
class Passes(Protocol):
    """A batch at one setting of its potentials; all tensors are on their device."""

    @property
    def log_z(self) -> Tensor:
        """log Z [b] in float64; results are in the first potential's dtype unless complex."""

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradient of weights [b] . log Z by each potential."""

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian of weights . log Z times the directions, and last E[U] [b].

        U is the sum of the directions over the parts of a structure. They may be expanded, so
        not contiguous.
        """


class _LogPartition(torch.autograd.Function):
    """(potentials) -> log Z [b]."""

    @staticmethod
    def forward(ctx: Any, passes: Passes, twin: LogPartition, *potentials: Tensor) -> Tensor:
        ctx.passes, ctx.twin = passes, twin
        ctx.save_for_backward(*potentials)
        return _log_z(passes, potentials)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        potentials = ctx.saved_tensors  # refused if they were changed: passes read them again
        if torch.is_grad_enabled():  # there may be second derivatives
            results = _apply(_Gradient, ctx.passes, ctx.twin, gradients[0], *potentials)
        else:
            results = ctx.passes.gradients(gradients[0])
        return None, None, *results


class _Gradient(torch.autograd.Function):
    """(g [b], potentials) -> gradients of g . log Z."""

    @staticmethod
    def forward(
        ctx: Any, passes: Passes, twin: LogPartition, weights: Tensor, *potentials: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.passes, ctx.twin = passes, twin
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weights, *potentials)
        return passes.gradients(weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        weights, *potentials = ctx.saved_tensors
        # One zero, expanded: passes can see that nothing depends on these marginals.
        directions = [
            potential.new_zeros(()).expand(potential.shape) if gradient is None else gradient
            for gradient, potential in zip(gradients, potentials, strict=True)
        ]
        results = _apply(_Tangent, ctx.passes, ctx.twin, weights, *potentials, *directions)
        return None, None, results[-1], *results[:-1]


class _Tangent(torch.autograd.Function):
    """(g, potentials, directions) -> (Hessian of g . log Z times the directions, E[U] [b])."""

    @staticmethod
    def forward(
        ctx: Any, passes: Passes, twin: LogPartition, weights: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.twin = twin
        ctx.save_for_backward(weights, *rest)
        *second, expected = passes.tangents(weights, rest[len(rest) // 2 :])
        return *second, expected.to(weights.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        higher = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases: if one input depends on another, the caller's graph handles it.
            inputs = [
                x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
                for x in ctx.saved_tensors
            ]
            count = len(inputs) // 2
            outputs = tangents_by(
                ctx.twin, inputs[0], inputs[1 : count + 1], inputs[count + 1 :], graph=True
            )
            results = torch.autograd.grad(
                outputs, inputs, gradients, create_graph=higher, materialize_grads=True
            )
        return None, None, *results


def tangents_by(
    twin: LogPartition,
    weights: Tensor,
    potentials: Sequence[Tensor],
    directions: Sequence[Tensor],
    *,
    graph: bool = False,
) -> tuple[Tensor, ...]:
    """As `Passes.tangents`, by differentiating `twin` twice; differentiable with `graph`."""
    with torch.enable_grad():
        own = [x if x.requires_grad else x.detach().requires_grad_() for x in potentials]
        scales = weights if weights.requires_grad else weights.detach().requires_grad_()
        log_z = twin(*own)
        log_z = torch.where(log_z == -torch.inf, 0.0, log_z)
        first = torch.autograd.grad(log_z, own, scales, create_graph=True, materialize_grads=True)
        # What log Z does not depend on at all has a gradient without a graph.
        used = [(x, u) for x, u in zip(first, directions, strict=True) if x.requires_grad]
        outputs, along = zip(*used, strict=True)
        return torch.autograd.grad(
            outputs, [*own, scales], along, create_graph=graph, materialize_grads=True
        )


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply`, which torch leaves untyped."""
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def _log_z(passes: Passes, potentials: Sequence[Tensor]) -> Tensor:
    log_z = passes.log_z
    # A copy: a result that the passes hold would hold them through its graph, a cycle.
    return log_z.to(log_z.dtype if log_z.is_complex() else potentials[0].dtype, copy=True)


def gradient_wanted(*potentials: Tensor) -> bool:
    """Whether derivatives will be needed, so that passes must keep their charts."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in potentials)


def differentiable_log_partition(passes: Passes, twin: LogPartition, *potentials: Tensor) -> Tensor:
    """log Z [b] of the potentials' passes, with a graph; `twin` is the slow log Z of potentials."""
    if not gradient_wanted(*potentials):
        return _log_z(passes, potentials)
    result: Tensor = _apply(_LogPartition, passes, twin, *potentials)
    return result


def differentiable_gradients(
    passes: Passes, twin: LogPartition, weights: Tensor, *potentials: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of weights . log Z by each potential, themselves with a graph."""
    results: tuple[Tensor, ...] = _apply(_Gradient, passes, twin, weights, *potentials)
    return results
