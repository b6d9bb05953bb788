"""`LatentGrammar`: a latent model with everything needed to parse text, and its file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import expect_shape
from inout._core.errors import ArgumentError
from inout.grammars.words import Vocabulary
from inout.io.models import LATENT_GRAMMAR, has_key, made_of, read_model, write_model
from inout.latent.layout import Layout
from inout.latent.model import LPCFG
from inout.latent.skeleton import Skeleton

VERSION = 1

_WHAT = "latent grammar"


@dataclass(frozen=True, eq=False, repr=False)
class LatentGrammar:
    """A latent model, the probabilities of its skeletal rules, and the words that it knows."""

    model: LPCFG
    skeletal: LPCFG
    """The same rules with one latent value each, for the coarse pass and as a last resort."""

    vocabulary: Vocabulary
    training: dict[str, Any] = field(default_factory=dict)
    """Training options, for information only."""

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
