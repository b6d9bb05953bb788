"""`inout convert`: formats, trimming, normalisation; files are written whole or not at all."""

from __future__ import annotations

import math

import pytest

from inout import Grammar

TEXT = "S -> S S [0.25] | 'a' [0.5]\nX -> 'b' [1]\n"


@pytest.fixture
def folder(files):
    (files / "g.cfg").write_text(TEXT, encoding="utf-8")
    return files


@pytest.mark.parametrize("format", ["nltk", "lines", "json"])
def test_every_format_reads_back_the_same(run, folder, format):
    outcome = run("convert", "g.cfg", "--to", format)
    assert (outcome.code, outcome.err) == (0, "")
    before, after = Grammar.from_text(TEXT), Grammar.from_text(outcome.out, format)
    assert list(map(str, after.rules)) == list(map(str, before.rules))
    assert after.log_weights.tolist() == before.log_weights.tolist()


def test_the_name_of_the_file_says_the_format(run, folder):
    outcome = run("convert", "g.cfg", "-o", "g.json")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == "wrote g.json: 3 rules\n"
    assert (folder / "g.json").read_text(encoding="utf-8").startswith("{")


def test_trimming_says_what_it_left_out(run, folder):
    outcome = run("convert", "g.cfg", "--trim", "--to", "lines")
    assert outcome.out == "%start S\n0.25\tS S S\n0.5\tS a\n"
    assert outcome.err == "note: removed 1 of 3 rules\n"


def test_normalising_keeps_the_share_of_every_tree(run, folder):
    run("convert", "g.cfg", "--trim", "--normalise", "-o", "p.json")
    made = Grammar.load(folder / "p.json")
    # Z solves Z = Z²/4 + 1/2.
    z = 2 - math.sqrt(2)
    assert made.log_weights.exp().tolist() == pytest.approx([z / 4, 0.5 / z])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("g.cfg",), "inout: --to is required without -o FILE"),
        (("g.cfg", "-o", "x.foo"), "--to must be given for a file name without .cfg"),
        (("g.cfg", "--to", "jsn"), "Got 'jsn'; did you mean json?"),
        (("g.cfg", "-o", "no/x.json"), "no/x.json: there is no directory no"),
        (("g.cfg", "-o", "."), ".: cannot be written, because it is a directory"),
        (("g.cfg", "-o", "x.json.xz"), "-o must not end in .xz"),
        (("no.cfg", "--to", "json"), "no.cfg: no such file"),
    ],
)
def test_nothing_is_written_where_something_is_wrong(run, folder, arguments, message):
    before = sorted(folder.iterdir())
    outcome = run("convert", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert sorted(folder.iterdir()) == before


def test_a_sum_without_end_cannot_be_normalised(run, folder):
    (folder / "g.cfg").write_text("S -> S S | 'a'", encoding="utf-8")
    outcome = run("convert", "g.cfg", "--normalise", "--to", "json")
    assert (outcome.code, outcome.out) == (2, "")
    assert "must have a finite, positive sum" in outcome.err
