"""`LatentGrammar`: a latent model with all that is needed to parse text with it, and its file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from inout._core.errors import ArgumentError, FileError
from inout.grammars.words import Vocabulary
from inout.io.files import read_bytes, write_bytes
from inout.latent.layout import Layout
from inout.latent.model import LPCFG
from inout.latent.skeleton import Skeleton

VERSION = 1

_KEY = "inout-latent"
_UNREADABLE = (SafetensorError, KeyError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True, eq=False, repr=False)
class LatentGrammar:
    """A latent model, the probabilities of its skeletal rules, and the words that it knows."""

    model: LPCFG
    skeletal: LPCFG
    """The same rules with one latent value each, for the coarse pass and as a last resort."""

    vocabulary: Vocabulary
    training: dict[str, Any] = field(default_factory=dict)
    """How it was made: plain data for people."""

    def __post_init__(self) -> None:
        if (self.skeletal.sizes != 1).any():
            raise ArgumentError("skeletal must have one latent value for each nonterminal")
        if not self.skeletal.skeleton.same_as(self.model.skeleton):
            raise ArgumentError("model and skeletal must have the same Skeleton")

    def save(self, path: str | Path) -> None:
        """Write the grammar as safetensors, whole or not at all."""
        skeleton = self.model.skeleton
        arrays: dict[str, NDArray[Any]] = {
            "parameters": self.model.parameters,
            "skeletal": self.skeletal.parameters,
            "sizes": self.model.sizes,
            "binary": skeleton.binary,
            "lexical": skeleton.lexical,
        }
        content = {
            "version": VERSION,
            "nonterminals": list(skeleton.nonterminals),
            "words": list(skeleton.words),
            "vocabulary": self.vocabulary.to_dict(),
            "training": self.training,
        }
        try:
            described = json.dumps(content)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"training must be plain data to be written. {error}") from error
        write_bytes(path, save_arrays(arrays, {_KEY: described}))

    @staticmethod
    def load(path: str | Path) -> LatentGrammar:
        """The grammar in a file that `save` wrote; `FileError` for any other file."""
        data = read_bytes(path)
        try:
            arrays, content = load_arrays(data), _content(data)
            version = content["version"]
        except _UNREADABLE as error:
            what = "this is no latent grammar of inout"
            if is_latent_grammar(path):
                what = "the latent grammar is damaged, or cut short"
            raise FileError(f"{path}: {what}. {_why(error)}") from error
        if version != VERSION:
            raise FileError(
                f"{path}: the model has version {version!r:.80}; this inout reads {VERSION}"
            )
        try:
            return _grammar(arrays, content)
        except _UNREADABLE as error:
            raise FileError(f"{path}: the latent grammar is damaged. {_why(error)}") from error

    def __repr__(self) -> str:
        return f"LatentGrammar({self.model.describe()})"


def is_latent_grammar(path: str | Path) -> bool:
    """Whether a file begins like one that `LatentGrammar.save` writes."""
    try:
        with Path(path).open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            return f'"{_KEY}"'.encode() in file.read(min(length, 4096))
    except OSError:
        return False


def _content(data: bytes) -> dict[str, Any]:
    """What the header says besides the arrays: safetensors reads it from files only."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    content = json.loads(header["__metadata__"][_KEY])
    if not isinstance(content, dict):
        raise ArgumentError("its description must be an object")
    return content


def _grammar(arrays: dict[str, NDArray[Any]], content: dict[str, Any]) -> LatentGrammar:
    kinds: dict[str, Any] = dict.fromkeys(("parameters", "skeletal"), np.float64)
    kinds |= {"sizes": np.int64, "binary": np.int32, "lexical": np.int32}
    for name, kind in kinds.items():
        if arrays[name].dtype != kind:
            raise ArgumentError(f"{name} must be {kind.__name__}. Got {arrays[name].dtype}")
    for name in ("nonterminals", "words"):
        if not isinstance(content[name], list) or not all(
            isinstance(x, str) for x in content[name]
        ):
            raise ArgumentError(f"{name} must be a list of strings")
    if not isinstance(content["training"], dict):
        raise ArgumentError("training must be an object")
    names, words = tuple(content["nonterminals"]), tuple(content["words"])
    skeleton = Skeleton(names, words, arrays["binary"], arrays["lexical"])
    sizes = arrays["sizes"]
    if sizes.shape != (len(names),):
        raise ArgumentError(f"sizes must be [{len(names)}]. Got {list(sizes.shape)}")
    return LatentGrammar(
        LPCFG(Layout(skeleton, sizes), arrays["parameters"]),
        LPCFG(Layout(skeleton, 1), arrays["skeletal"]),
        Vocabulary.from_dict(content["vocabulary"]),
        content["training"],
    )


def _why(error: Exception) -> str:
    return f"It has no {error}" if isinstance(error, KeyError) else f"{error}"
