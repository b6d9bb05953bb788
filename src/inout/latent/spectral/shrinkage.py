"""`Shrinkage`: how far moments of rare rules are drawn towards simpler ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import expect
from inout._core.errors import ArgumentError

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Shrinkage:
    """Constants C of the weights λ = n / (n + C) that moments from n nodes get, by their order.

    Given its rule, E[Z ⊗ Y₂ ⊗ Y₃] is the product of three means, plus covariances of two with the
    mean of the third, plus the third joint cumulant. Means keep the share λ(`first`) of their
    distance from the mean of all nodes of the label, covariances λ(`second`), third cumulants
    λ(`third`). At λ = 1 the moments are those of the paper; with λ = 0 for the last two, latent
    values of children are independent given the rule; with λ = 0 for all, this is the treebank
    grammar. Lexical rules and roots have means only. This is the idea of Cohen et al. (2013),
    section 3.2, arranged such that the total probability of all trees stays 1.

    `forgetting` is a share that is lost at every node, however much is known: a node passes
    1 - `forgetting` of what its outside tells of it on to its rule. Extreme combinations, whose
    estimated probability may be negative, become less extreme.
    """

    first: float = 10.0
    second: float = 300.0
    third: float = 3000.0
    forgetting: float = 0.2

    def __post_init__(self) -> None:
        for name in ("first", "second", "third"):
            if not getattr(self, name) >= 0:
                raise ArgumentError(name, f"must be at least 0. Got {getattr(self, name)}")
        expect(0 <= self.forgetting <= 1, "forgetting", "must be from 0 to 1", self.forgetting)


NONE = Shrinkage(0.0, 0.0, 0.0, 0.0)


def share(counts: Vector, constant: float) -> Vector:
    """λ = n / (n + C), 1 where C is 0."""
    if constant == 0:
        return np.ones_like(counts)
    return counts / (counts + constant)
