"""`Skeleton`: the rules of a latent-variable grammar without their latent values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError

Integers = NDArray[np.int32]


@dataclass(frozen=True, eq=False, repr=False)
class Skeleton:
    """Rules a → b c and a → x over numbered nonterminals and words, sorted and all different.

    >>> skeleton = Skeleton.of([("S", "A", "A"), ("S", "A", "S")], [("A", "x"), ("A", "y")])
    >>> skeleton
    Skeleton(2 binary rules, 2 lexical rules, 2 nonterminals, 2 words)
    >>> skeleton.binary.tolist(), skeleton.lexical.tolist()
    ([[0, 1, 0], [0, 1, 1]], [[1, 0], [1, 1]])
    """

    nonterminals: tuple[str, ...]
    words: tuple[str, ...]
    binary: Integers  # [r 3]: numbers of a, b, c
    lexical: Integers  # [l 2]: numbers of a, x

    def __post_init__(self) -> None:
        _check("binary", self.binary, [len(self.nonterminals)] * 3)
        _check("lexical", self.lexical, [len(self.nonterminals), len(self.words)])
        for name in ("nonterminals", "words"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise ArgumentError(name, "must differ")

    @staticmethod
    def of(binary: Iterable[tuple[str, str, str]], lexical: Iterable[tuple[str, str]]) -> Skeleton:
        """The skeleton of rules given by names; symbols are numbered as they are first named."""
        nonterminals: dict[str, int] = {}
        words: dict[str, int] = {}
        rules = {
            tuple(nonterminals.setdefault(a, len(nonterminals)) for a in rule): None
            for rule in binary
        }
        entries = {
            (nonterminals.setdefault(a, len(nonterminals)), words.setdefault(x, len(words))): None
            for a, x in lexical
        }
        return Skeleton(
            tuple(nonterminals), tuple(words), _sorted(list(rules), 3), _sorted(list(entries), 2)
        )

    @cached_property
    def nonterminal_numbers(self) -> dict[str, int]:
        return {name: a for a, name in enumerate(self.nonterminals)}

    @cached_property
    def word_numbers(self) -> dict[str, int]:
        return {word: x for x, word in enumerate(self.words)}

    @cached_property
    def binary_numbers(self) -> dict[tuple[int, ...], int]:
        return {rule: r for r, rule in enumerate(map(tuple, self.binary.tolist()))}

    @cached_property
    def lexical_numbers(self) -> dict[tuple[int, ...], int]:
        return {rule: e for e, rule in enumerate(map(tuple, self.lexical.tolist()))}

    @cached_property
    def rules_of_word(self) -> list[NDArray[np.int64]]:
        order = np.argsort(self.lexical[:, 1], kind="stable")
        counts = np.bincount(self.lexical[:, 1], minlength=len(self.words))
        return np.split(order, np.cumsum(counts)[:-1]) if len(self.words) else []

    def same_as(self, other: Skeleton) -> bool:
        """Whether both have the same rules under the same numbers."""
        return self is other or (
            self.nonterminals == other.nonterminals
            and self.words == other.words
            and np.array_equal(self.binary, other.binary)
            and np.array_equal(self.lexical, other.lexical)
        )

    def describe(self) -> str:
        return (
            f"{len(self.binary)} binary rules, {len(self.lexical)} lexical rules, "
            f"{len(self.nonterminals)} nonterminals, {len(self.words)} words"
        )

    def __repr__(self) -> str:
        return f"Skeleton({self.describe()})"


def _sorted(rows: Sequence[tuple[int, ...]], width: int) -> Integers:
    return np.array(sorted(rows), np.int32).reshape(len(rows), width)


def _check(name: str, rules: Integers, sizes: list[int]) -> None:
    if rules.ndim != 2 or rules.shape[1] != len(sizes):
        raise ArgumentError(name, f"must be [rules {len(sizes)}]. Got {list(rules.shape)}")
    if len(rules) and ((rules < 0).any() or (rules >= sizes).any()):
        raise ArgumentError(name, "must hold numbers of symbols. Got one that is out of range")
    rows = list(map(tuple, rules.tolist()))
    if any(a >= b for a, b in pairwise(rows)):
        raise ArgumentError(name, "must be sorted, and rules must differ")
