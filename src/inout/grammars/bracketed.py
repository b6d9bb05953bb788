"""`BracketedGrammar`: a grammar for training on partially bracketed sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from inout.grammars.grammar import Grammar
from inout.grammars.parser.likelihood import Likelihood
from inout.grammars.parser.sentences import Words, length

Bracketed = tuple[Words, Sequence[tuple[int, int]]]
"""A sentence and pairs (i, j) around words i to j−1 that no constituent may cross."""


@dataclass(frozen=True, eq=False)
class BracketedGrammar:
    """The model of partially bracketed corpora (Pereira & Schabes 1992): `inout.em` trains it.

    Z of a sentence is the weight of its trees whose constituents cross no bracket.

    >>> grammar = Grammar.from_text("S -> S S [0.5] | 'a' [0.25] | 'b' [0.25]")
    >>> corpus = [("a b".split(), []), ("a b a".split(), [(0, 2)])]
    >>> likelihood = BracketedGrammar(grammar).likelihood(corpus)
    >>> (likelihood(grammar.log_weights).exp() * 2**9).tolist()  # one of the two trees of a b a
    [16.0, 2.0]
    """

    grammar: Grammar

    @property
    def log_weights(self) -> Float[Tensor, " r"]:
        return self.grammar.log_weights

    @property
    def distributions(self) -> Int[np.ndarray, " r"]:
        return self.grammar.distributions

    def with_log_weights(self, log_weights: Float[Tensor, " r"]) -> BracketedGrammar:
        return BracketedGrammar(self.grammar.with_log_weights(log_weights))

    def likelihood(self, corpus: Sequence[Bracketed]) -> Likelihood:
        """A function of log-weights [r] that gives log Z of every sentence [b]."""
        words = [sentence for sentence, _ in corpus]
        return self.grammar.likelihood(words, [list(brackets) for _, brackets in corpus])

    def lengths(self, corpus: Sequence[Bracketed]) -> NDArray[np.int64]:
        return np.array([length(words) for words, _ in corpus], dtype=np.int64)

    def fingerprint(self) -> str:
        return f"bracketed {self.grammar.to_text('json')}"
