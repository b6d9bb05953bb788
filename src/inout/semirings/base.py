"""The interface of every semiring: arithmetic on batches of elements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from jaxtyping import Inexact, Int
from torch import Tensor

Elements = TypeVar("Elements")


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
    def lift(
        self, log_weights: Inexact[Tensor, " n"], values: Inexact[Tensor, "n d"] | None = None
    ) -> Elements:
        """The elements of weight exp(log_weights); −inf gives 0.

        `values` is what each element carries besides its weight, for the semirings that carry
        something (`Expectation`, `Polynomial`); the others refuse it.
        """
