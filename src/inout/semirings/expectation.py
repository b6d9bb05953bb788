"""The expectation semirings: weighted sums of functions, and of products of two functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Inexact
from torch import Tensor

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.semirings.algebra import Algebra

Elements: TypeAlias = Inexact[Tensor, "n 1+{self.d1} 1+{self.d2}"]


@dataclass(frozen=True)
class Expectation(Algebra):
    """⟨p, r⟩ with r in Rᵈ, stored as tensors [n, 1+d]: p first, then r.

        ⟨p, r⟩ ⊕ ⟨q, s⟩ = ⟨p + q, r + s⟩        ⟨p, r⟩ ⊗ ⟨q, s⟩ = ⟨pq, ps + qr⟩

    A leaf of weight p and values f lifts to ⟨p, pf⟩. The sum over derivations D, where
    p(D) is the product of the leaves' weights and f(D) the sum of their values, is then
    ⟨Σ p(D), Σ p(D) f(D)⟩, and `ratio` holds the expectations. Time and memory O(nd).

    Li and Eisner 2009, *First- and Second-Order Expectation Semirings*.

    >>> import torch
    >>> expectation = Expectation(1)
    >>> x = expectation.lift(torch.tensor([1.0, 3.0]).log(), torch.tensor([[10.0], [20.0]]))
    >>> expectation.ratio(expectation.sum(x, torch.tensor([0, 0]), 1))[:, 1:]
    tensor([[17.5000]], dtype=torch.float64)
    """

    d: int

    def __post_init__(self) -> None:
        expect(self.d >= 0, "d", "must be at least 0", self.d)

    @property
    def shape(self) -> tuple[int, ...]:
        return (1 + self.d,)

    @property
    def num_values(self) -> int:
        return self.d

    def exponential(self, values: Inexact[Tensor, "n {self.d}"]) -> Inexact[Tensor, "n 1+{self.d}"]:
        return torch.cat([values.new_ones(len(values), 1), values], dim=1)

    def times(
        self, x: Inexact[Tensor, "n 1+{self.d}"], y: Inexact[Tensor, "n 1+{self.d}"]
    ) -> Inexact[Tensor, "n 1+{self.d}"]:
        p, r = x[:, :1], x[:, 1:]
        q, s = y[:, :1], y[:, 1:]
        return torch.cat([p * q, p * s + q * r], dim=1)


@dataclass(frozen=True)
class SecondOrderExpectation(Algebra):
    """⟨p, r, s, t⟩ with r in Rᵈ¹, s in Rᵈ² and t in Rᵈ¹ˣᵈ², stored as matrices [n, 1+d1, 1+d2]

        p  sᵀ
        r  t

    ⊕ adds, and ⟨p₁, r₁, s₁, t₁⟩ ⊗ ⟨p₂, r₂, s₂, t₂⟩ is
    ⟨p₁p₂, p₁r₂ + p₂r₁, p₁s₂ + p₂s₁, p₁t₂ + p₂t₁ + r₁s₂ᵀ + r₂s₁ᵀ⟩.

    A leaf of weight p with values f (the first d1) and g (the last d2) lifts to
    ⟨p, pf, pg, pfgᵀ⟩. The sum over derivations is then
    ⟨Σ p(D), Σ p(D) f(D), Σ p(D) g(D), Σ p(D) f(D)g(D)ᵀ⟩, from which `covariance` follows.
    Time and memory O(n · d1 · d2).

    Li and Eisner 2009, *First- and Second-Order Expectation Semirings*.

    >>> import torch
    >>> second = SecondOrderExpectation(1, 1)
    >>> values = torch.tensor([[0.0, 0.0], [1.0, 4.0]])
    >>> x = second.lift(torch.tensor([1.0, 1.0]).log(), values)
    >>> second.covariance(second.sum(x, torch.tensor([0, 0]), 1))
    tensor([[[1.]]], dtype=torch.float64)
    """

    d1: int
    d2: int

    def __post_init__(self) -> None:
        if min(self.d1, self.d2) < 0:
            given = f"{self.d1} and {self.d2} instead."
            raise ArgumentError(None, f"d1 and d2 must be at least 0. Got {given}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (1 + self.d1, 1 + self.d2)

    @property
    def num_values(self) -> int:
        return self.d1 + self.d2

    def exponential(self, values: Inexact[Tensor, "n {self.d1}+{self.d2}"]) -> Elements:
        one = values.new_ones(len(values), 1)
        f = torch.cat([one, values[:, : self.d1]], dim=1)
        g = torch.cat([one, values[:, self.d1 :]], dim=1)
        return f[:, :, None] * g[:, None, :]

    def times(self, x: Elements, y: Elements) -> Elements:
        p1, r1, s1, t1 = _parts(x)
        p2, r2, s2, t2 = _parts(y)
        top = torch.cat([p1 * p2, p1 * s2 + p2 * s1], dim=2)
        t = p1 * t2 + p2 * t1 + r1 * s2 + r2 * s1
        bottom = torch.cat([p1 * r2 + p2 * r1, t], dim=2)
        return torch.cat([top, bottom], dim=1)

    def covariance(self, x: Elements) -> Inexact[Tensor, "n {self.d1} {self.d2}"]:
        """t/p − (r/p)(s/p)ᵀ: the covariance of f and g under each element's distribution."""
        _, r, s, t = _parts(self.ratio(x))
        return t - r * s


def _parts(x: Inexact[Tensor, "n rows columns"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """p [n 1 1], r [n d1 1], s [n 1 d2] and t [n d1 d2]: shapes in which r * s is r sᵀ."""
    return x[:, :1, :1], x[:, 1:, :1], x[:, :1, 1:], x[:, 1:, 1:]
