"""Kernels compiled ahead of time, and the word about those that are compiled on the way."""

import logging
from pathlib import Path

import pytest

from inout._core.compilation import tell
from inout.cli.commands import warmup
from inout.cli.progress import announcing, steps
from inout.cli.warmup import problems, workers
from tests.processes import command, python


def test_families_of_the_help_are_those_of_the_problems():
    assert tuple(problems.FAMILIES) == warmup.FAMILIES


@pytest.mark.parametrize("command", problems.COMMANDS)
def test_kernels_of_commands_exist(command):
    for _, kernel in problems.COMMANDS[command]:
        assert workers._is_kept(kernel) in (True, False)


def test_an_unknown_family_is_refused(run):
    outcome = run("warmup", "sparse", "trees")
    assert outcome.code == 2
    assert "FAMILY must be sparse, forest" in outcome.err


def test_compilation_is_announced_once(capsys, caplog):
    caplog.set_level(logging.INFO, "inout")
    with announcing():
        tell("a.kernel")
        tell("another.kernel")
    tell("after.all")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "inout: compiling kernels" in captured.err
    assert "another.kernel" in caplog.text


def test_steps_are_lines_where_no_terminal_is(capsys):
    with steps("compiling kernels", 2) as done:
        done(0)
        done(1)
    assert capsys.readouterr().err == "inout: compiling kernels 0/2\ninout: compiling kernels 1/2\n"


def test_little_that_is_missing_is_left_to_its_first_call(monkeypatch):
    solved = []
    monkeypatch.setattr(workers, "cores", lambda: 2)
    monkeypatch.setattr(workers, "solve_all", lambda wanted, *_, **__: solved.extend(wanted))
    for missing in range(3):
        kernels = iter([False] * missing + [True] * 2)
        monkeypatch.setattr(workers, "_is_kept", lambda _, kernels=kernels: next(kernels))
        workers.prepare("parse", lambda number, total: None)
    assert solved == [(problem,) for problem, _ in problems.COMMANDS["parse"]]


@pytest.mark.exhaustive
def test_a_family_is_compiled_in_processes(tmp_path):
    first = command("warmup", "spans", env={"NUMBA_CACHE_DIR": str(tmp_path)})
    assert first.returncode == 0, first.stderr
    assert first.stdout == "compiled: spans\n"
    kept = set(tmp_path.rglob("*.nbc"))
    assert any(path.name.startswith("scaled.") for path in kept)


SHARED_OUT = """
import os, time
from functools import partial
from inout.cli.warmup import workers

def note(name):
    time.sleep(0.05)
    print(name, os.getpid(), file=open(name, "w"))

workers.cores = lambda: 2
groups = [[partial(note, f"{group}{x}") for x in "ab"] for group in range(4)]
workers.solve_all(groups, lambda number, total: print(number, total), need_torch=False)
"""


def test_a_group_of_problems_is_solved_by_one_process(tmp_path):
    done = python("-c", SHARED_OUT, cwd=tmp_path)
    assert done.stdout == "".join(f"{number} 8\n" for number in range(9)), done.stderr
    owners = {path.name: path.read_text().split()[1] for path in tmp_path.iterdir()}
    assert all(owners[f"{group}a"] == owners[f"{group}b"] for group in range(4))


def test_what_parsing_needs_is_compiled_without_torch():
    code = (
        "import sys; from inout.cli.warmup.problems import COMMANDS; "
        "[problem() for problem, _ in COMMANDS['parse']]; assert 'torch' not in sys.modules"
    )
    assert python("-c", code).returncode == 0


@pytest.mark.exhaustive
@pytest.mark.skipif(workers.cores() == 1, reason="one core compiles nothing ahead")
@pytest.mark.parametrize(
    "arguments",
    [
        ("parse", "english", "--sentence", "I saw her duck"),
        (
            "solve",
            "examples/cnf.dyna",
            "--facts",
            "rule=examples/english.tsv",
            "--probabilities",
            "--sentence",
            "time flies",
        ),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_first_run_compiles_nothing_but_what_was_prepared(arguments, tmp_path):
    code = (
        "import logging, sys; logging.basicConfig(level='INFO', format='%(message)s'); "
        "from inout.cli import main; sys.exit(main())"
    )
    root = Path(__file__).parents[2]
    done = python("-c", code, *arguments, cwd=root, env={"NUMBA_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "all that is missing" in done.stderr
    assert "compiling inout" not in done.stderr
