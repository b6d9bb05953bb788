"""Numbers made from detached potentials that still know their derivatives."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Inexact
from torch import Tensor


def reweighted(
    x: Inexact[Tensor, ...],
    log_potentials: Float[Tensor, ...],
    used: Bool[Tensor, ...] | None = None,
) -> Inexact[Tensor, ...]:
    """x · exp(θ − θ₀), where θ₀ = θ in value and constant to autograd: x with a gradient.

    What is proportional to exp(θ) may so be computed stably without autograd, and be
    differentiated to any order all the same. Potentials of −inf, and those not `used`, are left.
    """
    if not (torch.is_grad_enabled() and log_potentials.requires_grad):
        return x
    alive = log_potentials > -torch.inf if used is None else used & (log_potentials > -torch.inf)
    change = torch.where(alive, log_potentials - log_potentials.detach(), 0.0)
    return x * change.exp()


def shares(
    logits: Float[Tensor, "... m"],
) -> tuple[Float[Tensor, "... m"], Float[Tensor, ...]]:
    """exp(logits) divided by their sum, and the log of the sum; 0 and −inf if all are −inf."""
    top = logits.amax(-1, keepdim=True)
    top = torch.where(top == -torch.inf, 0.0, top)
    weights = (logits - top).exp()
    total = weights.sum(-1, keepdim=True)
    dead = total == 0
    log_total = torch.where(dead, -torch.inf, total.log() + top)
    return weights / torch.where(dead, 1.0, total), log_total[..., 0]
