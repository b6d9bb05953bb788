"""The common part of semirings whose batches are single torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.semirings.base import Semiring


@dataclass(frozen=True, kw_only=True)
class TensorSemiring(Semiring[Tensor]):
    """A semiring whose batch of n elements is one tensor [n, …] on `device`."""

    device: torch.device = torch.device("cpu")

    def take(self, x: Shaped[Tensor, "n ..."], index: Int[Tensor, " m"]) -> Shaped[Tensor, "m ..."]:
        return x.index_select(0, index)

    def cat(self, batches: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(batches))


def segment_max(
    x: Float[Tensor, " n"], index: Int[Tensor, " n"], size: int
) -> Float[Tensor, " {size}"]:
    """The maximum of the rows of x with equal `index`, −inf where there is none; no gradient."""
    lowest = x.new_full((size,), -torch.inf)
    return lowest.scatter_reduce(0, index, x.detach(), "amax")


def refuse_values(semiring: object, values: Tensor | None) -> None:
    """Raise when `values` are given to a semiring whose elements are bare weights."""
    if values is not None:
        name = type(semiring).__name__
        raise ArgumentError(
            "values",
            f"must be None: elements of {name} carry nothing besides their weight. "
            f"Got a tensor of shape {tuple(values.shape)} instead.",
        )
