"""`inout sample`."""

from __future__ import annotations

import json

import pytest

TEXT = "S -> 'a' S [0.5] | B [0.5]\nB -> 'b'\n"


@pytest.fixture
def folder(files):
    (files / "g.cfg").write_text(TEXT, encoding="utf-8")
    return files


def test_the_same_seed_draws_the_same(run, folder):
    first, again = (run("sample", "g.cfg", "-n", "20", "--seed", "7") for _ in range(2))
    assert (first.code, first.err) == (0, "")
    assert first.out == again.out
    assert all(set(line.split()[:-1]) <= {"a"} for line in first.out.splitlines())
    assert run("sample", "g.cfg", "-n", "20", "--seed", "8").out != first.out
    # More of the same begin the same.
    assert run("sample", "g.cfg", "-n", "30", "--seed", "7").out.startswith(first.out)


def test_all_shapes_show_the_same_samples(run, folder):
    words = run("sample", "g.cfg", "-n", "5", "--seed", "7").out.splitlines()
    trees = run("sample", "g.cfg", "-n", "5", "--seed", "7", "--format", "bracketed").out
    assert [line.count("(S") - 1 for line in trees.splitlines()] == [w.count("a") for w in words]
    told = run("sample", "g.cfg", "-n", "5", "--seed", "7", "--json").out.splitlines()
    assert [" ".join(json.loads(line)["words"]) for line in told] == words
    assert [json.loads(line)["tree"] for line in told] == trees.splitlines()
    drawn = run("sample", "g.cfg", "-n", "5", "--seed", "7", "--format", "tree").out
    assert drawn.count("B") == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S -> S S [0.6] | 'a' [0.4]", "spectral radius of 1.2, above 1; --normalise turns"),
        ("S -> 'a' [2]", "must sum to 1 to draw from them"),
        ("S -> 'a' [0.5] | X [0.5]", "must have a finite tree. Got none for X; --normalise"),
        ("S -> S S [0.5] | 'a' [0.5]", "the expected number of rules in a tree must be finite"),
    ],
)
def test_a_grammar_that_cannot_be_drawn_from_is_refused(run, folder, text, message):
    (folder / "g.cfg").write_text(text, encoding="utf-8")
    outcome = run("sample", "g.cfg")
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_probabilities_can_be_made(run, folder):
    (folder / "g.cfg").write_text("S -> 'a' [2] | X [5]", encoding="utf-8")
    outcome = run("sample", "g.cfg", "--normalise", "-n", "2")
    assert (outcome.code, outcome.out) == (0, "a\na\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-n", "-1"), "--samples must be at least 0. Got -1"),
        (("--format", "trees"), "Got 'trees'; did you mean tree?"),
        (("--seed", "x"), "Invalid value for '--seed'"),
    ],
)
def test_wrong_options(run, folder, arguments, message):
    outcome = run("sample", "g.cfg", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
