"""The log semiring: sums of weights, kept as logarithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.semirings.base import TensorSemiring, refuse_values, segment_max

Logs: TypeAlias = Float[Tensor, " n"]


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

    def times(self, x: Logs, y: Logs) -> Logs:
        dead = x.isneginf() | y.isneginf()
        return torch.where(dead, -torch.inf, x + y)

    def lift(self, log_weights: Logs, values: Tensor | None = None) -> Logs:
        refuse_values(self, values)
        x = log_weights.to(dtype=self.dtype, device=self.device)
        return torch.where(x.isneginf(), -torch.inf, x)


@dataclass(frozen=True, kw_only=True)
class Log(LogSpace):
    """⟨log(eˣ + eʸ), x + y, −inf, 0⟩ on tensors [n] of log-weights.

    Differentiable any number of times, also where elements or whole sums are −inf: their
    gradient is 0.

    >>> import torch
    >>> log = Log()
    >>> x = log.lift(torch.tensor([0.25, 0.5, 0.0]).log())
    >>> log.sum(x, torch.tensor([0, 0, 1]), 2).exp()
    tensor([0.7500, 0.0000], dtype=torch.float64)
    """

    def plus(self, x: Logs, y: Logs) -> Logs:
        # torch.logaddexp differentiates to NaN at (−inf, −inf), and its second derivative is NaN
        # already with one −inf. Choosing the branch by `where` leaves a smooth function on both
        # sides of x = y, so that ties, too, have their true second derivative.
        swap = y > x
        high, low = torch.where(swap, y, x), torch.where(swap, x, y)
        dead = high.isneginf()
        shift = torch.where(dead, 0, high)
        return torch.where(dead, -torch.inf, shift + torch.log1p(torch.exp(low - shift)))

    def sum(self, x: Logs, index: Int[Tensor, " n"], size: int) -> Float[Tensor, " {size}"]:
        # log Σ exp(x − m) + m does not depend on m, so m may be a constant to autograd.
        shift = segment_max(x, index, size)
        shift = torch.where(shift.isneginf(), 0, shift)
        weights = torch.exp(x - shift[index])
        total = weights.new_zeros(size).index_add(0, index, weights)
        empty = total == 0  # exactly: the largest weight is 1 unless all are 0
        return torch.where(empty, -torch.inf, torch.where(empty, 1, total).log() + shift)
