"""The steps of EM one at a time, for any generative model, and the counts of trees for grammars.

The E step gives expected counts; Q is the log-likelihood of such counts, and the M step maximises
it. Prescher, "Inside-outside estimation meets dynamic EM" (2001), sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.checks import as_log_weights
from inout._core.errors import ArgumentError
from inout.grammars.derivations import leaves, rules_of
from inout.grammars.grammar import Grammar
from inout.grammars.words import Vocabulary
from inout.learning.arguments import checked_corpus, checked_frequencies
from inout.learning.expectation import expect
from inout.learning.model import GenerativeModel, Parameters
from inout.learning.priors import Numbers, maximise

Model = TypeVar("Model", bound=GenerativeModel)


def expected_counts(
    model: GenerativeModel, corpus: Any, *, frequencies: Numbers | None = None
) -> Float[Tensor, " p"]:
    """The E step: how often each parameter is used, expected under the model's own weights.

    Σ frequency · E[f_p | sentence], the gradient of the log-likelihood. Sentences without analysis
    count nothing. The weights are used as they are; `em` normalises them first.

    >>> grammar = Grammar.from_text("S -> S S [0.5] | 'a' [0.25] | 'b' [0.25]")
    >>> expected_counts(grammar, [["a", "b", "a"], ["b"]], frequencies=[2, 1])
    tensor([4., 4., 3.], dtype=torch.float64)
    """
    sentences = checked_corpus(corpus)
    weights = Parameters.of(model).log_weights
    often = checked_frequencies(frequencies, len(sentences))
    return torch.from_numpy(expect(model.likelihood(sentences), weights, often).counts)


def auxiliary(
    model: GenerativeModel, other: Any, corpus: Any, *, frequencies: Numbers | None = None
) -> Float[Tensor, ""]:
    """Q(θ'|θ) = Σ frequency · E_θ[log weight of an analysis under θ' | sentence].

    θ are the weights of the model, θ' those of `other` (a model, or log-weights [p]). It is the
    log-likelihood of the current corpus: all analyses, each as often as θ expects it. Its gradient
    in θ' at θ is that of the log-likelihood. log L(θ') − log L(θ) is at least Q(θ'|θ) − Q(θ|θ).
    Differentiable in θ', −inf if θ' excludes what θ uses.

    >>> grammar = Grammar.from_text("S -> S S [0.5] | 'a' [0.25] | 'b' [0.25]")
    >>> corpus = [["a", "b", "a"], ["b"]]
    >>> better = maximum_likelihood(grammar, expected_counts(grammar, corpus))
    >>> auxiliary(grammar, grammar, corpus), auxiliary(grammar, better, corpus)
    (tensor(-6.9315, dtype=torch.float64), tensor(-6.5917, dtype=torch.float64))
    """
    counts = expected_counts(model, corpus, frequencies=frequencies)
    weights = as_log_weights("other", getattr(other, "log_weights", other), len(counts))
    counts = counts.to(weights)
    return (counts * torch.where(counts > 0, weights, 0.0)).sum()


def maximum_likelihood(model: Model, counts: Numbers) -> Model:
    """The M step: the model whose parameters are relative frequencies of counts [p].

    It maximises Σ count · log weight over all weights that sum to 1 in each distribution.
    Distributions without counts keep their weights. Counts may be fractions: those of
    `expected_counts`, or of a corpus of trees (`tree_counts`).

    >>> grammar = Grammar.from_text("S -> S S | 'a' | 'b'")
    >>> maximum_likelihood(grammar, [1.5, 2.0, 0.5]).log_weights.exp()
    tensor([0.3750, 0.5000, 0.1250], dtype=torch.float64)
    """
    parameters = Parameters.of(model)
    given = checked_frequencies(counts, len(parameters.log_weights), "counts")
    before = np.where(given > 0, 0.0, parameters.log_weights)  # a zero may be revived
    found = maximise(parameters, before, given, np.zeros_like(given))
    return model.with_log_weights(torch.from_numpy(found))


def tree_counts(
    grammar: Grammar, trees: Iterable[Any], *, frequencies: Numbers | None = None
) -> Float[Tensor, " r"]:
    """How often each rule occurs in a corpus of trees, each counted `frequencies` times.

    Σ frequency · f_r(tree). Trees are `nltk.Tree`s or `PlainTree`s, such as those of parses;
    unknown words count as their classes. Raises ArgumentError for a tree that the grammar does
    not derive. O(number of nodes).

    >>> from inout import Parser
    >>> grammar = Grammar.from_text("S -> S S [0.5] | 'a' [0.25] | 'b' [0.25]")
    >>> parses = Parser(grammar).kbest(["a", "b", "a"], 2)  # the current corpus of one sentence
    >>> shares = [np.exp(parse.log_prob) for parse in parses]
    >>> tree_counts(grammar, [parse.tree for parse in parses], frequencies=shares)
    tensor([2., 2., 1.], dtype=torch.float64)
    """
    several = list(trees)
    often = checked_frequencies(frequencies, len(several))
    vocabulary = Vocabulary.from_terminals(grammar.terminals)
    counts = np.zeros(len(grammar))
    for number, (tree, times) in enumerate(zip(several, often, strict=True)):
        rules = rules_of(grammar.rules, tree)
        if rules is None and vocabulary.classes:
            rules = rules_of(grammar.rules, tree, vocabulary.replace(leaves(tree)))
        if rules is None:
            wanted = "must be derived by the grammar"
            raise ArgumentError("trees", f"{wanted}. Got {tree!s:.80} at {number}")
        np.add.at(counts, rules, times)
    return torch.from_numpy(counts)
