"""The real semiring: signed or complex numbers."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Inexact
from torch import Tensor

from inout.semirings.algebra import Algebra


@dataclass(frozen=True, kw_only=True)
class Real(Algebra):
    """⟨+, ×, 0, 1⟩ on tensors [n] of real numbers, or complex ones with a complex `dtype`.

    A batch is a plain tensor, so that negative numbers need no `lift`.

    >>> import torch
    >>> real = Real()
    >>> x = real.times(real.lift(torch.tensor([2.0, 3.0]).log()), torch.tensor([1.0, -1.0]))
    >>> real.sum(x, torch.tensor([0, 0]), 1)
    tensor([-1.0000], dtype=torch.float64)
    """

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def times(self, x: Inexact[Tensor, " n"], y: Inexact[Tensor, " n"]) -> Inexact[Tensor, " n"]:
        return x * y
