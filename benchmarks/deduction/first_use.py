"""Seconds of the `inout solve` command, with nothing compiled yet and after that."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.deduction.grammar import PROGRAM, Parsing

COMMAND = "from inout.cli import main; main()"


@dataclass(frozen=True)
class Seconds:
    """How long a process took: by the clock, and of the processor's time."""

    wall: float
    processor: float


def first_and_later(parsing: Parsing, firsts: int, laters: int) -> tuple[Seconds, Seconds]:
    """Medians for the command in a new process: (cache empty, cache filled)."""
    first_runs, later_runs = [], []
    for _ in range(firsts):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            arguments = _write(parsing, folder)
            first_runs.append(_solve(arguments, folder))
            later_runs += [_solve(arguments, folder) for _ in range(laters)]
    return _median(first_runs), _median(later_runs)


def _median(runs: list[Seconds]) -> Seconds:
    return Seconds(median(run.wall for run in runs), median(run.processor for run in runs))


def _write(parsing: Parsing, folder: Path) -> list[str]:
    """The problem as files, and the arguments that name them."""
    (folder / "cnf.dyna").write_text(PROGRAM, encoding="utf-8")
    tables: dict[str, list[tuple[str | float, ...]]] = {
        "rule": [(*rule, weight) for rule, weight in parsing.rules.items()],
        "word": [(word, i, i + 1) for i, word in enumerate(parsing.words)],
        "length": [(len(parsing.words),)],
    }
    arguments = ["solve", "cnf.dyna"]
    for name, rows in tables.items():
        lines = ["\t".join(map(str, row)) + "\n" for row in rows]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
        arguments += ["--facts", f"{name}={name}.tsv"]
    return arguments


def _solve(arguments: list[str], folder: Path) -> Seconds:
    search = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": search}
    start, before = time.perf_counter(), os.times()
    subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    wall, after = time.perf_counter() - start, os.times()
    processor = after.children_user + after.children_system
    return Seconds(wall, processor - before.children_user - before.children_system)
