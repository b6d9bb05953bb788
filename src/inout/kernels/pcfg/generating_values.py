"""`ValuedGrammar`: the potentials of a grammar's parts together with values of K functions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from inout.kernels.shapes import Root, Words
from inout.series.lanes import Lanes


@dataclass(frozen=True, eq=False)
class ValuedGrammar:
    """Log-potentials in float64, values of one dtype. m is 1 or b: rules that all share, or own.

    The potentials are relative to constants; padding has values 0 and finite potentials.
    """

    root: Root
    rules: Float[Tensor, "m nt s s"]
    words: Words
    root_values: Inexact[Tensor, "k b nt"]
    rule_values: Inexact[Tensor, "k m nt s s"] | None
    word_values: Inexact[Tensor, "k b n pt"]

    @property
    def num_nonterminals(self) -> int:
        """nt."""
        return self.root.shape[1]

    def of(self, elements: Int[Tensor, " e"]) -> ValuedGrammar:
        """Some elements."""
        own = len(self.rules) > 1
        rule_values = self.rule_values
        return ValuedGrammar(
            self.root[elements],
            self.rules[elements] if own else self.rules,
            self.words[elements],
            self.root_values[:, elements],
            rule_values[:, elements] if own and rule_values is not None else rule_values,
            self.word_values[:, elements],
        )

    def only(self, k: int) -> ValuedGrammar:
        """The k-th function alone."""
        own, rules = slice(k, k + 1), self.rule_values
        return replace(
            self,
            root_values=self.root_values[own],
            rule_values=None if rules is None else rules[own],
            word_values=self.word_values[own],
        )

    def without_values(self) -> ValuedGrammar:
        """The same potentials, and one function that is 0."""
        return replace(
            self,
            root_values=torch.zeros_like(self.root)[None],
            rule_values=None,
            word_values=torch.zeros_like(self.words)[None],
        )

    def possible(self) -> ValuedGrammar:
        """Weight 1 for all that is possible, and one function that is 0."""
        root, rules, words = (
            torch.where(x > -torch.inf, 0.0, x) for x in (self.root, self.rules, self.words)
        )
        return replace(self, root=root, rules=rules, words=words).without_values()

    def root_lanes(self, lanes: Lanes) -> Inexact[Tensor, "l b nt"]:
        """exp(potential + z · values) of each symbol at the top."""
        return self.root.exp() * lanes.exponential(self.root_values)

    def word_lanes(self, lanes: Lanes) -> Inexact[Tensor, "l b n pt"]:
        """exp(potential + z · values) of each preterminal over each word."""
        return self.words.exp() * lanes.exponential(self.word_values)


def relative(potentials: Float[Tensor, "*b"], dims: tuple[int, ...]) -> Float[Tensor, "*b"]:
    """Potentials less the largest over some dimensions, a constant to autograd."""
    top = potentials.detach().amax(dims, keepdim=True)
    return potentials - torch.where(top == -torch.inf, 0.0, top)
