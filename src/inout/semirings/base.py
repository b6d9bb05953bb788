"""The interface of every semiring: arithmetic on batches of elements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import torch
from jaxtyping import Float, Inexact, Int, Shaped
from torch import Tensor

from inout._core.errors import ArgumentError

Elements = TypeVar("Elements")
LogWeights: TypeAlias = Inexact[Tensor, " n"]
Values: TypeAlias = Inexact[Tensor, "n d"] | None
Batch: TypeAlias = Inexact[Tensor, "n ..."]
Sized: TypeAlias = Inexact[Tensor, "{size} ..."]


class Semiring(ABC, Generic[Elements]):
    """A commutative semiring ⟨⊕, ⊗, 0, 1⟩ whose operations work on batches of n elements.

    A batch is a tensor, an array or a tuple of tensors, always with a leading dimension n;
    row i is element i. No operation changes its arguments.

    To write a new semiring, subclass this (or `Algebra`, for ⊕ = addition of real vectors) as a
    frozen dataclass; parameters such as dtype, device or order are its fields.
    """

    @abstractmethod
    def zero(self, size: int) -> Elements:
        """`size` copies of 0, neutral for ⊕ and annihilating for ⊗."""

    @abstractmethod
    def one(self, size: int) -> Elements:
        """`size` copies of 1, neutral for ⊗."""

    @abstractmethod
    def plus(self, x: Elements, y: Elements) -> Elements:
        """x ⊕ y, row by row."""

    @abstractmethod
    def times(self, x: Elements, y: Elements) -> Elements:
        """x ⊗ y, row by row."""

    @abstractmethod
    def sum(self, x: Elements, index: Int[Tensor, " n"], size: int) -> Elements:
        """out[i] = ⊕ of the rows j of x with index[j] = i, for i < size; 0 where there is none."""

    @abstractmethod
    def take(self, x: Elements, index: Int[Tensor, " m"]) -> Elements:
        """The rows x[index[0]], x[index[1]], …"""

    @abstractmethod
    def cat(self, batches: Sequence[Elements]) -> Elements:
        """The rows of all `batches` (at least one), in order, as one batch."""

    @abstractmethod
    def lift(self, log_weights: LogWeights, values: Values = None) -> Elements:
        """The elements of weight exp(log_weights); −inf gives 0.

        `values` is what each element carries besides its weight, for the semirings that carry
        something (`Expectation`, `Polynomial`); the others refuse it.
        """


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
