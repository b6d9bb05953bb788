"""The commands about grammars as processes: help without torch, full disks, closed pipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = [sys.executable, "-c", "import sys; from inout.cli import main; sys.exit(main())"]
COMMANDS = ("parse", "surprisal", "sample", "em", "induce", "eval", "check", "convert")
TEXT = "S -> 'a' S [0.5] | 'b' [0.5]\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_examples(run, command):
    outcome = run(command, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"inout {command} " in outcome.out.partition("Examples")[2]
    assert run(command, "-h").out == outcome.out


def test_every_command_is_listed(run):
    listed = run("--help").out
    assert all(f" {command} " in listed for command in COMMANDS)


def test_help_loads_nothing_heavy():
    heavy = ("torch", "numpy", "numba", "nltk", "scipy")
    code = (
        "import sys; from inout.cli import main; main(['parse', '--help']); "
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert outcome.stderr == "[]\n"


@pytest.fixture
def grammar(tmp_path: Path) -> str:
    path = tmp_path / "g.cfg"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments", [("sample", "-n", "50000"), ("check",), ("convert", "--to", "json")]
)
def test_a_full_disk_is_told_in_one_line(grammar, arguments):
    name, *options = arguments
    with Path("/dev/full").open("wb") as full:
        outcome = subprocess.run(
            [*RUN, name, grammar, *options],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
        )
    assert outcome.returncode == 2
    assert outcome.stderr == "inout: standard output: No space left on device\n"


def test_a_reader_that_stops_early_is_no_error(grammar):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [*RUN, "sample", grammar, "-n", "1000000"]
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=300) == 0


def test_answers_do_not_wait_for_the_next_sentence(grammar):
    """Whoever writes a sentence gets its tree before writing the next one."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [*RUN, "parse", grammar, "--format", "bracketed"]
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for sentence, tree in (("b", "(S b)"), ("a b", "(S a (S b))")):
            process.stdin.write(f"{sentence}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{tree}\n"
        process.stdin.close()
        assert process.wait(timeout=300) == 0


def test_parses_go_into_evaluation_through_a_pipe(grammar, tmp_path):
    gold = tmp_path / "gold.mrg"
    gold.write_text("(S a (S b))\n(S b)\n", encoding="utf-8")
    outcome = subprocess.run(
        [*RUN, "eval", str(gold), "-", "--untagged", "--json"],
        input="(S a (S b))\n(())\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert '"num_failed": 1' in outcome.stdout


def test_a_seed_that_is_too_large_is_refused(run, grammar):
    for command in (["sample", grammar], ["parse", grammar, "--sentence", "b"]):
        outcome = run(*command, "--seed", "9" * 30)
        assert outcome.code == 2
        assert "--seed must be an integer of 64 bits" in outcome.err


def test_trimming_away_everything_is_refused(run, tmp_path):
    path = tmp_path / "empty.cfg"
    path.write_text("S -> A B\n", encoding="utf-8")
    outcome = run("convert", str(path), "--trim", "--to", "json")
    assert outcome.code == 2
    assert "no rule stands in a tree" in outcome.err


def test_the_page_is_written_though_nobody_reads_the_output(grammar, tmp_path):
    page = tmp_path / "page.html"
    arguments = ["parse", grammar, "--sentence", "a b", "--html", str(page)]
    process = subprocess.Popen(
        [*RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=300)
    assert "Traceback" not in errors
    assert "wrote" in errors
    assert "inout" in page.read_text(encoding="utf-8")
