"""A transform that keeps some of the rules."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout.grammars.structure import useful_rules
from inout.grammars.table import RuleTable
from inout.grammars.transforms.base import RuleTransform, Vector
from inout.grammars.transforms.pieces import Pieces, SinglePieces


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
