"""`inout eval` and `inout induce`: treebanks from files."""

from __future__ import annotations

import json

import pytest

from inout import Grammar

GOLD = """\
(TOP (S (NP (PRP she)) (VP (VBD saw) (NP (DT the) (NN cat))) (. .)))
(TOP (S (NP (PRP it)) (VP (VBD ran))))
"""
PARSES = """\
(TOP (S (NP (PRP she)) (VP (VBD saw) (DT the) (NN cat)) (. .)))
(())
"""


@pytest.fixture
def folder(files):
    (files / "gold.mrg").write_text(GOLD, encoding="utf-8")
    (files / "parses.mrg").write_text(PARSES, encoding="utf-8")
    return files


def test_the_table_counts_brackets(run, folder):
    outcome = run("eval", "gold.mrg", "parses.mrg")
    assert (outcome.code, outcome.err) == (0, "")
    # Of the gold brackets S NP VP NP and S NP VP, three are found, and no others.
    row = next(line for line in outcome.out.splitlines() if line.startswith("all"))
    assert row.split() == [
        "all",
        "2",
        "1",
        "0",
        "100.00",
        "42.86",
        "60.00",
        "60.00",
        "0.00",
        "66.67",
    ]


def test_what_counts_can_be_chosen(run, folder):
    told = json.loads(run("eval", "gold.mrg", "parses.mrg", "--json", "--skip-failures").out)
    assert told["all"]["recall"] == 0.75
    told = json.loads(run("eval", "gold.mrg", "parses.mrg", "--json", "--root").out)
    assert told["all"]["recall"] == pytest.approx(4 / 9)
    assert [sentence["status"] for sentence in told["sentences"]] == ["parsed", "failed"]
    assert told["by_length"][0]["from"] == 1


def test_a_root_is_a_root_whatever_it_is_called(run, folder):
    """`induce` writes TOP; treebanks have ROOT, S1 or nothing there."""
    for root in ("ROOT", "S1"):
        (folder / "other.mrg").write_text(GOLD.replace("(TOP", f"({root}"), encoding="utf-8")
        for pair in (("other.mrg", "gold.mrg"), ("gold.mrg", "other.mrg")):
            scores = json.loads(run("eval", *pair, "--root", "--json").out)["all"]
            assert scores["f1"] == scores["precision"] == scores["recall"] == 1.0
    one, two = (
        json.loads(run("eval", "gold.mrg", "gold.mrg", *more, "--json").out)["sentences"]
        for more in ((), ("--root",))
    )
    assert [x["gold"] + 1 for x in one] == [x["gold"] for x in two]


def test_other_words_are_noted(run, folder):
    (folder / "parses.mrg").write_text(PARSES.replace("cat", "dog"), encoding="utf-8")
    outcome = run("eval", "gold.mrg", "parses.mrg")
    assert outcome.code == 0
    assert outcome.err.startswith("note: sentence 1: the parse has the word 'dog'")


@pytest.mark.parametrize(
    ("gold", "parses", "message"),
    [
        (GOLD, "(())\n", "inout: there must be one parse (or None) for each gold tree. Got only 1"),
        (GOLD, "(S (NN a)\n\n", "parses.mrg:1:1: 1 bracket is not closed"),
        ("(S a b)", PARSES, "gold.mrg:1:6: the word 'b' has no tag of its own"),
        ("", "", "Got none"),
    ],
)
def test_wrong_files_get_one_message(run, folder, gold, parses, message):
    (folder / "gold.mrg").write_text(gold, encoding="utf-8")
    (folder / "parses.mrg").write_text(parses, encoding="utf-8")
    outcome = run("eval", "gold.mrg", "parses.mrg")
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_invalid_text_is_shown_where(run, folder):
    (folder / "gold.mrg").write_bytes(b"(S (NN a))\n(S (NN \xe9))\n")
    outcome = run("eval", "gold.mrg", "parses.mrg")
    assert outcome.code == 2
    assert outcome.err.startswith("gold.mrg:2:8: the file must be UTF-8 text. Got the byte 0xe9")


def test_a_grammar_is_read_off_a_treebank(run, folder):
    outcome = run("induce", "gold.mrg", "-o", "g.json", "--vertical", "1", "--unknown-share", "0")
    assert (outcome.code, outcome.out) == (0, "")
    grammar = Grammar.load(folder / "g.json")
    rules = map(str, grammar.rules)
    weights = dict(zip(rules, grammar.log_weights.exp().tolist(), strict=True))
    assert weights["NP -> PRP"] == pytest.approx(2 / 3)
    assert weights["VP -> VBD NP"] == 0.5
    assert weights["S|<NP> -> VP ."] == 1.0
    assert f"wrote g.json: {len(grammar)} rules\n" == outcome.err


def test_markovisation_and_classes_have_options(run, folder):
    text = run("induce", "gold.mrg", "--to", "lines").out
    assert "NP^S PRP" in text
    assert "UNK" in text
    assert "UNK" not in run("induce", "gold.mrg", "--unknown-threshold", "0").out
    assert (
        "S NP VP ." in run("induce", "gold.mrg", "--nary", "--vertical", "1", "--to", "lines").out
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no.mrg",), "no.mrg: no such file"),
        (("gold.mrg", "--horizontal", "-1"), "--horizontal must be an integer >= 0, or all"),
        (("gold.mrg", "--vertical", "0"), "--vertical must be at least 1. Got 0"),
        (("gold.mrg", "--unknown-share", "2"), "--unknown-share must be from 0 to 1. Got 2.0"),
        (("gold.mrg", "-o", "x.cfg"), "has no way to write the nonterminal"),
        (("empty.mrg", "-o", "x.json"), "trees must hold at least one tree with words. Got none"),
    ],
)
def test_wrong_arguments_write_nothing(run, folder, arguments, message):
    (folder / "empty.mrg").write_text("", encoding="utf-8")
    before = sorted(folder.iterdir())
    outcome = run("induce", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert sorted(folder.iterdir()) == before
