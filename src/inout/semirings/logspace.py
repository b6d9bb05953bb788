"""What `Log` and `Max` have in common: elements are log-weights and ⊗ adds them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from inout.semirings.tensor import TensorSemiring, refuse_values


@dataclass(frozen=True, kw_only=True)
class LogSpace(TensorSemiring):
    """A semiring on log-weights [n]: 0 is −inf, 1 is 0.0 and ⊗ is +.

    No gradient flows into or through an element that is −inf: a dead end has expected count 0.
    """

    dtype: torch.dtype = torch.float64

    def zero(self, size: int) -> Float[Tensor, " {size}"]:
        return torch.full((size,), -torch.inf, dtype=self.dtype, device=self.device)

    def one(self, size: int) -> Float[Tensor, " {size}"]:
        return torch.zeros(size, dtype=self.dtype, device=self.device)

    def times(self, x: Float[Tensor, " n"], y: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        dead = x.isneginf() | y.isneginf()
        return torch.where(dead, -torch.inf, x + y)

    def lift(
        self, log_weights: Float[Tensor, " n"], values: Tensor | None = None
    ) -> Float[Tensor, " n"]:
        refuse_values(self, values)
        x = log_weights.to(dtype=self.dtype, device=self.device)
        return torch.where(x.isneginf(), -torch.inf, x)
