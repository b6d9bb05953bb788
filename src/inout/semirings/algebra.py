"""Semirings whose elements are real (or complex) vectors: ⊕ adds, ⊗ is bilinear."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Inexact, Int
from torch import Tensor

from inout._core.checks import expect_shape
from inout._core.errors import ArgumentError
from inout.semirings.base import Batch, LogWeights, Sized, TensorSemiring, Values


@dataclass(frozen=True, kw_only=True)
class Algebra(TensorSemiring):
    """A commutative algebra over the reals, or over the complex numbers if `dtype` is complex.

    An element is a tensor of shape `shape`; its coefficient at index (0, …, 0) is its weight, and
    1 is the element with weight 1 and all other coefficients 0. Elements may be negative.
    Weights leave the range of `dtype` like any floating point number does: wrap the algebra in
    `Scaled` for weights such as exp(±10⁴).

    A subclass supplies `shape`, `times`, and, if its elements carry values, `exponential`.
    """

    dtype: torch.dtype = torch.float64

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one element."""

    @property
    def num_values(self) -> int:
        """How many values an element carries: the second dimension of `values` in `lift`."""
        return 0

    def exponential(self, values: Inexact[Tensor, "n d"]) -> Batch:
        """The elements of weight 1 that carry `values`; ⊗ of two of them adds their values."""
        return self.one(len(values))

    def zero(self, size: int) -> Sized:
        return torch.zeros((size, *self.shape), dtype=self.dtype, device=self.device)

    def one(self, size: int) -> Sized:
        one = self.zero(size)
        self.weight(one).fill_(1)
        return one

    def plus(self, x: Batch, y: Batch) -> Batch:
        return x + y

    def sum(self, x: Batch, index: Int[Tensor, " n"], size: int) -> Sized:
        return x.new_zeros((size, *self.shape)).index_add(0, index, x)

    def lift(self, log_weights: LogWeights, values: Values = None) -> Batch:
        """exp(log_weights) ⊗ exponential(values); without values, bare weights.

        The log-weights may be complex if `dtype` is.
        """
        if log_weights.is_complex() and not self.dtype.is_complex:
            wanted = f"must be real for a semiring of dtype {self.dtype}"
            raise ArgumentError("log_weights", f"{wanted}. Got {log_weights.dtype} instead.")
        size = len(log_weights)
        wide = torch.promote_types(log_weights.dtype, self.dtype)
        weights = log_weights.to(dtype=wide).exp().to(dtype=self.dtype, device=self.device)
        weights = weights[(..., *[None] * len(self.shape))]
        if values is None:
            return weights * self.one(size)
        expect_shape("values", values, (size, self.num_values))
        return weights * self.exponential(values.to(dtype=self.dtype, device=self.device))

    def weight(self, x: Batch) -> Inexact[Tensor, " n"]:
        """The coefficient of index (0, …, 0) of every element."""
        for _ in self.shape:
            x = x[:, 0]
        return x

    def ratio(self, x: Batch) -> Batch:
        """Every element divided by its weight; NaN where the weight is 0."""
        return x / self.weight(x)[(..., *[None] * len(self.shape))]


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
