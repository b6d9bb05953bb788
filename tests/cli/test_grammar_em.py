"""`inout em`: training from files, checkpoints, and what is left out."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from inout import Grammar
from tests.processes import COMMAND, python, started

# Which words are a and b is all there is to learn.
TEXT = "S -> X S [0.5] | X [0.5]\nX -> 'a' [0.5] | 'b' [0.5]\n"
CORPUS = "a b\na a a\n\na b z\n"


@pytest.fixture
def folder(files):
    (files / "g.cfg").write_text(TEXT, encoding="utf-8")
    (files / "c.txt").write_text(CORPUS, encoding="utf-8")
    return files


def weights(path: Path) -> list[float]:
    return Grammar.load(path).log_weights.exp().tolist()


def test_the_grammar_is_that_of_the_counts(run, folder):
    outcome = run("em", "g.cfg", "c.txt", "-o", "t.cfg")
    assert outcome.code == 0
    # Two sentences of five words, four of them a; no sentence is ambiguous.
    assert weights(folder / "t.cfg") == pytest.approx([3 / 5, 2 / 5, 4 / 5, 1 / 5])
    assert outcome.err.splitlines() == [
        "note: 1 empty line skipped",
        "note: 1 sentence without analysis skipped: c.txt:4",
    ]
    final = 3 * math.log(3 / 5) + 2 * math.log(2 / 5) + 4 * math.log(4 / 5) + math.log(1 / 5)
    assert f"{final:.4f} at the end" in outcome.out
    assert "converged" in outcome.out
    assert sorted(path.name for path in folder.iterdir() if "checkpoint" in path.name) == []


def test_json_has_every_likelihood(run, folder):
    told = json.loads(run("em", "g.cfg", "c.txt", "-o", "t.json", "--json").out)
    assert told["log_likelihoods"] == sorted(told["log_likelihoods"])
    assert told["without_analysis"] == ["c.txt:4"]
    assert (told["empty_lines"], told["sentences"], told["converged"]) == (1, 3, True)


def test_frequencies(run, folder):
    (folder / "f.tsv").write_text("3\ta\n0.5\tb b\n\n0\tb\n", encoding="utf-8")
    assert run("em", "g.cfg", "f.tsv", "-o", "t.cfg", "--frequencies").code == 0
    assert weights(folder / "t.cfg") == pytest.approx([0.5 / 4, 3.5 / 4, 3 / 4, 1 / 4])


def test_brackets(run, folder):
    (folder / "g.cfg").write_text(
        "S -> L [0.5] | R [0.5]\nL -> B A [1]\nR -> A B [1]\nB -> A A [1]\nA -> 'a' [1]\n",
        encoding="utf-8",
    )
    (folder / "b.txt").write_text("(a a) a\n((a a) a)\na (a a)\na a a\n", encoding="utf-8")
    assert run("em", "g.cfg", "b.txt", "-o", "t.cfg", "--brackets", "--tolerance", "0").code == 0
    # Of the sentence without brackets each tree has its share.
    assert weights(folder / "t.cfg")[:2] == pytest.approx([2 / 3, 1 / 3])


def test_priors_and_restarts(run, folder):
    assert run("em", "g.cfg", "c.txt", "-o", "t.cfg", "--prior", "10").code == 0
    assert weights(folder / "t.cfg") == pytest.approx([13 / 25, 12 / 25, 14 / 25, 11 / 25])
    assert run("em", "g.cfg", "c.txt", "-o", "t.cfg", "--alpha", "11").code == 0
    assert weights(folder / "t.cfg") == pytest.approx([13 / 25, 12 / 25, 14 / 25, 11 / 25])
    outcome = run("em", "g.cfg", "c.txt", "-o", "t.cfg", "--restarts", "3", "--seed", "5")
    assert "of 4 starting points" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("g.cfg", "no.txt", "-o", "t.cfg"), "no.txt: no such file"),
        (("g.cfg", "c.txt"), "Missing option '--out'"),
        (("g.cfg", "c.txt", "-o", "t"), "--to must be given for a file name without"),
        (("g.cfg", "c.txt", "-o", "no/t.cfg"), "no/t.cfg: there is no directory no"),
        (("g.cfg", "e.txt", "-o", "t.cfg"), "CORPUS must contain at least one sentence. Got none"),
        (("g.cfg", "c.txt", "-o", "t.cfg", "--frequencies"), "c.txt:1:1: expected a number"),
        (("g.cfg", "p.txt", "-o", "t.cfg", "--brackets"), "p.txt:1:1: 1 bracket is not closed"),
        (("g.cfg", "c.txt", "-o", "t.cfg", "--resume"), "there is no checkpoint to resume"),
        (("g.cfg", "c.txt", "-o", "t.cfg", "--prior", "-1"), "--prior must be at least 0"),
        (("g.cfg", "c.txt", "-o", "t.cfg", "--alpha", "0"), "--alpha must be above 0"),
        (
            ("g.cfg", "c.txt", "-o", "t.cfg", "--prior", "1", "--alpha", "2"),
            "--prior or --alpha, not both",
        ),
        (("g.cfg", "c.txt", "-o", "t.cfg", "--iterations", "-1"), "--iterations must be at least"),
        (("g.cfg", "z.txt", "-o", "t.cfg"), "no sentence of the corpus has an analysis"),
        (("g.cfg", "u.txt", "-o", "t.cfg"), "u.txt:1:1: the file must be UTF-8 text"),
    ],
)
def test_wrong_arguments_write_nothing(run, folder, arguments, message):
    (folder / "e.txt").write_text("\n\n", encoding="utf-8")
    (folder / "p.txt").write_text("(a a\n", encoding="utf-8")
    (folder / "z.txt").write_text("z z\n", encoding="utf-8")
    (folder / "u.txt").write_bytes(b"\xffa\n")
    outcome = run("em", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert not (folder / "t.cfg").exists()


def test_a_run_that_failed_does_not_block_the_next(run, folder):
    (folder / "z.txt").write_text("z z\n", encoding="utf-8")
    failed = run("em", "g.cfg", "z.txt", "-o", "t.cfg")
    assert failed.code != 0
    assert "no sentence of the corpus has an analysis" in failed.err
    assert not (folder / "t.cfg.checkpoint").exists()
    assert run("em", "g.cfg", "c.txt", "-o", "t.cfg").code == 0


def test_long_sentences_are_left_out_and_named(run, folder):
    (folder / "l.txt").write_text("a b\n" + "a " * 10_000 + "\n", encoding="utf-8")
    outcome = run("em", "g.cfg", "l.txt", "-o", "t.cfg")
    assert outcome.code == 0
    assert "note: 1 sentence of more than 300 words skipped: l.txt:2\n" in outcome.err


def test_a_chart_beyond_the_memory_is_refused(run, folder):
    (folder / "l.txt").write_text("a b\n" + "a " * 1_000_000 + "\n", encoding="utf-8")
    outcome = run("em", "g.cfg", "l.txt", "-o", "t.cfg", "--max-words", "2000000")
    assert (outcome.code, outcome.out) == (2, "")
    assert "a sentence of 1,000,000 words would need about" in outcome.err
    assert "a smaller --max-words leaves it out\n" in outcome.err


# Recursion on both sides: EM takes long to find out what X stands for.
SLOW = "S -> S S [0.3] | X Y [0.3] | Y X [0.2] | 'a' [0.2]\nX -> 'a' [0.6] | 'b' [0.4]\n"
SLOW += "Y -> 'a' [0.4] | 'b' [0.6]\n"
SENTENCES = "a b a\na a b\nb a\na b b a\nb a a\na b a b\n" * 20
OPTIONS = ("--iterations", "60", "--tolerance", "0", "--restarts", "2", "--seed", "3")


@pytest.mark.exhaustive
def test_a_run_that_was_killed_goes_on_to_the_same_grammar(run, folder):
    (folder / "g.cfg").write_text(SLOW, encoding="utf-8")
    (folder / "c.txt").write_text(SENTENCES, encoding="utf-8")
    assert run("em", "g.cfg", "c.txt", "-o", "whole.json", *OPTIONS).code == 0
    arguments = ["em", "g.cfg", "c.txt", "-o", "t.json", *OPTIONS]
    process = started(*COMMAND, *arguments, stderr=subprocess.PIPE)
    checkpoint = folder / "t.json.checkpoint"
    seen = set()
    # Some checkpoints later, in the middle of whatever it does.
    for _ in range(60_000):
        if checkpoint.exists():
            seen.add(checkpoint.stat().st_mtime_ns)
        if len(seen) > 5 or process.poll() is not None:
            break
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    if process.returncode == 0:
        pytest.skip("training was done before it could be killed")
    assert not (folder / "t.json").exists()
    outcome = run("em", "g.cfg", "c.txt", "-o", "t.json", *OPTIONS)
    assert (outcome.code, outcome.out) == (2, "")
    assert "use --resume to continue from it, or delete it to start afresh" in outcome.err
    other = run("em", "g.cfg", "c.txt", "-o", "t.json", *OPTIONS, "--prior", "1", "--resume")
    assert other.code == 2
    assert "must be of the same run" in other.err
    assert run("em", "g.cfg", "c.txt", "-o", "t.json", *OPTIONS, "--resume").code == 0
    assert (folder / "t.json").read_bytes() == (folder / "whole.json").read_bytes()
    assert not checkpoint.exists()


@pytest.mark.exhaustive
def test_a_full_disk_loses_nothing(folder):
    """A limit on the size of files stands for the disk: the write itself fails."""
    (folder / "t.json").write_text("what was there", encoding="utf-8")
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
        "from inout.cli import main; sys.exit(main())"
    )
    arguments = ["em", "g.cfg", "c.txt", "-o", "t.json"]
    # Compiled code is not written either; the one that is there stays as it is.
    variables = {"NUMBA_CACHE_DIR": str(folder / "cache")}
    outcome = python("-B", "-c", limited, *arguments, env=variables)
    assert outcome.returncode == 2
    assert outcome.stderr.count("\n") == 1
    assert "File too large" in outcome.stderr
    assert (folder / "t.json").read_text(encoding="utf-8") == "what was there"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".t")] == []


def test_the_grammar_that_could_not_be_written_is_not_lost(run, folder, monkeypatch):
    from inout import FileError
    from inout.cli.grammars import em as work

    def full(path, text):
        raise FileError("No space left on device", file=path)

    with monkeypatch.context() as patched:
        patched.setattr(work, "write_text", full)
        outcome = run("em", "g.cfg", "c.txt", "-o", "t.cfg")
    assert outcome.code == 2
    assert outcome.err == (
        "t.cfg: No space left on device; --resume writes it again from t.cfg.checkpoint\n"
    )
    assert run("em", "g.cfg", "c.txt", "-o", "t.cfg", "--resume").code == 0
    assert weights(folder / "t.cfg") == pytest.approx([3 / 5, 2 / 5, 4 / 5, 1 / 5])
