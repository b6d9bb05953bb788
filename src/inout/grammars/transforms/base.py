"""`Transform`: a change of the rules that preserves weights, with the mapping back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout.grammars.table import RuleTable
from inout.grammars.transforms.pieces import Derivation, Piece, Pieces, substitute

Vector = NDArray[np.float64]


class WayBack(ABC):
    """From derivations by new rules to derivations by old rules, at one setting of weights."""

    @abstractmethod
    def best(self, derivation: Sequence[int]) -> Derivation:
        """The best derivation by old rules among those that one by new rules stands for."""

    @abstractmethod
    def sample(self, derivation: Sequence[int], random: np.random.Generator) -> Derivation:
        """One of these derivations, drawn in proportion to the weights."""


class Transform(ABC):
    """New rules in place of old ones, computed from the rules without their weights.

    A new rule stands for pieces of trees of old rules, and its weight is the sum of theirs
    (`log_weights`, differentiable to any order). So the gradient of log Z maps expected counts of
    new rules to expected counts of old ones. Trees are mapped back by choosing a piece for each of
    their rules: the best, or a random one.
    """

    source: RuleTable
    table: RuleTable

    @abstractmethod
    def log_weights(self, old: Float[Tensor, "*c r"]) -> Float[Tensor, "*c k"]:
        """The log of the sum of the weights of the pieces of each new rule."""

    @abstractmethod
    def best_log_weights(self, old: Vector) -> Vector:
        """The log-weight of the best piece of each new rule."""

    @abstractmethod
    def way_back(self, old: Vector) -> WayBack:
        """The mapping back at these weights of the old rules."""


class RuleTransform(Transform):
    """A transform with the pieces of each of its rules."""

    @abstractmethod
    def pieces(self, old: Vector) -> Pieces:
        """The pieces at these weights of the old rules."""

    def way_back(self, old: Vector) -> WayBack:
        return _Substitution(self.table, self.pieces(old))


class _Substitution(WayBack):
    def __init__(self, table: RuleTable, pieces: Pieces) -> None:
        self._table, self._pieces = table, pieces

    def best(self, derivation: Sequence[int]) -> Derivation:
        return substitute(self._table, derivation, self._pieces.best)

    def sample(self, derivation: Sequence[int], random: np.random.Generator) -> Derivation:
        def draw(rule: int) -> Piece:
            return self._pieces.sample(rule, random)

        return substitute(self._table, derivation, draw)


class Composition(Transform):
    """A sequence of transforms."""

    def __init__(self, *transforms: Transform) -> None:
        self.transforms = transforms
        self.source, self.table = transforms[0].source, transforms[-1].table

    def log_weights(self, old: Float[Tensor, "*c r"]) -> Float[Tensor, "*c k"]:
        for transform in self.transforms:
            old = transform.log_weights(old)
        return old

    def best_log_weights(self, old: Vector) -> Vector:
        for transform in self.transforms:
            old = transform.best_log_weights(old)
        return old

    def way_back(self, old: Vector) -> WayBack:
        return _Steps(self.transforms, old)


class _Steps(WayBack):
    """The ways back of transforms, the last first."""

    def __init__(self, transforms: Sequence[Transform], old: Vector) -> None:
        best, sums = old, torch.from_numpy(old)
        self._best, self._sums = [], []
        for transform in transforms:
            self._best.append(transform.way_back(best))
            self._sums.append(transform.way_back(sums.numpy()))
            best, sums = transform.best_log_weights(best), transform.log_weights(sums)

    def best(self, derivation: Sequence[int]) -> Derivation:
        for way in reversed(self._best):
            derivation = way.best(derivation)
        return list(derivation)

    def sample(self, derivation: Sequence[int], random: np.random.Generator) -> Derivation:
        for way in reversed(self._sums):
            derivation = way.sample(derivation, random)
        return list(derivation)
