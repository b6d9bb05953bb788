"""`inout fit`: a program's weights trained on files of examples."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from inout import Facts, ProgramModel, em, programs
from inout.io.facts import facts_text, read_examples, read_facts

RULES = "S\tS\tS\t0.5\nS\ta\t0.3\nS\tb\t0.2\n"
COMMON = ("--facts", "rule=g.tsv", "--fact", "start=S", "--probabilities", "-o", "out")


@pytest.fixture
def folder(files: Path) -> Path:
    (files / "g.tsv").write_text(RULES, encoding="utf-8")
    (files / "c.txt").write_text("a b\na a a\n\na z\n", encoding="utf-8")
    return files


def weights(folder: Path, name: str, *arities: int) -> list[float]:
    path = folder / "out" / f"{name}.tsv"
    return read_facts(path, arities, probabilities=True).log_weights.exp().tolist()


def test_the_weights_are_those_of_the_counts(run, folder):
    outcome = run("fit", "cnf_inside", *COMMON, "--corpus", "c.txt")
    assert outcome.code == 0, outcome.err
    # Five words, three binary nodes, whatever the tree.
    assert weights(folder, "rule", 2, 3) == pytest.approx([3 / 8, 4 / 8, 1 / 8])
    assert weights(folder, "start", 1) == [1.0]
    assert outcome.err.splitlines() == [
        "note: 1 empty line skipped",
        "note: 1 example without analysis skipped: c.txt:4",
    ]
    final = 3 * math.log(3 / 8) + 4 * math.log(4 / 8) + math.log(1 / 8) + math.log(2)
    lines = outcome.out.splitlines()
    assert lines[0] == "iteration  log-likelihood"
    assert f"{final:.4f} at the end" in outcome.out
    assert f"        1  {final:14.4f}" in lines
    assert lines[-1].split() == ["wrote", "out/rule.tsv,", "out/start.tsv"]
    assert sorted(path.name for path in folder.iterdir() if "checkpoint" in path.name) == []


def test_the_trained_facts_are_read_again(run, folder):
    assert run("fit", "cnf_inside", *COMMON, "--corpus", "c.txt").code == 0
    options = ("--facts", "rule=out/rule.tsv", "--fact", "start=S", "--probabilities", "--json")
    told = json.loads(run("solve", "cnf_inside", *options, "--sentence", "a b").out)
    assert told["goals"][0]["log_partition"] == pytest.approx(math.log(3 / 8 * 4 / 8 * 1 / 8))


def test_groups_frequencies_and_restarts(run, folder):
    (folder / "f.txt").write_text("2\ta b\n0.5\tb\n", encoding="utf-8")
    options = ("--corpus", "f.txt", "--frequencies", "--restarts", "2", "--json")
    outcome = run("fit", "cnf_inside", *COMMON, *options, "--group", "rule(X,_)")
    told = json.loads(outcome.out)
    assert (told["format"], told["sentences"], len(told["starts"])) == ("inout fit 1", 2, 3)
    assert told["log_likelihoods"] == sorted(told["log_likelihoods"])
    assert weights(folder, "rule", 2, 3) == pytest.approx([0.5, 2 / 4.5, 2.5 / 4.5])
    assert not (folder / "out" / "start.tsv").exists()


@pytest.mark.parametrize("method", ["em", "stepwise"])
def test_pairs_of_strings(run, folder, method: str):
    letters = "abk"
    edits = {name: {(x,): -1.0 for x in letters} for name in ("copy", "delete", "insert")}
    edits["substitute"] = {(x, y): -2.0 for x in letters for y in letters if x != y}
    given = ["--fact", "initial=q", "--fact", "final=q"]
    for name, rows in edits.items():
        (folder / f"{name}.tsv").write_text(facts_text(Facts.of(rows)), encoding="utf-8")
        given += ["--facts", f"{name}={name}.tsv", "--weighted", name]
    (folder / "p.tsv").write_text("ab\tak\n\tb\nkk a\tka\n", encoding="utf-8")
    options = ["--characters", "--iterations", "2", "--method", method, "--batch-size", "1"]
    outcome = run("fit", "edit_transducer", *given, "--corpus", "p.tsv", "-o", "out", *options)
    assert outcome.code == 0, outcome.err
    if method == "em":
        pairs = [("ab", "ak"), ("", "b"), ("kka", "ka")]
        corpus = [programs.sentence_pair(list(x), list(y)) for x, y in pairs]
        facts = {"initial": [("q",)], "final": [("q",)], **edits}
        twin = em(ProgramModel(programs.edit_transducer, facts), corpus, max_iterations=2)
        found = read_facts(folder / "out" / "substitute.tsv", [2, 4], weighted=True)
        expected = twin.model.facts["substitute"].log_weights.tolist()
        assert found.log_weights.tolist() == pytest.approx(expected)


def test_examples_as_facts(run, folder):
    (folder / "e.tsv").write_text(
        "# two\nword\ta\t0\t1\nlength\t1\n\n\nlength\t2\nword\ta\t0\t1\nword\tb\t1\t2\n",
        encoding="utf-8",
    )
    outcome = run("fit", "cnf_inside", *COMMON, "--corpus", "e.tsv", "--from", "facts")
    assert outcome.code == 0, outcome.err
    assert weights(folder, "rule", 2, 3) == pytest.approx([1 / 4, 2 / 4, 1 / 4])
    lines = [line for line, _ in read_examples(folder / "e.tsv", {"word": [3], "length": [1]})]
    assert lines == [2, 6]


def test_text_of_facts_is_read_back(tmp_path):
    rows = [("12", 12), ("", -3), (" a", 0), ('"', 1), ("#x", 2), ("tab\t\\n", 3), ("né", 4)]
    facts = Facts(rows, [-0.1, -math.inf, 0.0, -1e4, 1e-17, 2.0, -1.0])
    (tmp_path / "f.tsv").write_text(facts_text(facts), encoding="utf-8")
    again = read_facts(tmp_path / "f.tsv", [2])
    assert again.rows == rows
    assert again.log_weights.tolist() == facts.log_weights.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--corpus", "no.txt"), "no.txt: no such file"),
        (("--corpus", "c.txt", "--method", "me"), "--method must be em or stepwise. Got 'me'"),
        (("--corpus", "c.txt", "--from", "pairs"), "c.txt:1:1: expected two sentences with a tab"),
        (("--corpus", "bad.tsv", "--from", "facts"), "bad.tsv:2:6: expected 3 values"),
        (("--corpus", "worse.tsv", "--from", "facts"), "worse.tsv:1:1: expected one of"),
        (("--corpus", "empty.txt"), "--corpus must contain at least one example"),
        (("--corpus", "c.txt", "--group", "rul(X)"), "--group: no rule uses rul"),
        (("--corpus", "c.txt", "--step", "2"), "--step must be from 0 to 1"),
        (("--corpus", "c.txt", "--fact", "length=2"), "both give length"),
        (("--corpus", "c.txt", "-o", "g.tsv"), "g.tsv: must be a folder"),
        (("--corpus", "c.txt", "-o", "no/out"), "there is no directory no"),
        (("--corpus", "z.txt"), "no sentence of the corpus has an analysis"),
        (("--corpus", "c.txt", "--max-edges", "1"), "c.txt:1: grounding stopped"),
        (("--corpus", "c.txt", "--max-edges", "1"), "raise --max-edges"),
    ],
)
def test_misuse(run, folder, options: tuple[str, ...], message: str):
    (folder / "bad.tsv").write_text("length\t2\nword\ta\t0\n", encoding="utf-8")
    (folder / "worse.tsv").write_text("wort\ta\t0\t1\n", encoding="utf-8")
    (folder / "empty.txt").write_text("\n", encoding="utf-8")
    (folder / "z.txt").write_text("z\n", encoding="utf-8")
    outcome = run("fit", "cnf_inside", *COMMON, *options)
    assert outcome.code == 2
    assert message in outcome.err
    assert not (folder / "out").exists()


def test_a_relation_that_nothing_gives(run, folder):
    outcome = run("fit", "cnf_inside", "--fact", "start=S", "--corpus", "c.txt", "-o", "out")
    assert outcome.code == 2
    assert "rule is not given: add --facts rule=FILE.tsv or --fact rule=VALUES" in outcome.err
