"""Bad input: exactly one message on stderr, exit code 2, nothing on stdout, nothing written."""

from __future__ import annotations

import pytest

SENTENCE = ("--facts", "rule=rule.tsv", "--sentence", "a")


@pytest.fixture
def complain(run, files):
    def call(*arguments) -> str:
        before = sorted(files.iterdir())
        outcome = run(*arguments)
        assert outcome.code == 2
        assert outcome.out == ""
        assert "Traceback" not in outcome.err
        assert outcome.err.endswith("\n")
        assert sorted(files.iterdir()) == before
        return outcome.err.removesuffix("\n")

    return call


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("slove",), "inout: No such command 'slove'. Did you mean 'solve'?"),
        (("solve",), "inout: Missing argument 'PROGRAM'."),
        (("solve", "cnf.dyna", "--fatcs", "x"), "No such option: --fatcs"),
        (("solve", "cnf.dyna", "--best", "-1"), "inout: --best must be at least 0. Got -1"),
        (("solve", "cnf.dyna", "--best", "many"), "inout: Invalid value for '--best'"),
        (("solve", "cnf.dyna", "--facts", "rule"), "--facts must look like NAME=FILE. Got 'rule'"),
        (("solve", "cnf.dyna", "--facts", "=x"), "--facts must look like NAME=FILE. Got '=x'"),
        (("solve", "nothing.dyna"), "nothing.dyna: no such file"),
        (("solve", "earli"), "no such program in the library; did you mean earley?"),
        (("solve", "."), ".: is a directory, not a file"),
        (
            ("solve", "cnf.dyna", "--facts", "rul=rule.tsv"),
            "inout: --facts: the program has no relation 'rul'; did you mean rule?",
        ),
        (
            ("solve", "cnf.dyna", "--fact", "q=1"),
            "--fact: the program has no relation 'q'; it has beta, length, rule, word, goal",
        ),
        (
            ("solve", "cnf.dyna", *SENTENCE, "--fact", "rule=S"),
            "inout: --fact: rule takes 2 or 3 values, separated by spaces. Got 1: 'S'",
        ),
        (("solve", "cnf.dyna", "--facts", "rule=no.tsv"), "no.tsv: no such file"),
        (("solve", "cnf.dyna", "--facts", "rule=."), ".: is a directory"),
        (
            ("solve", "cnf.dyna", *SENTENCE, "--facts", "length=rule.tsv"),
            "rule.tsv:1:1: expected 1 value separated by tabs, and at most a weight after them",
        ),
        (
            ("solve", "cnf.dyna", *SENTENCE, "--fact", "word=a 0 1"),
            "inout: --sentence and --facts word=... both give the words",
        ),
        (
            ("solve", "cnf.dyna", *SENTENCE, "--goal", "bet"),
            "inout: --goal: no rule of cnf.dyna derives 'bet'; did you mean beta?",
        ),
        (
            ("solve", "cnf.dyna", *SENTENCE, "--beam", "bta=3"),
            "inout: --beam: no rule of cnf.dyna derives 'bta'; did you mean beta?",
        ),
        (
            ("solve", "cnf.dyna", *SENTENCE, "--beam", "beta=0"),
            "inout: --beam must have a width of at least 1. Got '0'",
        ),
        (
            ("solve", "cnf.dyna", *SENTENCE, "--weighted", "rul"),
            "inout: --weighted: no --facts file is given for 'rul'; did you mean rule?",
        ),
        (
            ("solve", "cnf.dyna", *SENTENCE, "--weighted", "rule", "--unweighted", "rule"),
            "inout: 'rule' cannot be --weighted and --unweighted at once",
        ),
        (
            ("solve", "cnf.dyna", *SENTENCE, "--unweighted", "rule"),
            "rule.tsv:1:1: expected 2 or 3 values separated by tabs. Got 4 fields",
        ),
        (
            ("solve", "cnf.dyna", *SENTENCE, "--max-edges", "0"),
            "inout: --max-edges must be an integer of at least 1. Got 0",
        ),
        (
            ("solve", "cnf.dyna", *SENTENCE, "--html", "no/such/place.html"),
            "no/such/place.html: there is no directory no/such",
        ),
        (("demo", "--html", "."), ".: cannot be written, because it is a directory"),
        (("programs", "--folded"), "inout: --folded needs the NAME of a program"),
        (("programs", "earli"), "inout: NAME: no program is called 'earli'; did you mean earley"),
    ],
)
def test_one_line_says_what_is_wrong(complain, arguments, message):
    text = complain(*arguments)
    assert message in text
    assert text.count("\n") == 0


def test_a_wrong_program_is_shown_with_a_caret(complain, files):
    (files / "bad.dyna").write_text("goal += x(X) ** y.\n", encoding="utf-8")
    first, code, caret = complain("solve", "bad.dyna").split("\n")
    assert first.startswith("bad.dyna:1:15: ")
    assert code == "  goal += x(X) ** y."
    assert caret == " " * 16 + "^"


def test_facts_that_are_missing_are_shown_where_they_are_used(complain):
    first, code, caret = complain("solve", "cnf.dyna", "--facts", "rule=rule.tsv").split("\n")
    assert first.startswith("cnf.dyna:1:34: length is not given: add --facts length=FILE.tsv")
    assert code[caret.index("^") :].startswith("length(N)")


def test_words_that_are_missing_could_be_a_sentence(complain):
    text = complain("solve", "cnf.dyna", "--facts", "rule=rule.tsv", "--fact", "length=1")
    assert 'or --sentence "..."' in text


def test_a_sentence_needs_a_place_for_words(complain, files):
    (files / "x.dyna").write_text("goal += x(X).\n", encoding="utf-8")
    assert "the program has no word(W,I,K)" in complain("solve", "x.dyna", "--sentence", "a")


def test_a_file_that_can_be_read_both_ways(complain, files):
    (files / "rule.tsv").write_text("S\ta\t-1\n")
    text = complain("solve", "cnf.dyna", *SENTENCE)
    assert text.startswith("rule.tsv:1:5: ")
    assert text.endswith("use --weighted rule or --unweighted rule")


@pytest.mark.parametrize("name", ["cnf.dyna", "rule.tsv"])
def test_files_that_are_no_text(complain, files, name):
    (files / name).write_bytes(b"goal\xff")
    text = complain("solve", "cnf.dyna", *SENTENCE)
    assert text == f"{name}:1:5: the file must be UTF-8 text. Got the byte 0xff"


def test_grounding_limits_name_the_options(complain, files):
    (files / "count.dyna").write_text(
        "goal += n(I).\nn(0) += one.\nn(I+1) += n(I) * one.\n", encoding="utf-8"
    )
    arguments = ("solve", "count.dyna", "--fact", "one")
    assert "--max-rounds" in complain(*arguments, "--max-rounds", "10")
    assert "--max-edges" in complain(*arguments, "--max-edges", "10")


def test_a_cycle_is_named(complain, files):
    (files / "loop.dyna").write_text("goal += x.\nx += y.\nx += one.\ny += x.\n", encoding="utf-8")
    assert "cycle" in complain("solve", "loop.dyna", "--fact", "one")


def test_a_page_that_cannot_be_written_stops_before_the_work(complain, files):
    (files / "bad.dyna").write_text("not a program", encoding="utf-8")
    assert complain("solve", "bad.dyna", "--html", ".").startswith(".: cannot be written")
