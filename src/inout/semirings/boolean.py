"""The Boolean semiring: is there a derivation at all?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Bool, Inexact, Int
from torch import Tensor

from inout.semirings.base import TensorSemiring, refuse_values

Bools: TypeAlias = Bool[Tensor, " n"]


@dataclass(frozen=True, kw_only=True)
class Boolean(TensorSemiring):
    """⟨or, and, False, True⟩ on tensors [n] of bool; `lift` is true where the weight is not zero.

    >>> import torch
    >>> boolean = Boolean()
    >>> x = boolean.lift(torch.tensor([-2.0, -torch.inf, -torch.inf]))
    >>> boolean.sum(x, torch.tensor([0, 0, 1]), 2)
    tensor([ True, False])
    """

    def zero(self, size: int) -> Bool[Tensor, " {size}"]:
        return torch.zeros(size, dtype=torch.bool, device=self.device)

    def one(self, size: int) -> Bool[Tensor, " {size}"]:
        return torch.ones(size, dtype=torch.bool, device=self.device)

    def plus(self, x: Bools, y: Bools) -> Bools:
        return x | y

    def times(self, x: Bools, y: Bools) -> Bools:
        return x & y

    def sum(self, x: Bools, index: Int[Tensor, " n"], size: int) -> Bool[Tensor, " {size}"]:
        return x.new_zeros(size).index_fill(0, index[x], True)

    def lift(self, log_weights: Inexact[Tensor, " n"], values: Tensor | None = None) -> Bools:
        refuse_values(self, values)
        return (log_weights.real != -torch.inf).to(self.device)
