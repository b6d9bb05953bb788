"""`Parse`: one analysis of a sentence, in terms of the rules of the grammar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from inout._core.lazy import lazy_property
from inout.grammars.tree import PlainTree, Tree, as_nltk


@dataclass(frozen=True, eq=False)
class Parse:
    """A tree of a sentence and its weight; without a tree, the reason why there is none."""

    words: tuple[str, ...]
    """The words as they were given."""

    plain_tree: PlainTree | None
    """The tree, with the words as given for leaves."""

    log_weight: float
    """The sum of the log-weights of its rules; −inf if the grammar does not derive it."""

    rules: tuple[int, ...] | None = None
    """The numbers of its rules as a leftmost derivation; None if the grammar does not derive it."""

    reason: str | None = None
    """Why there is no tree."""

    unknown: tuple[str, ...] = ()
    """The words of the sentence that the grammar does not know, ignoring classes."""

    log_partition: Callable[[], float] = field(default=lambda: -np.inf, repr=False)
    """The log of the weight of all trees of the sentence, computed when called."""

    @lazy_property
    def tree(self) -> Tree | None:
        """The tree as an `nltk.Tree`."""
        return None if self.plain_tree is None else as_nltk(self.plain_tree)

    @property
    def log_prob(self) -> float:
        """The log of the probability of the tree given the sentence."""
        return -np.inf if self.plain_tree is None else self.log_weight - self.log_partition()

    def __str__(self) -> str:
        return str(self.tree) if self.plain_tree is not None else f"no tree: {self.reason}"
