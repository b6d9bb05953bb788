"""`inout demo`, `inout --help`, `inout --version`."""

from __future__ import annotations

import math
import re
import tempfile
from importlib.resources import files
from itertools import pairwise

import pytest
import torch

from inout.cli.demo import learning
from inout.cli.demo.learning import CLASSES, Lesson, forgetful, likely_words
from inout.grammars import library
from tests.processes import command

HEADINGS = (
    "fruit flies like a banana",
    "I saw her duck",
    "More sentences",
    "Surprisal",
    "Learning",
    "The likelihood rises",
    "What it learned",
)


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return learning.learn(library.load("english"))


@pytest.fixture
def learned(lesson: Lesson, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is slow where all calls are checked: it is done once."""
    monkeypatch.setattr(learning, "learn", lambda english: lesson)


@pytest.mark.exhaustive
def test_the_demonstration_parses_and_learns(run, learned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run("demo")
    assert (first.code, first.err) == (0, "")
    assert "\x1b" not in first.out
    assert "\r" not in first.out
    for heading in HEADINGS:
        assert f"\n{heading}  " in first.out
    assert max(map(len, first.out.splitlines())) <= 100
    assert first.out.endswith("\nwrote inout-demo.html: open it in a browser\n")
    page = (tmp_path / "inout-demo.html").read_text(encoding="utf-8")
    assert page.count("<h2>") == 7
    assert 'class="io-chart"' in page
    assert page.count('class="io-dot" style') > 10  # of the curve
    loaded = re.sub(r'xmlns="http://www.w3.org/2000/svg"', "", page)
    assert not re.search(r"https?:|src=|<script|<link|@import|url\(", loaded)


@pytest.mark.exhaustive
def test_the_demonstration_is_the_same_in_another_process(run, learned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run("demo")
    page = (tmp_path / "inout-demo.html").read_text(encoding="utf-8")
    (tmp_path / "inout-demo.html").unlink()
    again = command("demo")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == first.out
    # Numbers in tooltips have many digits, and how sums are split up shows in the last.
    assert len((tmp_path / "inout-demo.html").read_text(encoding="utf-8")) == pytest.approx(
        len(page), rel=0.01
    )


def test_the_page_goes_elsewhere_where_it_may_not_be_written(run, learned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Something else of that name; root may write into directories that are read-only.
    (tmp_path / "inout-demo.html").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    outcome = run("demo")
    assert (outcome.code, outcome.err) == (0, "")
    (page,) = (tmp_path / "elsewhere").glob("inout-*/inout-demo.html")
    assert f"\nwrote {page}: open" in outcome.out


def test_its_probabilities_are_products_of_the_rules(run, learned, tmp_path):
    text = (files("inout.grammars.library") / "english.cfg").read_text(encoding="utf-8")
    text = re.sub(r"#.*", "", text).replace("\n  |", " |")
    weights = {
        (line.split(" -> ")[0], *right.split()[:-1]): float(right.split()[-1].strip("[]"))
        for line in text.splitlines()
        if " -> " in line
        for right in line.split(" -> ")[1].split(" | ")
    }

    def weight(*rules: str) -> float:
        return math.prod(weights[tuple(rule.split())] for rule in rules)

    hers = weight(
        "VP Vt Obj", "Vt 'saw'", "Obj NP", "NP Det Nom", "Det 'her'", "Nom Noun", "Noun 'duck'"
    )
    she = weight(
        "VP Vp Obj Base", "Vp 'saw'", "Obj PronObj", "PronObj 'her'", "Base Bi", "Bi 'duck'"
    )
    shown = run("demo", "--html", tmp_path / "demo.html").out
    duck = shown[shown.index("\nI saw her duck") : shown.index("\nMore sentences")]
    found = [float(number) for number in re.findall(r"\d\.\d{3}", duck)]
    assert found == pytest.approx([hers / (hers + she), she / (hers + she)], abs=6e-4)


def test_it_learns(lesson):
    values = lesson.result.log_likelihoods
    assert all(after > before for before, after in pairwise(values))
    first, last = lesson.perplexities
    assert first > 300
    assert last < 40
    assert lesson.right_before < 0.4
    assert lesson.right_after > 0.8
    english = library.load("english")
    for name in CLASSES:
        theirs = set(likely_words(english, name, 100))
        learned = likely_words(lesson.result.model, name, 4)
        assert len(theirs.intersection(learned)) >= 3
        assert len(theirs.intersection(likely_words(lesson.start, name, 4))) <= 2


def test_what_is_forgotten_is_the_dictionary_only():
    english = library.load("english")
    start = forgetful(english, torch.Generator().manual_seed(1))
    known = dict(zip(english.rules, english.log_weights.tolist(), strict=True))
    words: dict[str, dict[str, float]] = {}
    for rule, log_weight in zip(start.rules, start.log_weights.tolist(), strict=True):
        if rule.is_lexical:
            words.setdefault(rule.lhs, {})[str(rule)] = math.exp(log_weight)
        else:
            assert known[rule] == log_weight
    for name, drawn in words.items():
        assert len(drawn) == len(english.terminals)
        of_english = [w for rule, w in known.items() if rule.lhs == name and rule.is_lexical]
        assert math.fsum(drawn.values()) == pytest.approx(sum(map(math.exp, of_english)))
    assert len(start) == sum(not rule.is_lexical for rule in known) + sum(map(len, words.values()))


@pytest.mark.parametrize("names", [(), ("demo",), ("solve",), ("programs",)])
def test_every_help_has_examples(run, names):
    outcome = run(*names, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert "Examples" in outcome.out
    assert run(*names, "-h").out == outcome.out


def test_no_command_shows_the_help(run):
    outcome = run()
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.rstrip() == run("--help").out.rstrip()


def test_the_version_is_told(run):
    outcome = run("--version")
    assert outcome.code == 0
    assert outcome.out.startswith("inout ")
