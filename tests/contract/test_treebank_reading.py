"""Bracketed text: every layout is read, every mistake is named with its place, nothing is lost."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tree import Tree

from inout._core.errors import ArgumentError, FileError
from inout.grammars.treebank import (
    TreeSyntaxError,
    format_tree,
    parse_trees,
    read_parses,
    read_trees,
    write_trees,
)
from tests.oracle.random_trees import mixed_trees, trees

SHE_SLEPT = Tree.fromstring("(S (NP (PRP she)) (VP (VBD slept)))")


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP (PRP she)) (VP (VBD slept)))",
        "( (S (NP (PRP she)) (VP (VBD slept))) )",
        "((S(NP(PRP she))(VP(VBD slept))))",
        "\n\n( (S\n    (NP (PRP she))\r\n\t(VP (VBD\nslept)) ))\n",
        "(\nS (\nNP ( PRP\nshe ) ) (VP (VBD slept)))",
        "# a comment ((\n%% another\n*x*x* the Penn Treebank's\n  # and\n(S (NP (PRP she)) "
        "(VP (VBD slept)))\n#",
    ],
)
def test_layouts(text: str):
    assert list(parse_trees(text)) == [SHE_SLEPT]


def test_many_trees_on_many_lines():
    text = "(A (X a)) (B (X b)) (C\n(X c))(D (X d))\n(NN dog)\n"
    assert [tree.label() for tree in parse_trees(text)] == ["A", "B", "C", "D", "NN"]
    assert list(parse_trees("")) == list(parse_trees(" \n\n")) == []


def test_words_that_look_like_something_else():
    (tree,) = parse_trees("(S (# #) ($ $) (-LRB- -LRB-) (NN 5\u00a0000) (NN ^|<) (`` ``)\n(# #))")
    assert tree.leaves() == ["#", "$", "-LRB-", "5\u00a0000", "^|<", "``", "#"]


def test_outer_brackets_without_a_label():
    (tree,) = parse_trees("( (S (VB go)) (S (VB stop)) )", root="TOP")
    assert tree == Tree.fromstring("(TOP (S (VB go)) (S (VB stop)))")
    (tree,) = parse_trees("(S (VB go))", root="TOP")
    assert tree.label() == "S"


def test_words_anywhere_if_allowed():
    (tree,) = parse_trees("(S a (S b) c\n d)", untagged=True)
    assert tree == Tree("S", ["a", Tree("S", ["b"]), "c", "d"])


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("(S (NN a)", "1:1", "1 bracket is not closed in the tree that begins here"),
        ("(A (X a))\n (S (NP (NN a)\n", "2:2", "2 brackets are not closed in the tree"),
        ("(S (NN a)))", "1:11", "this bracket closes nothing"),
        ("(A (X a))\n)", "2:1", "this bracket closes nothing"),
        ("(S (NP) (NN a))", "1:7", "the bracket of NP holds nothing"),
        ("(S ())", "1:5", "the bracket is empty"),
        ("(())", "1:3", "the bracket is empty"),
        ("(S ((NN a)))", "1:11", "the bracket that ends here has no label"),
        ("(S (NN a)\n  ( (NN b)))", "2:11", "no label (in the tree that begins on line 1)"),
        ("( (A (X a)) (B (X b)))", "1:22", "the outer bracket has no label and 2 trees in it"),
        ("(NP the (NN dog))", "1:5", "the word 'the' has no tag of its own"),
        ("(NP the dog)", "1:9", "the word 'dog' has no tag of its own"),
        ("(NP\nthe\n(NN dog))", "2:1", "the word 'the' has no tag of its own"),
        ("(NP (DT the) dog)", "1:14", "the word 'dog' has no tag of its own"),
        ("(NN a) dog", "1:8", "expected a tree in brackets. Got 'dog' outside any bracket"),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, place: str, message: str):
    with pytest.raises(TreeSyntaxError) as caught:
        list(parse_trees(text, source="wsj.mrg"))
    first, line, pointer = str(caught.value).split("\n")
    assert first.startswith(f"wsj.mrg:{place}: ")
    assert message in first
    error = caught.value
    assert (error.source, f"{error.line}:{error.column}") == ("wsj.mrg", place)
    assert line == "  " + text.split("\n")[error.line - 1]
    assert pointer.index("^") == 2 + error.column - 1
    assert isinstance(error, FileError)


def test_of_a_long_line_the_neighbourhood_is_shown():
    text = "(S " + "(NN a) " * 100 + "oops " + "(NN b) " * 100 + ")"
    with pytest.raises(TreeSyntaxError) as caught:
        list(parse_trees(text))
    _, line, pointer = str(caught.value).split("\n")
    assert len(line) < 100
    assert line[pointer.index("^") :].startswith("oops")
    assert line.strip().startswith("…")
    assert line.endswith("…")


def test_tabs_stay_in_the_pointer():
    with pytest.raises(TreeSyntaxError) as caught:
        list(parse_trees("(NP\t(DT the)\tdog)"))
    assert str(caught.value).endswith("\n     \t        \t^")


def test_trees_before_a_mistake_are_read():
    stream = parse_trees("(A (X a))\n(B (X b)\n")
    assert next(stream).label() == "A"
    with pytest.raises(TreeSyntaxError):
        next(stream)


def test_lines_are_asked_for_one_by_one():
    asked = []

    def lines():
        for number in range(3):
            asked.append(number)
            yield f"(A (X {number}))\n"

    stream = parse_trees(lines())
    next(stream)
    assert asked == [0]


# Files


@pytest.mark.parametrize(("name", "pack"), [("a.mrg", bytes), ("a.mrg.xz", lzma.compress)])
def test_files(tmp_path: Path, name: str, pack):
    path = tmp_path / name
    path.write_bytes(pack("\ufeff(NN naïve)\n(NN b)".encode()))
    assert [tree.leaves() for tree in read_trees(path)] == [["naïve"], ["b"]]


def test_gz_files(tmp_path: Path):
    path = tmp_path / "a.mrg.gz"
    path.write_bytes(gzip.compress(b"(NN a)"))
    assert len(list(read_trees(str(path)))) == 1


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_invalid_utf8(tmp_path: Path, start: bytes):
    path = tmp_path / "latin.mrg"
    path.write_bytes(start + "(NN ä\xa0".encode() + b"na\xefve)\n(NN b)\n")
    with pytest.raises(TreeSyntaxError) as caught:
        list(read_trees(path))
    first, line, pointer = str(caught.value).split("\n")
    assert first == f"{path}:1:9: the file must be UTF-8 text. Got the byte 0xef"
    assert line[pointer.index("^")] == "\ufffd"


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(FileError, match="no such file"):
        list(read_trees(tmp_path / "none.mrg"))
    with pytest.raises(FileError, match="is a directory"):
        list(read_trees(tmp_path))
    for name, message in (("a.xz", "not compressed as its name says"), ("a.gz", "not compressed")):
        (tmp_path / name).write_bytes(b"(NN a)")
        with pytest.raises(FileError, match=message):
            list(read_trees(tmp_path / name))
    packed = lzma.compress(b"(NN a)" * 1000)
    (tmp_path / "half.xz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(FileError, match="ends too early"):
        list(read_trees(tmp_path / "half.xz"))


def test_parses_with_failures(tmp_path: Path):
    path = tmp_path / "parses"
    path.write_text("# parser\n(S (NN a))\n\n(())\n( () )\n()\n(TOP)\n( (S (NN b)) )\n")
    found = list(read_parses(path))
    assert [tree and tree.leaves() for tree in found] == [
        ["a"],
        None,
        None,
        None,
        None,
        None,
        ["b"],
    ]
    path.write_text("(S (NN a))\n(S (NN a)) (S (NN b))\n")
    with pytest.raises(TreeSyntaxError, match=":2:1: expected one tree a line"):
        list(read_parses(path))
    path.write_text("(S (NN a))\n(S\n(NN a))\n")
    with pytest.raises(TreeSyntaxError, match=":2:1: 1 bracket is not closed"):
        list(read_parses(path))


# Writing


@given(st.lists(trees(), max_size=4), st.booleans())
def test_what_is_written_is_read(originals: list[Tree], spread: bool):
    text = "\n".join(map(format_tree, originals))
    if spread:
        text = text.replace(" ", "\n   ")
    assert list(parse_trees(text)) == originals


@given(mixed_trees())
def test_what_is_written_without_tags_is_read(original: Tree):
    assert list(parse_trees(format_tree(original), untagged=True)) == [original]


def test_files_are_written_one_tree_a_line(tmp_path: Path):
    path = tmp_path / "out.mrg"
    write_trees(path, [SHE_SLEPT, Tree("NN", ["f(x)"])])
    assert path.read_text() == "(S (NP (PRP she)) (VP (VBD slept)))\n(NN f-LRB-x-RRB-)\n"
    with pytest.raises(ArgumentError):
        write_trees(path, [Tree("NN", ["two words"])])
    assert len(list(read_trees(path))) == 2


@pytest.mark.parametrize(
    "wrong", [Tree("", ["a"]), Tree("N N", ["a"]), Tree("(", ["a"]), Tree("NN", [""])]
)
def test_what_could_not_be_read_back_is_not_written(wrong: Tree):
    with pytest.raises(ArgumentError, match="at least one character, and no white space"):
        format_tree(wrong)
