"""Taylor series of log-weights: the inside algorithm in Taylor mode."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from inout._core.checks import expect_shape
from inout.semirings.base import Batch, LogWeights, Sized, TensorSemiring, Values, segment_max
from inout.semirings.polynomial import Polynomial


@dataclass(frozen=True)
class Jet(TensorSemiring):
    """Logarithms log w(z) of weights as Taylor series without powers of z_k above `orders[k]`.

    Entry [i, a₁, …, a_K] of a batch is the coefficient of z₁^a₁ ⋯ z_K^a_K. ⊗ adds series, ⊕ is
    log(exp + exp). A leaf of log-weight θ and values f lifts to θ + z · f, so the sum over
    derivations is log Z of the tilted weights: coefficients times a₁! ⋯ a_K! are derivatives of
    log Z, the joint cumulants of the functions. O(n C² N) time for C coefficients of total degree
    up to N.

    >>> import torch
    >>> jet = Jet((2,))
    >>> coin = jet.lift(torch.tensor([0.5, 0.5]).log(), torch.tensor([[0.0], [1.0]]))
    >>> jet.sum(coin, torch.tensor([0, 0]), 1) * torch.tensor([1, 1, 2])  # log Z, mean, variance
    tensor([[0.0000, 0.5000, 0.2500]], dtype=torch.float64)
    """

    orders: tuple[int, ...]
    dtype: torch.dtype = torch.float64

    @property
    def _polynomial(self) -> Polynomial:
        return Polynomial(self.orders, dtype=self.dtype, device=self.device)

    @property
    def num_values(self) -> int:
        return len(self.orders)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._polynomial.shape

    def zero(self, size: int) -> Sized:
        return self._with_constant(self.one(size), torch.full((size,), -torch.inf))

    def one(self, size: int) -> Sized:
        return torch.zeros((size, *self.shape), dtype=self.dtype, device=self.device)

    def plus(self, x: Batch, y: Batch) -> Batch:
        rows = torch.arange(len(x), device=self.device)
        return self.sum(torch.cat([x, y]), rows.repeat(2), len(x))

    def times(self, x: Batch, y: Batch) -> Batch:
        dead = self._constant(x).real.isneginf() | self._constant(y).real.isneginf()
        return torch.where(self._spread(dead), self.zero(len(x)), x + y)

    def sum(self, x: Batch, index: Int[Tensor, " n"], size: int) -> Sized:
        logs = self._constant(x)
        top = segment_max(logs.real, index, size)
        top = torch.where(top.isneginf(), 0, top)
        dead = logs.real.isneginf()
        weights = torch.where(dead, 0, (torch.where(dead, 0, logs) - top[index]).exp())
        # exp(u) of the series without its constant; u₁ of the heaviest terms is taken out first,
        # because large linear terms cancel in the logarithm below.
        u = self._with_constant(torch.where(self._spread(dead), 0, x), torch.zeros_like(logs))
        total = weights.new_zeros(size).index_add(0, index, weights)
        empty = total == 0
        total = torch.where(empty, 1, total)
        means = self._means(u, weights / total[index], index, size)
        terms = self._spread(weights) * self._exponential(u - means[index])
        terms = terms.new_zeros((size, *self.shape)).index_add(0, index, terms)
        ratio = self._with_constant(terms / self._spread(total), torch.zeros_like(total))
        result = self._log_one_plus(ratio) + means
        log_total = torch.where(empty, -torch.inf, total.log() + top)
        return self._with_constant(torch.where(self._spread(empty), 0, result), log_total)

    def lift(self, log_weights: LogWeights, values: Values = None) -> Batch:
        size = len(log_weights)
        values = log_weights.new_zeros(size, len(self.orders)) if values is None else values
        expect_shape("values", values, (size, len(self.orders)))
        result = self.one(size)
        for k, value in enumerate(values.unbind(1)):
            if self.orders[k]:
                result = result + self._spread(value.to(result)) * self._unit(k)
        dead = log_weights.real.isneginf()
        result = torch.where(self._spread(dead), 0, result)
        return self._with_constant(result, log_weights.to(result))

    def _unit(self, k: int) -> Tensor:
        """The series z_k."""
        place = torch.zeros(self.shape, dtype=torch.bool, device=self.device)
        place[tuple(int(j == k) for j in range(len(self.orders)))] = True
        return place[None].to(self.dtype)

    def _constant(self, x: Tensor) -> Tensor:
        return self._polynomial.weight(x)

    def _with_constant(self, x: Tensor, constant: Tensor) -> Tensor:
        first = torch.zeros(self.shape, dtype=torch.bool, device=x.device)
        first[(0,) * len(self.orders)] = True
        return torch.where(first, self._spread(constant.to(x)), x)

    def _spread(self, x: Tensor) -> Tensor:
        """x [n] with dimensions added to broadcast against elements [n, …]."""
        return x[(..., *[None] * len(self.orders))]

    def _means(self, u: Tensor, shares: Tensor, index: Tensor, size: int) -> Tensor:
        """The weighted means of the linear terms of each sum, detached."""
        linear = sum(
            (self._unit(k) for k, order in enumerate(self.orders) if order), start=self.one(1)
        )
        terms = (self._spread(shares) * u * linear).detach()
        return u.new_zeros((size, *self.shape)).index_add(0, index, terms)

    def _exponential(self, u: Tensor) -> Tensor:
        """exp(u) = 1 + u (1 + u/2 (1 + u/3 (…))), for series without a constant."""
        one = self._with_constant(torch.zeros_like(u), torch.ones_like(self._constant(u)))
        result = one
        for degree in range(sum(self.orders), 0, -1):
            result = one + self._polynomial.times(u / degree, result)
        return result

    def _log_one_plus(self, u: Tensor) -> Tensor:
        """log(1 + u) = u (1 − u (1/2 − u (1/3 − …))), for series without a constant."""
        one = self._with_constant(torch.zeros_like(u), torch.ones_like(self._constant(u)))
        result = torch.zeros_like(u)
        for degree in range(sum(self.orders), 0, -1):
            result = self._polynomial.times(u, one / degree - result)
        return result
