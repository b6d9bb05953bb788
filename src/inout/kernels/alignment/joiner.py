"""Log-probabilities of the blank and of the next label from a transducer's joint outputs.

The joint outputs [b t u+1 v] are by far the largest tensor of a transducer: they are read once for
the log-probabilities and once for the gradient, and nothing else of their size is made but that.
`additive.py` never makes them, where they are sums of an encoder's and a predictor's outputs.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.tracing import is_transformed
from inout.kernels.alignment import blocks
from inout.kernels.alignment.blocks import Planes, wide


def from_logits(
    logits: Float[Tensor, "b t w v"], labels: Int[Tensor, "b t w"], blank: int
) -> Planes:
    """log softmax of the blank and of the given labels, at least in single precision.

    Where the label is -1, in the padding, logits may be anything: both are 0 and have no gradient.
    """
    if is_transformed(logits):
        return reference_planes(logits, labels, blank)
    found: Planes = _FromLogits.apply(  # type: ignore[no-untyped-call]
        logits.contiguous(), labels.contiguous(), blank
    )
    return found


def labels_of(
    targets: Int[Tensor, "b w"],
    frames: Int[Tensor, " b"],
    symbols: Int[Tensor, " b"],
    t: int,
    places: Int[Tensor, "b t s"] | None = None,
) -> Int[Tensor, "b t s"]:
    """The next label of each cell, or of those at some `places` of a frame; -1 in the padding."""
    if targets.is_cuda and places is None:
        from inout.kernels.alignment.gpu import joiner  # as below

        return joiner.labels_of(targets, frames, symbols, t)
    device = targets.device
    columns = torch.arange(targets.shape[1], device=device) if places is None else places
    real = torch.arange(t, device=device)[:, None] < frames[:, None, None]
    real = real & (columns < symbols[:, None, None])
    own = targets[:, None].expand(-1, t, -1)
    return (own if places is None else own.gather(-1, places)).where(real, -1)


def reference_planes(logits: Tensor, labels: Tensor, blank: int) -> Planes:
    """The same at once, in plain torch code: for second derivatives."""
    real, logits = labels >= 0, wide(logits)
    some = real & (logits.detach() > -torch.inf).any(-1)
    log_z = logits.where(some[..., None], 0.0).logsumexp(-1).where(some, 0.0)
    own = logits.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return (logits[..., blank] - log_z).where(real, 0.0), (own - log_z).where(real, 0.0)


class _FromLogits(torch.autograd.Function):
    """(logits, labels, blank) -> the two planes."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, blank: int) -> Planes:
        planes, scales = _kernels(logits).planes(logits, labels, blank)
        ctx.blank = blank
        ctx.save_for_backward(logits, labels, *scales)
        return planes  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, labels, *scales = ctx.saved_tensors
        if torch.is_grad_enabled():  # there may be second derivatives
            given = (logits, labels, *scales, *gradients, ctx.blank)
            return _Gradient.apply(*given), None, None  # type: ignore[no-untyped-call]
        kernels = _kernels(logits)
        found = kernels.gradient(logits, labels, tuple(scales), gradients, ctx.blank)
        return found, None, None


class _Gradient(torch.autograd.Function):
    """(logits, labels, their scales, gradients of both planes, blank) -> gradient of logits."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, top: Tensor, log: Tensor, *others: Any
    ) -> Tensor:
        *gradients, ctx.blank = others
        ctx.save_for_backward(logits, labels, top, log, *gradients)
        kernels, given = _kernels(logits), (gradients[0], gradients[1])
        found: Tensor = kernels.gradient(logits, labels, (top, log), given, ctx.blank)
        return found

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
        logits, labels, top, log, *gradients = ctx.saved_tensors
        if not torch.is_grad_enabled():
            given = (gradients[0], gradients[1])
            found = blocks.tangent(logits, labels, (top, log), given, direction, ctx.blank)
            return found[0], None, None, None, *found[1:], None
        with torch.enable_grad():  # there may be third derivatives
            # Aliases: if one input depends on another, the caller's graph handles it.
            own = [x.view_as(x).requires_grad_() for x in (logits, *gradients)]
            planes = reference_planes(own[0], labels, ctx.blank)
            (first,) = torch.autograd.grad(planes, own[0], own[1:], create_graph=True)
            results = torch.autograd.grad(first, own, direction, create_graph=True)
        return results[0], None, None, None, *results[1:], None


# Which `apply` would otherwise make each time.
for _own in (_FromLogits, _Gradient):
    _own.forward.__signature__ = signature(_own.forward)  # type: ignore[union-attr]


def _kernels(logits: Tensor) -> Any:
    """What computes planes and gradients on their device."""
    if not logits.is_cuda:
        return blocks
    from inout.kernels.alignment.gpu import joiner  # here, because triton is only where GPUs are

    return joiner
