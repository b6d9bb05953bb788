"""`Transformed`: a grammar in another form, and the way back to the original."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.grammars.parsing.parses import leaves_of, rules_of, tree_of
from inout.grammars.transforms.base import Composition, Transform, WayBack
from inout.grammars.transforms.binarisation import Binarisation
from inout.grammars.transforms.null_removal import NullRemoval
from inout.grammars.transforms.pieces import random_numbers
from inout.grammars.transforms.selection import Selection
from inout.grammars.transforms.unary_removal import UnaryRemoval

if TYPE_CHECKING:
    from nltk.tree import Tree

    from inout.grammars.grammar import Grammar


@dataclass(frozen=True, eq=False)
class Transformed:
    """A grammar with other rules and the same weight for each sentence, trees told apart or not.

    A new rule stands for pieces of trees of the original and weighs as much as all of them, so
    sums over trees do not change; only empty sentences may be missing, see `log_empty`.
    """

    grammar: Grammar
    original: Grammar
    transform: Transform

    @property
    def original_rules(self) -> np.ndarray:
        """The number that each rule had in the original; only rules that were kept have one."""
        if isinstance(self.transform, Selection):
            return self.transform.kept
        raise ArgumentError("only the rules of trimmed() have numbers in the original")

    @property
    def log_empty(self) -> float:
        """The log-weight of the empty sentence, where the new grammar has no empty rules.

        >>> from inout import Grammar
        >>> Grammar.from_text("S -> 'a' S [0.75] | [0.25]").cnf().log_empty
        -1.3862943611198906
        """
        parts = getattr(self.transform, "transforms", (self.transform,))
        weights = self.original.log_weights.detach()
        for part in parts:
            if isinstance(part, NullRemoval):
                return float(part.log_empty(weights))
            weights = part.log_weights(weights)
        return -np.inf

    def to_original(self, counts: Float[Tensor, " k"]) -> Float[Tensor, " r"]:
        """(Expected) counts of the new rules [k] as those of the original rules [r].

        A use of a new rule is worth the expected number of uses of each original rule in its
        pieces, which is the derivative of its log-weight by the original's.

        >>> from inout import Grammar
        >>> trimmed = Grammar.from_text("S -> A\\nS -> 'a'").trimmed()
        >>> trimmed.to_original(torch.tensor([2.0]))
        tensor([0., 2.])
        """
        if counts.shape != (len(self.grammar),):
            raise ArgumentError(
                f"counts must have shape [{len(self.grammar)}]. Got {list(counts.shape)}"
            )
        base = self.original.log_weights.detach().clone().requires_grad_()
        new = self.transform.log_weights(base)
        if not new.requires_grad:
            return counts.new_zeros(len(base))
        # The gradient of a rule of weight zero is 0 by definition, and so are its counts.
        (found,) = torch.autograd.grad(new, base, counts.to(base), allow_unused=True)
        return counts.new_zeros(len(base)) if found is None else found.to(counts.dtype)

    def restore(self, tree: Tree) -> Tree:
        """The best of the original trees that a tree by the new rules stands for.

        >>> from inout import Grammar, Parser
        >>> form = Grammar.from_text("S -> A 'b' 'c'\\nA -> B\\nB -> 'a'").cnf()
        >>> print(Parser(form.grammar).parse(["a", "b", "c"]))
        (S (A a) (⟨'b' 'c'⟩ (⟨'b'⟩ b) (⟨'c'⟩ c)))
        >>> print(form.restore(Parser(form.grammar).parse(["a", "b", "c"]).tree))
        (S (A (B a)) b c)
        """
        return self._tree(tree, self._way_back.best(self._rules(tree)))

    def restore_sample(self, tree: Tree, generator: torch.Generator | None = None) -> Tree:
        """One of these trees, drawn in proportion to their weights."""
        random = random_numbers(generator)
        return self._tree(tree, self._way_back.sample(self._rules(tree), random))

    @cached_property
    def _way_back(self) -> WayBack:
        return self.transform.way_back(self.original.log_weights.detach().numpy())

    def _rules(self, tree: Tree) -> list[int]:
        rules = rules_of(self.grammar.rules, tree)
        if rules is None:
            raise ArgumentError("tree must be one by the rules of the transformed grammar")
        return rules

    def _tree(self, tree: Tree, rules: list[int]) -> Tree:
        return tree_of(self.original.rules, rules, leaves_of(tree))

    def __repr__(self) -> str:
        return f"Transformed({self.grammar!r}, from {len(self.original)} rules)"


def trimmed(grammar: Grammar) -> Transformed:
    """See `Grammar.trimmed`."""
    return _transformed(grammar, Selection.trimming(grammar.rules))


def binarised(grammar: Grammar) -> Transformed:
    """See `Grammar.binarised`."""
    return _transformed(grammar, Binarisation(grammar.rules))


def without_empty_rules(grammar: Grammar) -> Transformed:
    """See `Grammar.without_empty_rules`."""
    short = Binarisation(grammar.rules)
    return _transformed(grammar, Composition(short, NullRemoval(short.table)))


def without_unary_rules(grammar: Grammar) -> Transformed:
    """See `Grammar.without_unary_rules`."""
    return _transformed(grammar, UnaryRemoval(grammar.rules))


def cnf(grammar: Grammar) -> Transformed:
    """See `Grammar.cnf`."""
    useful = Selection.trimming(grammar.rules)
    short = Binarisation(useful.table)
    solid = NullRemoval(short.table)
    parts = useful, short, solid, UnaryRemoval(solid.table)
    return _transformed(grammar, Composition(*parts))


def _transformed(grammar: Grammar, transform: Transform) -> Transformed:
    weights = transform.log_weights(grammar.log_weights)
    made = type(grammar)(grammar.start, transform.table, weights)
    return Transformed(made, grammar, transform)
