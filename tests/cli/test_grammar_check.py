"""`inout check`: what it finds, how it ends."""

from __future__ import annotations

import json

import pytest

ENGLISH = "S -> NP VP [1]\nNP -> 'she' [0.5] | 'it' [0.5]\nVP -> 'ran' [0.75] | 'ran' NP [0.25]\n"


@pytest.fixture
def grammar(files):
    def write(text: str, name: str = "g.cfg") -> str:
        (files / name).write_text(text, encoding="utf-8")
        return name

    return write


def test_a_grammar_without_faults(run, grammar):
    outcome = run("check", grammar(ENGLISH))
    assert (outcome.code, outcome.err) == (0, "")
    assert "no problems" in outcome.out
    # Two words, and a third one in a quarter of the sentences.
    assert "expected length  2.2500 words" in outcome.out


@pytest.mark.parametrize(
    ("text", "problem", "shown"),
    [
        ("S -> 'a' [0.5] | X [0.5]", "undefined", "undefined        1: X"),
        ("S -> 'a'\nA -> 'b'", "unreachable", "unreachable      1: A"),
        ("S -> 'a' [1] | A [0]\nA -> A", "unproductive", "unproductive     1: A"),
        (
            "S -> 'a' [0.5] | 'b' [0.25]",
            "improper",
            "the weights of 1 left side do not sum to 1: S 0.75",
        ),
        ("S -> S S [0.6] | 'a' [0.4]", "inconsistent", "all trees sum to 0.6667, not to 1"),
        ("S -> S S [1] | 'a' [1]", "infinite", "infinite: the sum"),
    ],
)
def test_each_problem_is_named_and_ends_with_1(run, grammar, text, problem, shown):
    outcome = run("check", grammar(text))
    assert outcome.code == 1
    assert shown in outcome.out
    told = json.loads(run("check", "g.cfg", "--json").out)
    assert problem in told["problems"]
    assert told["ok"] is False
    assert outcome.out.rstrip().endswith(", ".join(told["problems"]))


def test_weights_that_are_no_probabilities_can_be_meant(run, grammar):
    name = grammar("S -> S S [2] | 'a' [3]")
    assert run("check", name).code == 1
    outcome = run("check", name, "--weighted", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["log_partition"] == "inf"


def test_cycles_are_told_and_no_problem(run, grammar):
    outcome = run("check", grammar("S -> A [0.5] | 'a' [0.5]\nA -> S [1]"))
    assert outcome.code == 0
    assert "S -> A, A -> S" in outcome.out


def test_long_lists_are_cut(run, grammar):
    rules = "\n".join(f"A{i} -> 'a'" for i in range(40))
    outcome = run("check", grammar(f"S -> 'a'\n{rules}"))
    assert "40: A0 A1" in outcome.out
    assert "28 more; --json has all" in outcome.out
    assert len(json.loads(run("check", "g.cfg", "--json").out)["unreachable"]) == 40


def test_start_and_format_can_be_told(run, grammar):
    name = grammar("1\tA a\n1\tB b\n", "rules.txt")
    told = json.loads(run("check", name, "--from", "lines", "--start", "B", "--json").out)
    assert told["start"] == "B"
    assert told["unreachable"] == ["A"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "no.cfg"), "no.cfg: no such file"),
        (("check", "."), ".: is a directory, not a file"),
        (("check", "g.cfg", "--start", "Q"), "--start must be the left side of a rule. Got 'Q'"),
        (("check", "g.cfg", "--from", "ntlk"), "or json. Got 'ntlk'; did you mean nltk?"),
        (("check", "g.cfg", "--from", "lines"), "g.cfg:1:3: expected a left side"),
        (("check",), "inout: Missing argument 'GRAMMAR'."),
    ],
)
def test_wrong_arguments_get_one_message(run, grammar, arguments, message):
    grammar(ENGLISH)
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "g.cfg:1:1: expected rules"),
        (b"# nothing\n", "expected rules, found only comments"),
        (b"%start Q\nS -> 'a'\n", "g.cfg:1:8: the start symbol Q has no rule"),
        (b"S -> 'a' -0.5\nS -> S S -0.5\n", "there is no start symbol: expected start=SYMBOL"),
        (b"S -> '\xff'\n", "g.cfg:1:7: the file must be UTF-8 text. Got the byte 0xff"),
        (b"S -> 'a' [0.5\n", "g.cfg:1:"),
        (b"S -> 'a'\nS -> 'a'\n", "; --add-duplicates adds up their weights"),
    ],
)
def test_a_file_that_is_no_grammar_is_shown_where(run, files, data, message):
    (files / "g.cfg").write_bytes(data)
    outcome = run("check", "g.cfg")
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err.replace("\n", " ")


def test_duplicates_can_be_added_up(run, grammar):
    name = grammar("S -> 'a' [0.5]\nS -> 'a' [0.5]\n")
    assert run("check", name, "--add-duplicates").code == 0
