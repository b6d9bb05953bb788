"""The expectation semiring: weights together with weighted sums of d functions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Inexact
from torch import Tensor

from inout._core.checks import expect
from inout.semirings.algebra import Algebra


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
