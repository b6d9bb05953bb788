"""The max-plus semiring: the best log-weight, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.semirings.base import segment_max
from inout.semirings.log import Logs, LogSpace


@dataclass(frozen=True, kw_only=True)
class Max(LogSpace):
    """⟨max, x + y, −inf, 0⟩ on tensors [n] of log-weights.

    The gradient goes to one maximal element, the first: it is the indicator of the derivation
    that the back-pointers describe.

    >>> import torch
    >>> best = Max()
    >>> x = best.lift(torch.tensor([1.0, 3.0, 3.0, -torch.inf]))
    >>> best.sum_with_pointers(x, torch.tensor([0, 0, 0, 1]), 3)
    (tensor([3., -inf, -inf], dtype=torch.float64), tensor([ 1, -1, -1]))
    """

    def plus(self, x: Logs, y: Logs) -> Logs:
        return torch.where((x >= y) | x.isnan(), x, y)

    def sum(self, x: Logs, index: Int[Tensor, " n"], size: int) -> Float[Tensor, " {size}"]:
        return self.sum_with_pointers(x, index, size)[0]

    def sum_with_pointers(
        self, x: Logs, index: Int[Tensor, " n"], size: int
    ) -> tuple[Float[Tensor, " {size}"], Int[Tensor, " {size}"]]:
        """`sum(x, index, size)` and the smallest row of x that attains each maximum.

        The row is −1 where the maximum is −inf: nothing there has a derivation.
        Cost O(n + size).
        """
        rows = torch.arange(len(x), device=x.device)
        best = segment_max(x, index, size)[index]
        attains = ((x == best) & ~x.isneginf()) | x.isnan()  # a NaN must show in the result
        first = rows.new_full((size,), len(x))
        first = first.scatter_reduce(0, index, torch.where(attains, rows, len(x)), "amin")
        values = torch.cat([x, x.new_full((1,), -torch.inf)])[first]
        return values, torch.where(first == len(x), -1, first)
