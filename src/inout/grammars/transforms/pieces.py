"""Pieces of trees, and how trees of a transformed grammar become trees of the original one.

A tree is written as its leftmost derivation: the numbers of its rules, parents first, left before
right. A *piece* is the same with holes: the number −1−k stands for the tree below the k-th
nonterminal of the new rule that the piece belongs to. So `(7, -1, 3, -2)` is rule 7 with the first
subtree as its first child, rule 3 (without children) as its second, the second subtree last.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import torch

from inout._core.randomness import random_seed
from inout.grammars.table import RuleTable

Piece = tuple[int, ...]
Derivation = list[int]


class Pieces(ABC):
    """The pieces that the rules of a transformed grammar stand for, at one setting of weights."""

    @abstractmethod
    def best(self, rule: int) -> Piece:
        """The piece of the largest weight."""

    @abstractmethod
    def sample(self, rule: int, random: np.random.Generator) -> Piece:
        """A piece drawn in proportion to the weights."""

    @abstractmethod
    def ranked(self, rule: int, k: int) -> list[tuple[float, Piece]]:
        """The k best pieces with their log-weights, in order."""


class SinglePieces(Pieces):
    """One piece for each rule."""

    def __init__(self, piece: Callable[[int], Piece], log_weight: Callable[[int], float]) -> None:
        self._piece, self._log_weight = piece, log_weight

    def best(self, rule: int) -> Piece:
        return self._piece(rule)

    def sample(self, rule: int, random: np.random.Generator) -> Piece:
        return self._piece(rule)

    def ranked(self, rule: int, k: int) -> list[tuple[float, Piece]]:
        return [(self._log_weight(rule), self._piece(rule))]


def substitute(
    table: RuleTable, derivation: Sequence[int], piece: Callable[[int], Piece]
) -> Derivation:
    """The derivation in which each rule of this table is replaced by the piece chosen for it.

    >>> from inout.grammars.table import Rule
    >>> table = RuleTable.of("S", [Rule("S", ("S", "S")), Rule("S", ())])
    >>> substitute(table, [0, 1, 1], {0: (5, -2, -1), 1: (6, 7)}.__getitem__)
    [5, 6, 7, 6, 7]
    """
    holes = table.inner_counts
    stack: list[Derivation] = []
    # From the end, the subtrees of a rule are the last ones made, the leftmost on top.
    for rule in reversed(derivation):
        children = [stack.pop() for _ in range(holes[rule])]
        stack.append(spliced(piece(rule), children))
    (result,) = stack
    return result


def spliced(piece: Piece, children: Sequence[Derivation]) -> Derivation:
    """The piece with its k-th hole filled by children[k]."""
    whole: Derivation = []
    for number in piece:
        if number >= 0:
            whole.append(number)
        else:
            whole.extend(children[-1 - number])
    return whole


def filled(outer: Piece, inner: Sequence[Piece]) -> Piece:
    """The piece `outer` with its k-th hole filled by the piece inner[k].

    >>> filled((4, -1), [(2, -1, 8, -2)])
    (4, 2, -1, 8, -2)
    """
    return tuple(m for n in outer for m in ((n,) if n >= 0 else inner[-1 - n]))


def choose(log_weights: Sequence[float], random: np.random.Generator) -> int:
    """A place drawn in proportion to the weights, of which one at least is above 0."""
    if len(log_weights) == 1:
        return 0
    top = max(log_weights)
    sums = list(accumulate(math.exp(x - top) for x in log_weights))
    return bisect_right(sums, random.random() * sums[-1])


def random_numbers(generator: torch.Generator | None) -> np.random.Generator:
    """Numpy's generator, seeded by one of torch: many small draws from torch would be slow."""
    return np.random.default_rng(random_seed(generator, bits=62))
