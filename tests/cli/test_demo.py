"""`inout demo`, `inout --help`, `inout --version`."""

from __future__ import annotations

import math

import pytest

from inout.cli.demo import GRAMMAR, SENTENCE, solve_demo


def test_the_demonstration_shows_both_readings(run):
    outcome = run("demo")
    assert (outcome.code, outcome.err) == (0, "")
    for heading in ("A grammar", "Inside", "Two readings", "The packed forest", "Expected counts"):
        assert f"\n{heading}  " in outcome.out
    assert "0.781  ███████████████▋ " in outcome.out
    assert "0.219  ████▍ " in outcome.out
    assert "1.000  S[0,5]   ← NP[0,1] VP[1,5]   0.781\n" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_its_numbers_are_those_of_its_two_trees():
    answer = solve_demo()
    shared = GRAMMAR["NP", "Det", "N"] * GRAMMAR["N", "arrow"]
    first = GRAMMAR["NP", "time"] * GRAMMAR["VP", "V", "PP"] * GRAMMAR["V", "flies"]
    second = GRAMMAR["NP", "N", "N"] * GRAMMAR["N", "time"] * GRAMMAR["N", "flies"]
    second *= GRAMMAR["VP", "V", "NP"] * GRAMMAR["V", "like"]
    (goal,) = answer.goals
    assert goal.count == 2
    assert goal.log_partition == pytest.approx(math.log(shared * (first + second)))
    assert goal.best is not None
    weights = [derivation.log_weight for derivation in goal.best]
    assert weights == pytest.approx([math.log(shared * first), math.log(shared * second)])


def test_the_rules_of_each_symbol_sum_to_one():
    totals: dict[str, float] = {}
    for (left, *_), probability in GRAMMAR.items():
        totals[left] = totals.get(left, 0.0) + probability
    assert totals == pytest.approx(dict.fromkeys(totals, 1.0))


def test_a_page_can_be_written(run, tmp_path):
    outcome = run("demo", "--html", tmp_path / "demo.html")
    assert outcome.code == 0
    assert f"<h1>{SENTENCE}</h1>" in (tmp_path / "demo.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [(), ("demo",), ("solve",), ("programs",)])
def test_every_help_has_examples(run, command):
    outcome = run(*command, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert "Examples" in outcome.out
    assert run(*command, "-h").out == outcome.out


def test_no_command_shows_the_help(run):
    outcome = run()
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.rstrip() == run("--help").out.rstrip()


def test_the_version_is_told(run):
    outcome = run("--version")
    assert outcome.code == 0
    assert outcome.out.startswith("inout ")
