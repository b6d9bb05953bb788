"""`LatentParser`: sentences under a latent-variable grammar, from coarse to fine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch

from inout._core.checks import expect, expect_one_of
from inout._core.errors import ArgumentError, ChartTooLargeError
from inout._core.pipeline import in_threads
from inout.grammars.tree import Tree
from inout.grammars.treebank import collapse_unary
from inout.latent.decoding.analyses import LatentAnalyses
from inout.latent.decoding.best_trees import (
    Constituents,
    ConstituentTable,
    Method,
    treebank_constituents,
)
from inout.latent.decoding.pruning import CoarseGrammar
from inout.latent.grammar import LatentGrammar
from inout.latent.graphs import chart_of_sentence
from inout.latent.treebank import treebank_tree, with_words

Source = Literal["latent", "negative", "wider", "unpruned", "skeletal", "steps", "none"]

WIDER = 1e-3  # the second threshold is this share of the first
_LAST: tuple[Source, ...] = ("skeletal", "steps")
MOST_WORDS_UNPRUNED = 60  # a longer sentence may take a minute, the cube of its length


@dataclass(frozen=True)
class LatentParse:
    """The tree found for a sentence, and how it was found."""

    words: tuple[str, ...]  # the words as they were given
    skeletal_tree: Tree | None  # the tree with the labels of the model
    # How the tree was found: by the model (latent), by the model although p(x) < 0 (negative), with
    # less pruning (wider) or none (unpruned), the skeletal rules (skeletal), these with unary
    # chains taken apart (steps), nothing (none).
    source: Source
    unknown: tuple[str, ...] = ()  # the words that the grammar does not know, classes aside

    @property
    def tree(self) -> Tree | None:
        """The tree as the treebank would have it."""
        return None if self.skeletal_tree is None else treebank_tree(self.skeletal_tree)


class LatentParser:
    """Parses with a latent model: sums over latent values are exact, best trees by posteriors.

    threshold: symbols whose expected count over a span by the skeletal rules is below this are
    pruned; None for no pruning, whose cost is cubic in the length of a sentence (with GENIA's
    rules and 16 values, half a second for 20 words and a minute for 120). `label` says which
    constituents count in `min_risk`.

    An estimated model may give a sentence negative or zero mass. Posteriors are ratios, so they
    are valid with a negative mass. Without mass, or without a tree whose parts have positive
    posteriors, `parse` falls back, in this order: a lower threshold; no pruning, for up to 60
    words; the most probable tree by the skeletal rules; by these with chains of unary rules taken
    apart, which may give chains that the model has not; no tree. `LatentParse.source` says which.
    """

    def __init__(
        self,
        grammar: LatentGrammar,
        *,
        threshold: float | None = 1e-5,
        label: Constituents = treebank_constituents,
    ) -> None:
        if not isinstance(grammar, LatentGrammar):
            raise ArgumentError(
                "grammar",
                "must be a LatentGrammar (`LatentGrammar.load` reads a file, "
                f"`TrainingSet.grammar` makes one of a model). Got {type(grammar).__name__}",
            )
        wanted = "must be between 0 and 1, or None for no pruning"
        expect(threshold is None or 0 < threshold < 1, "threshold", wanted, threshold)
        self.grammar, self.threshold = grammar, threshold
        self.coarse = CoarseGrammar(grammar.skeletal)
        self._table = ConstituentTable(grammar.model.skeleton.nonterminals, label)

    def given(self, words: Sequence[str]) -> LatentAnalyses:
        """The trees of a sentence, or those that pruning leaves, for all queries."""
        _refuse_text(words)
        return self._given(words, self._expected(words), self.threshold)

    def _expected(self, words: Sequence[str]) -> Any:
        if self.threshold is None:
            return None
        return self.coarse.expected(self.grammar.vocabulary.replace(words))

    def _given(
        self, words: Sequence[str], expected: Any, threshold: float | None
    ) -> LatentAnalyses:
        model, known = self.grammar.model, self.grammar.vocabulary.replace(words)
        allowed = None
        if threshold is not None:
            # Without a coarse tree there is no other, and nothing to be put in the chart.
            shape = len(words), len(words) + 1, len(model.sizes)
            allowed = np.zeros(shape, np.bool_) if expected is None else expected >= threshold
        numbers = [model.skeleton.word_numbers.get(word, -1) for word in known]
        chart = chart_of_sentence(model.layout, numbers, allowed)
        return LatentAnalyses(tuple(words), known, model, chart, self._table, self.coarse)

    def parse(self, words: Sequence[str], method: Method = "max_rule") -> LatentParse:
        """The best tree of a sentence by one of the methods of `best_items`."""
        return self.parse_and_analyses(words, method)[0]

    def parse_and_analyses(
        self, words: Sequence[str], method: Method = "max_rule"
    ) -> tuple[LatentParse, LatentAnalyses]:
        """`parse`, with the trees that it was chosen from; where none would do, those tried first.

        That is `given` without a second look at the sentence.
        """
        _refuse_text(words)
        expect_one_of("method", method, get_args(Method))
        unknown = tuple(self.grammar.vocabulary.unknown(words))
        expected = self._expected(words)
        first = self._given(words, expected, self.threshold)
        tree = first.best_tree(method)
        if tree is not None:
            source: Source = "negative" if first.sign < 0 else "latent"
            return LatentParse(tuple(words), tree, source, unknown), first
        for source, threshold in self._further(words, expected):
            try:
                analyses = self._given(words, expected, threshold)
            except ChartTooLargeError:  # which the next one would be as well
                break
            tree = analyses.best_tree(method)
            if tree is not None:
                return LatentParse(tuple(words), tree, source, unknown), analyses
        for source in _LAST if words else ():
            parser = self.coarse.parser if source == "skeletal" else self.coarse.by_steps
            found = parser.parse(self.grammar.vocabulary.replace(words)).tree
            if found is not None:
                # The grammar has a start symbol of its own above the roots.
                tree = found[0]
                if source == "steps":
                    tree = collapse_unary(tree, tags=True, root=True)
                return LatentParse(tuple(words), with_words(tree, words), source, unknown), first
        return LatentParse(tuple(words), None, "none", unknown), first

    def _further(self, words: Sequence[str], expected: Any) -> list[tuple[Source, float | None]]:
        """The fallbacks if the first chart has no suitable tree: pairs of source and threshold."""
        if self.threshold is None or expected is None:
            return []
        wider: list[tuple[Source, float | None]] = [("wider", self.threshold * WIDER)]
        return wider + [("unpruned", None)] * (len(words) <= MOST_WORDS_UNPRUNED)

    def parse_each(
        self, sentences: Iterable[Sequence[str]], method: Method = "max_rule"
    ) -> Iterator[LatentParse]:
        """`parse` of many sentences on all cores, yielded in order as soon as possible."""
        return in_threads(partial(self.parse, method=method), sentences, torch.get_num_threads())

    def parse_all(
        self, sentences: Iterable[Sequence[str]], method: Method = "max_rule"
    ) -> list[LatentParse]:
        return list(self.parse_each(sentences, method))

    def __repr__(self) -> str:
        return f"LatentParser({self.grammar!r}, threshold={self.threshold})"


def _refuse_text(words: Sequence[str]) -> None:
    if isinstance(words, str):
        raise ArgumentError("words", "must be a sequence of words. Got a str; split it first")
