"""`TrainingSet`: the trees of a treebank as latent models are trained on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from inout._core.errors import ArgumentError
from inout.grammars.markovisation import Markovisation
from inout.grammars.tree import Tree
from inout.grammars.words import Vocabulary
from inout.latent.grammar import LatentGrammar
from inout.latent.model import LPCFG
from inout.latent.starts import treebank_model
from inout.latent.treebank import FORGETFUL, skeletal_trees, with_classes
from inout.latent.trees import SkeletalTrees


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Skeletal trees with classes for rare words, and the vocabulary that knows the others.

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(TOP (S (NP (PRP she)) (VP (VBD saw) (NP (PRP her)))))")
    >>> data = TrainingSet.of([tree, tree])
    >>> data.trees
    SkeletalTrees(2 trees, 10 nodes)
    >>> data.grammar(data.skeletal)
    LatentGrammar(2 binary rules, 3 lexical rules, 4 nonterminals, 3 words, 1 latent value)
    """

    trees: SkeletalTrees
    vocabulary: Vocabulary

    @staticmethod
    def of(
        trees: Iterable[Tree],
        markovisation: Markovisation = FORGETFUL,
        *,
        unknown_threshold: int = 1,
    ) -> TrainingSet:
        """The training set of a treebank; its trees are converted by `skeletal_tree`.

        Words seen at most `unknown_threshold` times are replaced by their class (UNK-LC-ed).
        """
        made = list(skeletal_trees(trees, markovisation))
        if not made:
            raise ArgumentError("trees", "must hold at least one tree with words. Got none")
        replaced, vocabulary = with_classes(made, threshold=unknown_threshold)
        return TrainingSet(SkeletalTrees.of(replaced), vocabulary)

    @cached_property
    def skeletal(self) -> LPCFG:
        """The relative frequencies of the rules, with one latent value each."""
        return treebank_model(self.trees)

    def grammar(self, model: LPCFG, **training: Any) -> LatentGrammar:
        """A model of these trees with everything needed to parse."""
        return LatentGrammar(model, self.skeletal, self.vocabulary, training)
