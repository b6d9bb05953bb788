"""`Transform`: a change of the rules that preserves weights, with the mapping back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from inout.grammars.structure import useful_rules
from inout.grammars.table import RuleTable
from inout.grammars.transforms.pieces import Derivation, Piece, Pieces, SinglePieces, substitute
from inout.semirings import Log, Max

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


def summed(
    semiring: Log | Max, terms: Float[Tensor, "*c t"], places: Int[Tensor, " t"], size: int
) -> Float[Tensor, "*c {size}"]:
    """⊕ of the terms of each place, 0 (a log-weight of −inf) where there is none.

    >>> summed(Max(), torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0, 0, 2]), 3)
    tensor([[2., -inf, 3.]])
    """
    settings = terms.shape[:-1]
    flat = terms.reshape(settings.numel(), terms.shape[-1])
    index = torch.arange(len(flat))[:, None] * size + places
    result = semiring.sum(flat.reshape(-1), index.reshape(-1), len(flat) * size)
    return result.reshape(*settings, size)


class Selection(RuleTransform):
    """The rules `kept`, in their order."""

    def __init__(self, source: RuleTable, kept: NDArray[np.int64]) -> None:
        self.source, self.kept = source, kept
        self.table = source if len(kept) == len(source) else source.select(kept)

    @classmethod
    def trimming(cls, source: RuleTable) -> Selection:
        """Only the rules that stand in some tree."""
        return cls(source, np.flatnonzero(useful_rules(source)))

    def log_weights(self, old: Float[Tensor, "*c r"]) -> Float[Tensor, "*c k"]:
        return old if self.table is self.source else old[..., torch.from_numpy(self.kept)]

    def best_log_weights(self, old: Vector) -> Vector:
        return old[self.kept]

    def pieces(self, old: Vector) -> Pieces:
        return single_pieces(self.table, self.kept, old)


def single_pieces(table: RuleTable, numbers: NDArray[np.int64], old: Vector) -> Pieces:
    """Rule i of the table stands for rule numbers[i] with the same children, −1 for children alone.

    The piece of rule A -> B C is so (numbers[i], hole 0, hole 1), or the holes without a rule.
    """
    holes = table.inner_counts

    def piece(rule: int) -> tuple[int, ...]:
        children = tuple(-1 - k for k in range(holes[rule]))
        number = int(numbers[rule])
        return (number, *children) if number >= 0 else children

    def log_weight(rule: int) -> float:
        return float(old[numbers[rule]]) if numbers[rule] >= 0 else 0.0

    return SinglePieces(piece, log_weight)
