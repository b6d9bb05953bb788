"""Numbers made from detached potentials that still know their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Inexact
from torch import Tensor


def reweighted(
    x: Inexact[Tensor, " ..."], log_potentials: Float[Tensor, " ..."]
) -> Inexact[Tensor, " ..."]:
    """x · exp(θ − θ₀), where θ₀ = θ in value and constant to autograd: x with a gradient.

    What is proportional to exp(θ) may so be computed stably without autograd, and be
    differentiated to any order all the same. θ itself is never read: it may be −inf where nothing
    depends on x, or anything in padding.
    """
    if not (torch.is_grad_enabled() and log_potentials.requires_grad):
        return x
    return _apply(x, log_potentials)


def _apply(x: Tensor, log_potentials: Tensor) -> Tensor:
    result: Tensor = _Reweighted.apply(x, log_potentials)  # type: ignore[no-untyped-call]
    return result


class _Reweighted(torch.autograd.Function):
    """(x, θ) -> y, equal to x, with ∂y/∂x = exp(θ − θ₀) and ∂y/∂θ = y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, log_potentials: Tensor) -> Tensor:
        ctx.save_for_backward(x, log_potentials)
        shape = np.broadcast_shapes(x.shape, log_potentials.shape)
        return x.view_as(x) if x.shape == shape else x.expand(shape).clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (x, log_potentials), (g,) = ctx.saved_tensors, gradients
        of_x = of_potentials = None
        if ctx.needs_input_grad[0]:
            of_x = reweighted(g, log_potentials).sum_to_size(x.shape)
        if ctx.needs_input_grad[1]:
            y = reweighted(x, log_potentials)
            product = (g * y.conj()).real if g.is_complex() or y.is_complex() else g * y
            of_potentials = product.sum_to_size(log_potentials.shape)
        return of_x, of_potentials


def shares(logits: Float[Tensor, "... m"]) -> tuple[Float[Tensor, "... m"], Float[Tensor, ...]]:
    """exp(logits) divided by their sum, and the log of the sum; 0 and −inf if all are −inf."""
    top = logits.amax(-1, keepdim=True)
    top = torch.where(top == -torch.inf, 0.0, top)
    weights = (logits - top).exp()
    total = weights.sum(-1, keepdim=True)
    dead = total == 0
    log_total = torch.where(dead, -torch.inf, total.log() + top)
    return weights / torch.where(dead, 1.0, total), log_total[..., 0]


def log_sum(logits: Float[Tensor, " ..."], dims: int | tuple[int, ...]) -> Float[Tensor, " ..."]:
    """log of the sum of exp(logits) over some dimensions, differentiable to any order.

    Unlike that of torch.logsumexp, the gradient is 0 where all are −inf.
    """
    top = logits.detach().amax(dims, keepdim=True)
    top = torch.where(top == -torch.inf, 0.0, top)
    total = (logits - top).exp().sum(dims)
    dead = total == 0
    return torch.where(dead, -torch.inf, torch.where(dead, 1.0, total).log() + top.squeeze(dims))
