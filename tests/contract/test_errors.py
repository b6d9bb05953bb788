"""Errors: their fields, their texts, and the command's words for them."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import pytest

import inout
from inout._core import errors
from inout._core.errors import Remedy
from inout.cli import messages


def all_errors(root: type[Exception] = inout.InoutError) -> set[type[Exception]]:
    return {root}.union(*(all_errors(kind) for kind in root.__subclasses__()))


def test_fields_say_where_and_what_helps():
    error = inout.FileError(
        "no such rule", file=Path("g.cfg"), line=3, column=7, remedy=Remedy.ADD_DUPLICATES
    )
    assert (error.message, error.file, error.line, error.column) == ("no such rule", "g.cfg", 3, 7)
    assert error.argument is None
    assert str(error) == 'g.cfg:3:7: no such rule; duplicates="add" adds up their weights'


def test_an_argument_is_named():
    with pytest.raises(inout.ArgumentError, match=r"^k must be .* at least 1. Got 0$") as e:
        inout.Parser(inout.Grammar.from_text("S -> 'a'")).kbest(["a"], 0)
    assert e.value.argument == "k"


def test_a_file_is_named(tmp_path):
    path = tmp_path / "no.cfg"
    with pytest.raises(inout.FileError) as caught:
        inout.Grammar.load(path)
    assert caught.value.file == str(path)
    assert caught.value.line is None


@pytest.mark.parametrize(
    ("call", "place"),
    [
        (lambda: inout.Grammar.from_text("S -> 'a'\nS 'b'", "nltk", "g.cfg"), ("g.cfg", 2, 2)),
        (lambda: inout.Program("goal += x.\ngoal += .", source="p.dyna"), ("p.dyna", 2, 9)),
    ],
)
def test_a_place_in_a_text_is_known_and_shown(call, place):
    with pytest.raises(errors.TextError) as caught:
        call()
    error = caught.value
    assert (error.file, error.line, error.column) == (error.source, *place[1:]) == place
    first, _, caret = str(error).split("\n")
    assert first == f"{':'.join(map(str, place))}: {error.message}"
    assert caret == " " * (place[2] + 1) + "^"


def test_of_a_long_line_the_neighbourhood_is_shown():
    code = "a" * 500 + "\tb" + "c" * 500
    _, shown, caret = str(errors.GrammarError("wrong", code, 1, 502, "g.json")).split("\n")
    assert shown.startswith("  …aaa")
    assert shown.endswith("ccc…")
    assert len(shown) < 120
    assert shown[len(caret) - 1] == "b"
    assert caret.count("\t") == 1


def test_every_error_is_public_and_known_by_one_name():
    lower = {kind for kind in all_errors() if kind.__module__ != "inout._core.errors"}
    assert not {kind for kind in lower if not kind.__name__.startswith("_")}
    internal = {errors.TextError, errors.AmbiguousFactsError, errors.ChartTooLargeError}
    for kind in all_errors() - lower - internal:
        assert getattr(inout, kind.__name__) is kind


def test_errors_can_be_copied():
    error = inout.FileError("wrong", file="x", line=2, remedy=Remedy.RESUME)
    copied = copy(error)
    assert str(copied) == str(error)
    assert copied.line == 2


def test_the_command_has_words_for_every_remedy():
    assert set(messages.REMEDIES) == set(Remedy)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (inout.ArgumentError("max_edges", "must be 1"), "inout: --max-edges must be 1"),
        (inout.ArgumentError("trees", "must be 1"), "inout: trees must be 1"),
        (inout.FileError("wrong", file="a", line=2), "a:2: wrong"),
        (inout.FileError("wrong"), "inout: wrong"),
        (
            inout.FileError("exists", file="a", remedy=Remedy.RESUME),
            "a: exists; use --resume to continue from it, or delete it to start afresh",
        ),
    ],
)
def test_the_command_maps_fields_to_its_own_words(error, text):
    assert messages.message(error) == text
