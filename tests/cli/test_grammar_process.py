"""The commands about grammars as processes: help without torch, full disks, closed pipes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.processes import COMMAND, command, python, started

COMMANDS = ("parse", "surprisal", "sample", "em", "induce", "eval", "check", "convert")
TEXT = "S -> 'a' S [0.5] | 'b' [0.5]\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_examples(run, name):
    outcome = run(name, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"inout {name} " in outcome.out.partition("Examples")[2]
    assert run(name, "-h").out == outcome.out


def test_every_command_is_listed(run):
    listed = run("--help").out
    assert all(f" {name} " in listed for name in COMMANDS)


def test_help_loads_nothing_heavy():
    heavy = ("torch", "numpy", "numba", "nltk", "scipy")
    code = (
        "import sys; from inout.cli import main; main(['parse', '--help']); "
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    outcome = python("-c", code, check=True)
    assert outcome.stderr == "[]\n"


@pytest.fixture
def grammar(tmp_path: Path) -> str:
    path = tmp_path / "g.cfg"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


@pytest.mark.few(1)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments", [("sample", "-n", "50000"), ("check",), ("convert", "--to", "json")]
)
def test_a_full_disk_is_told_in_one_line(grammar, arguments):
    name, *options = arguments
    with Path("/dev/full").open("wb") as full:
        streams = {"capture_output": False, "stdout": full, "stderr": subprocess.PIPE}
        outcome = command(name, grammar, *options, **streams)
    assert outcome.returncode == 2
    assert outcome.stderr == "inout: standard output: No space left on device\n"


@pytest.mark.exhaustive
def test_a_reader_that_stops_early_is_no_error(grammar):
    arguments = ["sample", grammar, "-n", "1000000"]
    with started(*COMMAND, *arguments, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=300) == 0


def test_answers_do_not_wait_for_the_next_sentence(grammar):
    """Whoever writes a sentence gets its tree before writing the next one."""
    arguments = ["parse", grammar, "--format", "bracketed"]
    with started(*COMMAND, *arguments, stdin=subprocess.PIPE) as process:
        for sentence, tree in (("b", "(S b)"), ("a b", "(S a (S b))")):
            process.stdin.write(f"{sentence}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{tree}\n"
        process.stdin.close()
        assert process.wait(timeout=300) == 0


def test_parses_go_into_evaluation_through_a_pipe(grammar, tmp_path):
    gold = tmp_path / "gold.mrg"
    gold.write_text("(S a (S b))\n(S b)\n", encoding="utf-8")
    outcome = command("eval", gold, "-", "--untagged", "--json", input="(S a (S b))\n(())\n")
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert '"num_failed": 1' in outcome.stdout


def test_a_seed_that_is_too_large_is_refused(run, grammar):
    for arguments in (["sample", grammar], ["parse", grammar, "--sentence", "b"]):
        outcome = run(*arguments, "--seed", "9" * 30)
        assert outcome.code == 2
        assert "--seed must be a 64-bit integer" in outcome.err


def test_trimming_away_everything_is_refused(run, tmp_path):
    path = tmp_path / "empty.cfg"
    path.write_text("S -> A B\n", encoding="utf-8")
    outcome = run("convert", str(path), "--trim", "--to", "json")
    assert outcome.code == 2
    assert "derives no tree" in outcome.err


@pytest.mark.exhaustive
def test_the_page_is_written_though_nobody_reads_the_output(grammar, tmp_path):
    page = tmp_path / "page.html"
    arguments = ["parse", grammar, "--sentence", "a b", "--html", str(page)]
    with started(*COMMAND, *arguments, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        errors = process.stderr.read()
    assert "Traceback" not in errors
    assert "wrote" in errors
    assert "inout" in page.read_text(encoding="utf-8")
