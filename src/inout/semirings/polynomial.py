"""Truncated polynomials in K variables: weighted sums of products of powers of K functions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import factorial

import torch
from jaxtyping import Inexact
from torch import Tensor

from inout._core.checks import expect
from inout.semirings.algebra import Algebra
from inout.semirings.base import Batch


def exponential_series(
    values: Inexact[Tensor, "k ..."], orders: tuple[int, ...]
) -> Inexact[Tensor, "l ..."]:
    """The coefficients of exp(z₁f₁ + … + z_Kf_K), multi-indices in lexicographic order."""
    result = values.new_ones(1, *values.shape[1:])
    for f, order in zip(values, orders, strict=True):
        powers = [torch.ones_like(f)]  # fᵃ/a! by recurrence: 0⁰ = 1, also for complex f
        for degree in range(1, 1 + order):
            powers.append(powers[-1] * f / degree)
        result = (result[:, None] * torch.stack(powers)).flatten(0, 1)
    return result


class HasOrders:
    """Something in K variables z without powers of z_k above `orders[k]`."""

    orders: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(1 + orders[0], …, 1 + orders[K−1]): of the coefficients."""
        return tuple(1 + order for order in self.orders)


@dataclass(frozen=True)
class Polynomial(HasOrders, Algebra):
    """Polynomials in z₁, …, z_K without the powers of z_k above `orders[k]`.

    The entry [i, a₁, …, a_K] of a batch [n, 1+orders[0], …, 1+orders[K−1]] is the plain
    coefficient of z₁^a₁ ⋯ z_K^a_K (not divided or multiplied by a factorial) of element i.
    ⊕ adds and ⊗ is the truncated product.

    A leaf of weight p and values f lifts to p · exp(z₁f₁ + … + z_Kf_K). The sum over derivations
    is then Σ p(D) exp(Σₖ zₖfₖ(D)), the generating function of all the moments
    Σ p(D) f₁(D)^a₁ ⋯ f_K(D)^a_K, which `moments` reads off. ⊗ takes O(n C²) time and O(n C)
    memory for C = Π (1 + orders[k]) coefficients.

    Azuma and Matsumoto, *A Generalization of Forward-Backward Algorithm*, theorem 1.

    >>> import torch
    >>> polynomial = Polynomial((2,))
    >>> x = polynomial.lift(torch.tensor([1.0, 2.0]).log(), torch.tensor([[3.0], [5.0]]))
    >>> polynomial.moments(polynomial.sum(x, torch.tensor([0, 0]), 1))  # 1·3ᵃ + 2·5ᵃ
    tensor([[ 3., 13., 59.]], dtype=torch.float64)
    """

    orders: tuple[int, ...]

    def __post_init__(self) -> None:
        expect(min(self.orders, default=0) >= 0, "orders", "must be at least 0", self.orders)

    @property
    def num_values(self) -> int:
        return len(self.orders)

    def exponential(self, values: Inexact[Tensor, "n {self.num_values}"]) -> Batch:
        return exponential_series(values.T, self.orders).T.reshape(len(values), *self.shape)

    def times(self, x: Batch, y: Batch) -> Batch:
        every = slice(None)
        result = torch.zeros_like(y)
        for degrees in product(*(range(size) for size in self.shape)):
            # The term x[degrees] · z^degrees shifts y up; what leaves the array is cut off.
            rest = (size - degree for size, degree in zip(self.shape, degrees, strict=True))
            term = x[(every, *(slice(degree, degree + 1) for degree in degrees))]
            kept = y[(every, *(slice(size) for size in rest))]
            shift = [pad for degree in reversed(degrees) for pad in (degree, 0)]
            result = result + torch.nn.functional.pad(term * kept, shift)
        return result

    def moments(self, x: Batch) -> Batch:
        """Coefficients times a₁! ⋯ a_K!: entry [i, a₁, …] is Σ p(D) f₁(D)^a₁ ⋯ f_K(D)^a_K."""
        for axis, size in enumerate(self.shape, start=1):
            factors = x.new_tensor([factorial(degree) for degree in range(size)])
            x = x * factors.reshape(-1, *[1] * (x.dim() - 1 - axis))
        return x
