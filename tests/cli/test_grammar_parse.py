"""`inout parse` and `inout surprisal`: their numbers against trees worked out by hand."""

from __future__ import annotations

import io
import json
import math
import sys

import pytest

# a a a has two trees of weight (1/4)² (1/2)³, b stands alone.
TEXT = "S -> S S [0.25] | 'a' [0.5] | 'b' [0.25]\n"
LEFT = "(S (S (S a) (S a)) (S a))"
RIGHT = "(S (S a) (S (S a) (S a)))"


@pytest.fixture
def folder(files):
    (files / "g.cfg").write_text(TEXT, encoding="utf-8")
    (files / "sentences.txt").write_text("a\n\na x y\na a a\n", encoding="utf-8")
    return files


@pytest.fixture
def typed(monkeypatch):
    """Puts bytes on standard input."""

    def put(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return put


def test_trees_are_drawn_with_their_probabilities(run, folder):
    outcome = run("parse", "g.cfg", "--sentence", "a a a", "--k", "5", "--count")
    assert (outcome.code, outcome.err) == (0, "")
    log_z = math.log(2 * 0.25**2 * 0.5**3)
    assert f"a a a\nlog Z {log_z:.4f} · 2 trees\n" in outcome.out
    assert outcome.out.count("probability 0.5000  ██████████ ") == 2
    assert "   ┌┴─┐  │\n   S  S  a\n" in outcome.out


def test_json_has_inside_and_outside_values(run, folder):
    asked = ("parse", "g.cfg", "--sentence", "a a a", "--constituents")
    assert "--constituents needs --json" in run(*asked).err
    told = json.loads(run(*asked, "--json").out)
    log_z = told["log_partition"]
    assert told["constituents"][0]["log_inside"] == pytest.approx(log_z)
    for entry in told["constituents"]:
        product = math.exp(entry["log_inside"] + entry["log_outside"] - log_z)
        assert product == pytest.approx(entry["expected_count"], rel=1e-12)
    assert "constituents" not in json.loads(run(*asked[:-1], "--json").out)
    run(*asked[:-1], "--html", "p.html")
    assert f"(log inside {log_z:.6g}, log outside 0)" in (folder / "p.html").read_text("utf-8")


def test_json_has_all_numbers(run, folder):
    outcome = run("parse", "g.cfg", "sentences.txt", "--json", "--count", "--k", "2")
    single, empty, unknown, three = map(json.loads, outcome.out.splitlines())
    assert outcome.code == 0
    assert outcome.err == "note: 2 of 4 sentences have no tree\n"
    assert single["trees"] == [
        {"tree": "(S a)", "log_weight": pytest.approx(math.log(0.5)), "probability": 1.0}
    ]
    assert (empty["words"], empty["trees"], empty["log_partition"]) == ([], [], "-inf")
    assert unknown["unknown"] == ["x", "y"]
    assert "x" in unknown["reason"]
    assert (unknown["line"], unknown["source"], unknown["count"]) == (3, "sentences.txt", 0)
    assert {tree["tree"] for tree in three["trees"]} == {LEFT, RIGHT}
    assert [tree["probability"] for tree in three["trees"]] == pytest.approx([0.5, 0.5])
    assert three["log_partition"] == pytest.approx(math.log(2 * 0.25**2 * 0.5**3))
    assert three["count"] == 2


@pytest.mark.parametrize("method", ["viterbi", "min-risk", "max-rule"])
def test_every_method_gives_a_tree(run, folder, method):
    outcome = run("parse", "g.cfg", "sentences.txt", "--format", "bracketed", "--method", method)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[:3] == ["(S a)", "(())", "(())"]
    assert lines[3] in (LEFT, RIGHT)
    assert outcome.err.startswith("sentences.txt:2: no tree: ")
    assert "sentences.txt:3: no tree: the grammar does not know x, y\n" in outcome.err


def test_several_trees_in_brackets_have_numbers(run, folder):
    arguments = ("--format", "bracketed", "--k", "2", "--samples", "3", "--seed", "1")
    outcome = run("parse", "g.cfg", "--sentence", "a a a", *arguments)
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    assert [row[1] for row in rows] == ["1", "2", "s1", "s2", "s3"]
    assert all(float(row[2]) == pytest.approx(math.log(0.5)) for row in rows)
    assert {row[3] for row in rows} == {LEFT, RIGHT}
    assert run("parse", "g.cfg", "--sentence", "a a a", *arguments).out == outcome.out


def test_brackets_alone_cost_no_sums(run, folder, monkeypatch):
    """Log Z and the number of trees stand nowhere in them."""
    monkeypatch.setattr("inout.grammars.parser.analyses.Analyses.log_z", None)
    monkeypatch.setattr("inout.grammars.parser.analyses.Analyses.count", None)
    outcome = run("parse", "g.cfg", "--sentence", "a a", "--format", "bracketed")
    assert (outcome.code, outcome.out) == (0, "(S (S a) (S a))\n")


def test_counts_in_brackets_are_refused_where_nothing_shows_them(run, folder):
    brackets = ("parse", "g.cfg", "--sentence", "a a a", "--format", "bracketed", "--count")
    outcome = run(*brackets)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--count needs --format tree, --json or --html" in outcome.err
    assert json.loads(run(*brackets, "--json").out)["count"] == 2
    assert run(*brackets, "--html", "page.html").code == 0
    assert (folder / "page.html").exists()


def test_a_grammar_in_another_encoding(run, folder, typed):
    data = "# é\nS -> 'é' [1]\n".encode("latin-1")
    (folder / "latin.cfg").write_bytes(data)
    given = ("--sentence", "é", "--format", "bracketed")
    refused = run("parse", "latin.cfg", *given)
    assert refused.code == 2
    assert "latin.cfg:2:7" in refused.err
    assert run("parse", "latin.cfg", *given, "--encoding", "latin-1").out == "(S é)\n"
    typed(data)
    assert run("parse", "-", *given, "--encoding", "latin-1").out == "(S é)\n"
    assert run("check", "latin.cfg", "--encoding", "latin-1").code == 0


def test_samples_do_not_depend_on_the_threads(run, folder, monkeypatch):
    (folder / "many.txt").write_text("a a a a\n" * 40, encoding="utf-8")
    arguments = ("parse", "g.cfg", "many.txt", "--samples", "2", "--seed", "3", "--json")
    first = run(*arguments).out
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    assert run(*arguments).out == first
    drawn = {tree["tree"] for line in first.splitlines() for tree in json.loads(line)["samples"]}
    assert len(drawn) == 5


def test_sentences_come_from_standard_input(run, folder, typed):
    typed(b"a a\nb\n")
    assert run("parse", "g.cfg", "--format", "bracketed").out == "(S (S a) (S a))\n(S b)\n"
    typed(b"a a\nb\n")
    assert run("parse", "g.cfg", "-", "--format", "bracketed").out == "(S (S a) (S a))\n(S b)\n"
    typed(TEXT.encode())
    assert run("parse", "-", "sentences.txt", "--format", "bracketed").out.startswith("(S a)\n")


def test_what_came_before_a_bad_byte_is_not_lost(run, folder, typed):
    typed(b"a a\nb\na \xff\nb\n")
    outcome = run("parse", "g.cfg", "--format", "bracketed")
    assert outcome.code == 2
    assert outcome.out == "(S (S a) (S a))\n(S b)\n"
    assert outcome.err == "<stdin>:3:3: the file must be UTF-8 text. Got the byte 0xff\n"


def test_a_line_that_is_too_long_is_left_out(run, folder):
    text = "a " * 10_000 + "\na\n"
    (folder / "long.txt").write_text(text, encoding="utf-8")
    outcome = run("parse", "g.cfg", "long.txt", "--format", "bracketed")
    assert (outcome.code, outcome.out) == (0, "(())\n(S a)\n")
    assert "long.txt:1: no tree: 10,000 words are more than --max-words 300\n" in outcome.err
    # The limit can be raised, but not beyond the memory.
    (folder / "long.txt").write_text("a " * 1_000_000, encoding="utf-8")
    outcome = run("parse", "g.cfg", "long.txt", "--max-words", "1000000000")
    assert "GiB of memory with this grammar" in " ".join(outcome.out.split("\n"))


def test_infinite_ambiguity(run, folder):
    (folder / "g.cfg").write_text("S -> S [0.5] | 'a' [0.5]", encoding="utf-8")
    told = json.loads(run("parse", "g.cfg", "--sentence", "a", "--count", "--json").out)
    assert told["count"] == "inf"
    assert told["log_partition"] == pytest.approx(0.0, abs=1e-12)
    outcome = run("parse", "g.cfg", "--sentence", "a", "--count", "--html", "p.html")
    assert "infinitely many trees" in outcome.out


def test_the_page_has_trees_chart_and_forest(run, folder):
    outcome = run("parse", "g.cfg", "--sentence", "a a a", "--k", "2", "--html", "p.html")
    assert (outcome.code, outcome.err) == (0, "wrote p.html\n")
    page = (folder / "p.html").read_text(encoding="utf-8")
    assert "<h1>a a a</h1>" in page
    for heading in ("Numbers", "Trees", "Chart", "Forest"):
        assert f"<h2>{heading}</h2>" in page
    # S over the first two words, in one of the two trees.
    assert "a a  [0, 2]&#10;S  0.5" in page
    assert page.count('class="io-word"') == 3


def test_a_page_of_several_sentences(run, folder):
    run("parse", "g.cfg", "sentences.txt", "--html", "p.html")
    page = (folder / "p.html").read_text(encoding="utf-8")
    assert "<h2>a a a</h2>" in page
    assert "No tree: the grammar does not know x, y." in page


def test_markovisation_is_undone(run, folder):
    (folder / "gold.mrg").write_text(
        "(TOP (S (NP (DT the) (JJ old) (NN dog)) (VP (VBD ran))))\n"
        "(TOP (S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT the) (JJ old) (NN cat)))))\n",
        encoding="utf-8",
    )
    run("induce", "gold.mrg", "-o", "m.json")
    sentence = ("parse", "m.json", "--sentence", "the old cat ran", "--format", "bracketed")
    assert "^" in run(*sentence).out
    restored = "(TOP (S (NP (DT the) (JJ old) (NN cat)) (VP (VBD ran))))\n"
    assert run(*sentence, "--restore").out == restored
    assert run(*sentence, "--restore", "--method", "min-risk").out == restored


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("g.cfg", "no.txt"), "no.txt: no such file"),
        (("g.cfg", "a a"), "a a: no such file; use --sentence for a sentence"),
        (("g.cfg", "."), ".: is a directory, not a file"),
        (("no.cfg", "sentences.txt"), "no.cfg: no such file"),
        (("-", "-"), "inout: only one input can be standard input"),
        (("-",), "inout: only one input can be standard input"),
        (("g.cfg", "sentences.txt", "--sentence", "a"), "use --sentence or files, not both"),
        (("g.cfg", "sentences.txt", "--k", "0"), "--k must be at least 1. Got 0"),
        (("g.cfg", "sentences.txt", "--samples", "-1"), "--samples must be at least 0. Got -1"),
        (("g.cfg", "sentences.txt", "--max-words", "0"), "--max-words must be at least 1"),
        (("g.cfg", "sentences.txt", "--method", "viterby"), "did you mean viterbi?"),
        (("g.cfg", "sentences.txt", "--k", "2", "--method", "max-rule"), "needs --method viterbi"),
        (("g.cfg", "sentences.txt", "--html", "no/p.html"), "there is no directory no"),
    ],
)
def test_wrong_arguments_get_one_message(run, folder, arguments, message):
    before = sorted(folder.iterdir())
    outcome = run("parse", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_surprisals_are_ratios_of_prefix_probabilities(run, folder):
    # S -> a S (1/2) | a (1/4) | b (1/4): the next word is a after every a with 3/4, or nothing.
    (folder / "g.cfg").write_text("S -> 'a' S [0.5] | 'a' [0.25] | 'b' [0.25]", encoding="utf-8")
    outcome = run("surprisal", "g.cfg", "--sentence", "a b", "--end", "--json")
    told = json.loads(outcome.out)
    begins_a, begins_ab = 0.75, 0.5 * 0.25
    exact = [-math.log2(begins_a), -math.log2(begins_ab / begins_a)]
    assert told["surprisals"] == pytest.approx(exact)
    assert told["end"] == pytest.approx(0.0, abs=1e-12)
    assert told["total"] == pytest.approx(-math.log2(0.5 * 0.25))
    assert told["unit"] == "bits"


def test_surprisals_as_a_table(run, folder):
    outcome = run("surprisal", "g.cfg", "sentences.txt")
    assert outcome.code == 0
    assert "no sentence of the grammar begins with these 2 words" in outcome.out
    assert "skipped: no words" in outcome.out
    assert "perplexity" in outcome.out
    assert outcome.err == "note: 2 of 4 sentences not in the total\n"


def test_surprisals_of_what_cannot_come_are_infinite(run, folder):
    told = json.loads(run("surprisal", "g.cfg", "--sentence", "a x a", "--json").out)
    assert told["surprisals"][1:] == ["inf", "inf"]
    assert told["total"] == "inf"
