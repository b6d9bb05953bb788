"""Files of latent-variable grammars: what was written comes back, and nothing else is taken."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nltk.tree import Tree
from safetensors.numpy import load, save

from inout._core.errors import ArgumentError, FileError
from inout.grammars.words import Vocabulary
from inout.latent import LPCFG, LatentGrammar, LatentParser, Layout, Skeleton, TrainingSet, split
from inout.latent.grammar import VERSION, is_latent_grammar

LINES = [
    '(TOP (S (NP (DT the) (NN "cat"é)) (VP (VBD walked) (NP (PRP her)))))',
    "(TOP (S (NP (PRP she)) (VP (VBD saw) (NP (DT the) (JJ old) (NN dog)))))",
    "(TOP (S (NP (PRP she)) (VP (VBD saw) (NP (PRP her)))))",
]


def made() -> LatentGrammar:
    data = TrainingSet.of(map(Tree.fromstring, LINES))
    model = split(data.skeletal, torch.Generator().manual_seed(1), sizes=3)
    model.parameters[:4] = [-0.0, 5e-324, -1e300, 0.1]  # any numbers will do
    return data.grammar(model, method="em", latent=3, where={"rounds": [1, 2.5, None]})


@pytest.fixture
def grammar() -> LatentGrammar:
    return made()


def test_everything_comes_back(grammar: LatentGrammar, tmp_path: Path):
    path = tmp_path / "model.safetensors"
    grammar.save(path)
    found = LatentGrammar.load(path)
    for one, other in ((found.model, grammar.model), (found.skeletal, grammar.skeletal)):
        assert one.parameters.tobytes() == other.parameters.tobytes()
        assert one.sizes.tolist() == other.sizes.tolist()
        assert one.parameters.dtype == np.float64
        assert one.skeleton.same_as(other.skeleton)
    assert found.skeletal.skeleton is found.model.skeleton
    assert found.vocabulary == grammar.vocabulary
    assert found.training == grammar.training
    assert found.model.fingerprint() == grammar.model.fingerprint()
    found.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    assert is_latent_grammar(path)


def test_what_comes_back_parses_the_same(tmp_path: Path):
    data = TrainingSet.of(map(Tree.fromstring, LINES))
    grammar = data.grammar(split(data.skeletal, torch.Generator().manual_seed(1)))
    grammar.save(tmp_path / "model.safetensors")
    found = LatentGrammar.load(tmp_path / "model.safetensors")
    for line in ("she walked the dog", "she saw the old parrot", "the the"):
        assert LatentParser(found).parse(line.split()) == LatentParser(grammar).parse(line.split())


def test_a_grammar_of_almost_nothing(tmp_path: Path):
    skeleton = Skeleton.of([], [("A", "x")])
    one = LPCFG(Layout(skeleton, 1), np.array([1.0, 1.0]))
    LatentGrammar(one, one, Vocabulary(frozenset("x"))).save(tmp_path / "m")
    found = LatentGrammar.load(tmp_path / "m")
    assert found.model.skeleton.binary.shape == (0, 3)
    assert LatentParser(found).parse(["x"]).source == "latent"
    assert LatentParser(found).parse(["x", "x"]).source == "none"


def changed(grammar: LatentGrammar, path: Path, **changes: Any) -> None:
    """The file of a grammar with other arrays, or other values in its description (None: gone)."""
    grammar.save(path)
    data = path.read_bytes()
    arrays = load(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    content = json.loads(header["__metadata__"]["inout-latent"])
    for name, value in changes.items():
        place: dict[str, Any] = arrays if name in arrays else content
        if value is None:
            del place[name]
        else:
            place[name] = value
    path.write_bytes(save(arrays, {"inout-latent": json.dumps(content)}))


def complaint(path: Path) -> str:
    with pytest.raises(FileError) as caught:
        LatentGrammar.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 300
    return message.removeprefix(f"{path}: ")


BAD: list[tuple[str, Any]] = [
    *((name, None) for name in ("parameters", "skeletal", "sizes", "binary", "lexical")),
    *((name, None) for name in ("nonterminals", "words", "vocabulary", "training")),
    ("parameters", np.zeros(3)),
    ("parameters", np.full(500, np.nan)),
    ("parameters", np.zeros(3, np.float32)),
    ("parameters", lambda model: np.where(model.parameters > 0.5, np.inf, 0.5)),
    ("skeletal", lambda model: model.parameters),
    ("sizes", np.zeros(9, np.int64)),
    ("sizes", np.array(3)),
    ("sizes", lambda model: model.sizes - 4),
    ("sizes", lambda model: model.sizes * 10**6),
    ("sizes", lambda model: model.sizes.astype(np.float64)),
    ("binary", lambda model: model.skeleton.binary[::-1].copy()),
    ("binary", lambda model: model.skeleton.binary + 100),
    ("binary", lambda model: model.skeleton.lexical),
    ("lexical", lambda model: model.skeleton.lexical.astype(np.int64)),
    ("nonterminals", "ABCDEFGHI"),
    ("nonterminals", list(range(9))),
    ("nonterminals", lambda model: ["A"] * len(model.skeleton.nonterminals)),
    ("words", ["x"]),
    ("words", {"x": 1}),
    ("training", [1]),
    ("vocabulary", 3),
    ("vocabulary", {}),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{x} {i}" for i, (x, _) in enumerate(BAD)])
@pytest.mark.usefixtures("unchecked")
def test_damaged_contents(grammar: LatentGrammar, tmp_path: Path, name: str, value: Any):
    changed(grammar, tmp_path / "m", **{name: value(grammar.model) if callable(value) else value})
    message = complaint(tmp_path / "m")
    assert "damaged" in message
    if value is None:
        assert f"It has no '{name}'" in message


@pytest.mark.parametrize("version", [VERSION + 1, 0, "2", [1]])
def test_other_versions(grammar: LatentGrammar, tmp_path: Path, version: Any):
    changed(grammar, tmp_path / "m", version=version, parameters=None, words=None)
    message = complaint(tmp_path / "m")
    assert message == f"the model must have version {VERSION}. Got {version!r}"


def test_truncated_files(grammar: LatentGrammar, tmp_path: Path):
    path = tmp_path / "m"
    grammar.save(path)
    data = path.read_bytes()
    for length in [*range(12), 100, 1000, len(data) // 2, len(data) - 8, len(data) - 1]:
        path.write_bytes(data[:length])
        what = "damaged, or cut short" if length >= 100 else "no latent grammar"
        assert what in complaint(path)
    path.write_bytes(data + b"\0" * 8)
    assert "damaged, or cut short" in complaint(path)


def test_flipped_bits_are_noticed_or_harmless(grammar: LatentGrammar, tmp_path: Path):
    path = tmp_path / "m"
    grammar.save(path)
    data = path.read_bytes()
    random = np.random.default_rng(0)
    for place in random.integers(0, len(data), 300).tolist():
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(bytes(damaged))
        with suppress(FileError):  # and nothing else
            LatentGrammar.load(path)


def test_foreign_files(tmp_path: Path):
    path = tmp_path / "m"
    for data in (b"", b"S -> A B\n" * 50, os.urandom(500), b"\x89PNG\r\n" + b"\0" * 100, b"{}"):
        path.write_bytes(data)
        assert "no latent grammar" in complaint(path)
        assert not is_latent_grammar(path)
    path.write_bytes(save({"x": np.zeros(2)}))
    assert "no latent grammar" in complaint(path)
    assert not is_latent_grammar(path)
    path.write_bytes(save({"x": np.zeros(2)}, {"inout-em": "{}"}))
    assert complaint(path) == "this is no latent grammar of inout. It has no 'inout-latent'"
    for text in ("3", "[]", "{", "{}", "[" * 100_000):
        path.write_bytes(save({"x": np.zeros(2)}, {"inout-latent": text}))
        assert "damaged" in complaint(path)
    assert complaint(tmp_path / "nothing") == "no such file"
    assert "directory" in complaint(tmp_path)
    assert not is_latent_grammar(tmp_path / "nothing")
    assert not is_latent_grammar(tmp_path)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(
    grammar: LatentGrammar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    path = tmp_path / "m"
    grammar.save(path)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), full)
    model = LPCFG(grammar.model.layout, grammar.model.parameters + 1)
    other = LatentGrammar(model, grammar.skeletal, grammar.vocabulary)
    with pytest.raises(FileError, match="No space left"):
        other.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


def test_what_cannot_be_written(grammar: LatentGrammar, tmp_path: Path):
    path = tmp_path / "m"
    grammar.save(path)
    before = path.read_bytes()
    bad = LatentGrammar(grammar.model, grammar.skeletal, grammar.vocabulary, {"x": object()})
    with pytest.raises(ArgumentError, match="training must be plain data"):
        bad.save(path)
    assert path.read_bytes() == before
    with pytest.raises(FileError, match="no directory"):
        grammar.save(tmp_path / "nowhere" / "m")
    with pytest.raises(FileError, match="directory"):
        grammar.save(tmp_path)


def test_parts_that_do_not_belong_together(grammar: LatentGrammar):
    with pytest.raises(ArgumentError, match="one latent value"):
        LatentGrammar(grammar.model, grammar.model, grammar.vocabulary)
    other = TrainingSet.of(map(Tree.fromstring, LINES[:1]))
    with pytest.raises(ArgumentError, match="same Skeleton"):
        LatentGrammar(grammar.model, other.skeletal, grammar.vocabulary)
