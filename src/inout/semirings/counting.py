"""The counting semiring: exact numbers of derivations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Inexact, Int
from torch import Tensor

from inout._core.errors import CountOverflowError
from inout.semirings.base import Semiring, refuse_values

# [n] natural numbers: a numpy object array of Python ints (exact), or an int64 tensor.
Counts: TypeAlias = Any

_LARGEST = torch.iinfo(torch.int64).max


@dataclass(frozen=True)
class Counting(Semiring[Counts]):
    """⟨+, ×, 0, 1⟩ on natural numbers; `lift` is 1 where the weight is not zero.

    With `exact` a batch is a numpy object array [n] of Python integers, which have no bound.
    Without, it is an int64 tensor [n] on `device`: much faster, and every result from 2⁶³ on
    raises `CountOverflowError` instead of wrapping around.

    >>> import torch
    >>> counting = Counting()
    >>> x = counting.lift(torch.tensor([-2.0, -0.1, -torch.inf]))
    >>> counting.sum(x, torch.tensor([0, 0, 1]), 2)
    array([2, 0], dtype=object)
    """

    exact: bool = True
    device: torch.device = torch.device("cpu")

    def zero(self, size: int) -> Counts:
        return self._filled(size, 0)

    def one(self, size: int) -> Counts:
        return self._filled(size, 1)

    def plus(self, x: Counts, y: Counts) -> Counts:
        return x + y if self.exact else _checked_plus(x, y)

    def times(self, x: Counts, y: Counts) -> Counts:
        return x * y if self.exact else _checked_times(x, y)

    def sum(self, x: Counts, index: Int[Tensor, " n"], size: int) -> Counts:
        if not self.exact:
            return _checked_sum(x, index, size)
        total = self.zero(size)
        np.add.at(total, index.cpu().numpy(), x)
        return total

    def take(self, x: Counts, index: Int[Tensor, " m"]) -> Counts:
        return x[index.cpu().numpy()] if self.exact else x.index_select(0, index)

    def cat(self, batches: Sequence[Counts]) -> Counts:
        return np.concatenate(list(batches)) if self.exact else torch.cat(list(batches))

    def lift(self, log_weights: Inexact[Tensor, " n"], values: Tensor | None = None) -> Counts:
        refuse_values(self, values)
        counts = (log_weights.real != -torch.inf).long()
        return counts.cpu().numpy().astype(object) if self.exact else counts.to(self.device)

    def _filled(self, size: int, number: int) -> Counts:
        if self.exact:
            return np.full(size, number, dtype=object)
        return torch.full((size,), number, dtype=torch.int64, device=self.device)


def _checked_plus(x: Int[Tensor, " n"], y: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    total = x + y  # below 2⁶⁴, so that it wraps at most once, to a negative number
    _refuse_overflow(total < 0, "sum of two counts")
    return total


def _checked_times(x: Int[Tensor, " n"], y: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    bound = torch.full_like(y, _LARGEST) // y.clamp(min=1)
    _refuse_overflow((y > 0) & (x > bound), "product of two counts")
    return x * y


def _checked_sum(
    x: Int[Tensor, " n"], index: Int[Tensor, " n"], size: int
) -> Int[Tensor, " {size}"]:
    # A sum of many counts can wrap around more than once and go unnoticed. The sums of the upper
    # and lower 32 bits cannot wrap (for fewer than 2³¹ rows) and say what the true total is.
    zero = x.new_zeros(size)
    low = zero.index_add(0, index, x & 0xFFFFFFFF)
    high = zero.index_add(0, index, x >> 32) + (low >> 32)
    _refuse_overflow(high >> 31 != 0, "sum of counts")
    return (high << 32) | (low & 0xFFFFFFFF)


def _refuse_overflow(overflows: Tensor, what: str) -> None:
    if overflows.any():
        row = int(overflows.nonzero()[0])
        raise CountOverflowError(
            f"a {what} must stay below 2**63 in int64 (row {row} does not); "
            "use Counting(exact=True), which has no bound"
        )
