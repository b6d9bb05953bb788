"""`Lanes`: functions of z₁, …, z_K as rows of numbers, added and multiplied like numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import torch
from jaxtyping import Inexact
from torch import Tensor

from inout._core.checks import expect
from inout.semirings.polynomial import HasOrders, exponential_series
from inout.series.convolution import convolve, convolve_matrices

Functions: TypeAlias = Inexact[Tensor, "l ..."]


class Lanes(ABC):
    """The representation of a function of K variables z: `size` numbers in the *first* dimension.

    A tensor [size, ...] is an array of functions; they are added with `+`. The first number of
    each is its value at z = 0. Lanes come first because that keeps the inner loops of torch long.
    """

    @property
    @abstractmethod
    def num_functions(self) -> int:
        """K, the number of variables."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Numbers for each function."""

    @abstractmethod
    def exponential(self, values: Inexact[Tensor, "k ..."]) -> Functions:
        """exp(z₁ values[0] + … + z_K values[K−1])."""

    @abstractmethod
    def times(self, x: Functions, y: Functions) -> Functions:
        """x · y. Both have equally many dimensions; sizes of 1 are broadcast."""

    @abstractmethod
    def matmul(self, x: Functions, y: Functions) -> Functions:
        """Matrix products [l ... i k] of functions [l ... i j] and [l ... j k]."""

    @abstractmethod
    def inverse(self, x: Functions) -> Functions:
        """1 / x, of functions that are not 0 where they are known."""

    def one(self, like: Tensor, *shape: int) -> Functions:
        """The function 1, in an array of this shape."""
        zero = torch.zeros(self.num_functions, *shape, dtype=like.dtype, device=like.device)
        return self.exponential(zero)


@dataclass(frozen=True)
class Truncated(HasOrders, Lanes):
    """Power series without the powers of z_k above `orders[k]`: their plain coefficients.

    The lanes are the multi-indices in lexicographic order. A product takes size² operations.

    >>> import torch
    >>> series = Truncated((3,))
    >>> series.exponential(torch.tensor([[2.0]]))[:, 0]  # 1, f, f²/2, f³/6
    tensor([1.0000, 2.0000, 2.0000, 1.3333])
    """

    orders: tuple[int, ...]

    def __post_init__(self) -> None:
        good = bool(self.orders) and min(self.orders) >= 0
        expect(good, "orders", "must be one or more numbers >= 0", self.orders)

    @property
    def num_functions(self) -> int:
        return len(self.orders)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def exponential(self, values: Inexact[Tensor, "k ..."]) -> Functions:
        return exponential_series(values, self.orders)

    def times(self, x: Functions, y: Functions) -> Functions:
        return convolve(x, y, self.shape)

    def matmul(self, x: Functions, y: Functions) -> Functions:
        return convolve_matrices(x, y, self.shape)

    def inverse(self, x: Functions) -> Functions:
        return series_inverse(x, self.shape)


@dataclass(frozen=True, eq=False)
class Points(HasOrders, Lanes):
    """Values of functions at 0 and then at given points [j m]: products are pointwise.

    Variables beyond the first j are left as they are: at each point stands a power series in
    them, without powers above their `orders`.

    >>> import torch
    >>> points = Points(torch.tensor([[1j * torch.pi]]))
    >>> points.exponential(torch.tensor([[1.0]], dtype=torch.float64)).real[:, 0]
    tensor([ 1., -1.], dtype=torch.float64)
    """

    points: Inexact[Tensor, "j m"]
    orders: tuple[int, ...] = ()

    @property
    def num_functions(self) -> int:
        return len(self.points) + len(self.orders)

    @property
    def size(self) -> int:
        return (1 + self.points.shape[1]) * prod(self.shape)

    def exponential(self, values: Inexact[Tensor, "k ..."]) -> Functions:
        points = torch.nn.functional.pad(self.points, (1, 0))
        dtype = torch.promote_types(points.dtype, values.dtype)
        here, rest = values[: len(points)].to(dtype), values[len(points) :]
        exponents: Tensor = torch.tensordot(points.to(dtype), here, dims=([0], [0]))
        if not self.orders:
            return exponents.exp()
        return (exponents.exp()[:, None] * exponential_series(rest, self.orders)).flatten(0, 1)

    def times(self, x: Functions, y: Functions) -> Functions:
        if not self.orders:
            return x * y
        return self._joined(convolve(self._apart(x), self._apart(y), self.shape))

    def matmul(self, x: Functions, y: Functions) -> Functions:
        if not self.orders:
            return x @ y
        return self._joined(convolve_matrices(self._apart(x), self._apart(y), self.shape))

    def inverse(self, x: Functions) -> Functions:
        if not self.orders:
            return 1 / x
        return self._joined(series_inverse(self._apart(x), self.shape))

    def _apart(self, x: Tensor) -> Tensor:
        """[s p ...]: the series first, as products of series want it."""
        return x.reshape(-1, prod(self.shape), *x.shape[1:]).transpose(0, 1)

    def _joined(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1).flatten(0, 1)


def series_inverse(x: Functions, shape: tuple[int, ...]) -> Functions:
    """1 / x of power series with these coefficients, by Newton's method: y (2 - x y)."""
    first = torch.zeros(len(x), *[1] * (x.ndim - 1), dtype=x.dtype, device=x.device)
    first[0] = 1.0
    y = first / x[:1]
    for _ in range(sum(size - 1 for size in shape).bit_length()):
        y = convolve(y, 2 * first - convolve(x, y, shape), shape)
    return y


def mix(
    weights: Inexact[Tensor, "... i j"], x: Inexact[Tensor, "l ... j"]
) -> Inexact[Tensor, "l ... i"]:
    """Sums of functions with plain numbers for weights: one matrix product for all lanes."""
    columns = x.movedim(0, -1)
    if columns.is_complex() and not weights.is_complex():
        parts = torch.view_as_real(columns).flatten(-2)
        mixed = weights @ parts
        mixed = torch.view_as_complex(mixed.reshape(*mixed.shape[:-1], -1, 2))
    else:
        mixed = weights @ columns
    return mixed.movedim(-1, 0)
