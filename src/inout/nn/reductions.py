"""What torch's losses make of those of elements."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

LOSS_REDUCTIONS = ("none", "mean", "sum")


def reduced(losses: Float[Tensor, "*b"], reduction: str) -> Float[Tensor, " ..."]:
    """The losses, their mean or their sum."""
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()
