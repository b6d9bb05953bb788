"""`LatentGrammar`: a latent model with all that parsing needs, and its file; `TrainingSet`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import expect_shape
from inout._core.errors import ArgumentError
from inout.grammars.markovisation import Markovisation
from inout.grammars.tree import Tree
from inout.grammars.words import Vocabulary
from inout.io.models import LATENT_GRAMMAR, has_key, made_of, read_model, write_model
from inout.latent.layout import Layout
from inout.latent.model import LPCFG
from inout.latent.skeleton import Skeleton
from inout.latent.starts import treebank_model
from inout.latent.treebank import FORGETFUL, skeletal_trees, with_classes
from inout.latent.trees import SkeletalTrees

VERSION = 1

_WHAT = "latent grammar"


@dataclass(frozen=True, eq=False, repr=False)
class LatentGrammar:
    """A latent model, the probabilities of its skeletal rules, and the words that it knows."""

    model: LPCFG
    # The same rules with one latent value each, for the coarse pass and as a last resort.
    skeletal: LPCFG
    vocabulary: Vocabulary
    training: dict[str, Any] = field(default_factory=dict)  # training options, for information only

    def __post_init__(self) -> None:
        if (self.skeletal.sizes != 1).any():
            raise ArgumentError("skeletal", "must have one latent value for each nonterminal")
        if not self.skeletal.skeleton.same_as(self.model.skeleton):
            raise ArgumentError(None, "model and skeletal must have the same Skeleton")

    def save(self, path: str | Path) -> None:
        """Write the grammar as safetensors, atomically."""
        skeleton = self.model.skeleton
        arrays: dict[str, NDArray[Any]] = {
            "parameters": self.model.parameters,
            "skeletal": self.skeletal.parameters,
            "sizes": self.model.sizes,
            "binary": skeleton.binary,
            "lexical": skeleton.lexical,
        }
        content = {
            "nonterminals": list(skeleton.nonterminals),
            "words": list(skeleton.words),
            "vocabulary": self.vocabulary.to_dict(),
            "training": self.training,
        }
        write_model(path, LATENT_GRAMMAR, VERSION, content, arrays)

    @staticmethod
    def load(path: str | Path) -> LatentGrammar:
        """The grammar in a file that `save` wrote; `FileError` for any other file."""
        content, arrays = read_model(path, LATENT_GRAMMAR, VERSION, _WHAT)
        with made_of(path, _WHAT):
            return _grammar(arrays, content)

    def __repr__(self) -> str:
        return f"LatentGrammar({self.model.describe()})"


def is_latent_grammar(path: str | Path) -> bool:
    """Whether a file begins like one that `LatentGrammar.save` writes."""
    return has_key(path, LATENT_GRAMMAR)


def _grammar(arrays: dict[str, NDArray[Any]], content: dict[str, Any]) -> LatentGrammar:
    kinds: dict[str, Any] = dict.fromkeys(("parameters", "skeletal"), np.float64)
    kinds |= {"sizes": np.int64, "binary": np.int32, "lexical": np.int32}
    for name, kind in kinds.items():
        if arrays[name].dtype != kind:
            raise ArgumentError(name, f"must be {kind.__name__}. Got {arrays[name].dtype}")
    for name in ("nonterminals", "words"):
        if not isinstance(content[name], list) or not all(
            isinstance(x, str) for x in content[name]
        ):
            raise ArgumentError(name, "must be a list of strings")
    if not isinstance(content["training"], dict):
        raise ArgumentError("training", "must be an object")
    names, words = tuple(content["nonterminals"]), tuple(content["words"])
    skeleton = Skeleton(names, words, arrays["binary"], arrays["lexical"])
    sizes = arrays["sizes"]
    expect_shape("sizes", sizes, (len(names),))
    return LatentGrammar(
        LPCFG(Layout(skeleton, sizes), arrays["parameters"]),
        LPCFG(Layout(skeleton, 1), arrays["skeletal"]),
        Vocabulary.from_dict(content["vocabulary"]),
        content["training"],
    )


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
