"""`Estimator`: the choices of spectral learning, ours and the paper's, and `Shrinkage`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from inout._core.checks import expect, expect_one_of
from inout._core.errors import ArgumentError
from inout.latent.spectral.features import DEFAULT, PAPER, Features
from inout.latent.spectral.projection import Solver

EstimatorName = Literal["shrunk", "paper"]


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

    `forgetting` is a share that is lost at every node, whatever its count: a node passes
    1 - `forgetting` of its outside information on to its rule. Extreme combinations, whose
    estimated probability may be negative, become less extreme.
    """

    first: float = 10.0
    second: float = 300.0
    third: float = 3000.0
    forgetting: float = 0.2

    def __post_init__(self) -> None:
        for name in ("first", "second", "third"):
            expect(getattr(self, name) >= 0, name, "must be at least 0", getattr(self, name))
        expect(0 <= self.forgetting <= 1, "forgetting", "must be from 0 to 1", self.forgetting)


NONE = Shrinkage(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Estimator:
    """The options of `fit_spectral`, which takes any of them by name.

    A label has fewer values than `latent` if its features have a lower rank, if singular values
    are at most `threshold` times the largest, or if its nodes weigh less than `support` per value.

    centred: the constant is kept as a direction of its own, and the others are of covariances
    instead of Ω. The ranks, and what is estimated in the limit, are the same; but the first number
    of an inside vector is now p(tree | a), the probabilities of all trees sum to 1 for any number
    of values, and a single value gives the treebank grammar. False: the paper's own form.

    fewest, scaling: features of smaller weight are dropped, and features are scaled by their
    frequency, see `feature_matrix` (the paper of 2013 has a κ of 5; on GENIA, more is better).

    worst_condition: directions in which Σᵃ is smaller than its largest singular value by more than
    this are dropped, and `SpectralEstimate.conditioning` says where. shrinkage: shrinks moments
    of rare rules towards simpler ones; None for no shrinkage. solver: see `decompose`.

    >>> Estimator.named("paper", threshold=0.01).centred
    False
    """

    features: Features = field(default=DEFAULT)
    threshold: float = 0.0
    fewest: float = 5.0
    scaling: float | None = 200.0
    support: float = 20.0
    centred: bool = True
    worst_condition: float = 1e6
    shrinkage: Shrinkage | None = field(default=Shrinkage())
    solver: Solver = "auto"

    def __post_init__(self) -> None:
        for name in ("threshold", "fewest", "support"):
            expect(getattr(self, name) >= 0, name, "must be at least 0", getattr(self, name))
        expect(self.threshold < 1, "threshold", "must be below 1", self.threshold)
        scaling, worst = self.scaling, self.worst_condition
        expect(scaling is None or scaling >= 0, "scaling", "must be at least 0, or None", scaling)
        expect(worst >= 1, "worst_condition", "must be at least 1", worst)

    @staticmethod
    def named(name: EstimatorName, **changes: Any) -> Estimator:
        """The default (shrunk) or that of figures 7 and 8 (paper), with other options changed."""
        expect_one_of("estimator", name, get_args(EstimatorName))
        known = [option.name for option in fields(Estimator)]
        for option in changes:
            if option not in known:
                wanted = f"must be an option of spectral learning ({', '.join(known)})"
                raise ArgumentError(option, f"{wanted}. Got {option!r}")
        return replace(Estimator() if name == "shrunk" else _PAPER, **changes)


_PAPER = Estimator(
    features=PAPER,
    fewest=0.0,
    scaling=None,
    support=0.0,
    centred=False,
    worst_condition=float("inf"),
    shrinkage=None,
)
