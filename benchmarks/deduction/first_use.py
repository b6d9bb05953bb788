"""Seconds of the `inout solve` command, with nothing compiled yet and after that."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.deduction.grammar import PROGRAM, Parsing

COMMAND = "from inout.cli import main; main()"


def first_and_later(parsing: Parsing, firsts: int, laters: int) -> tuple[float, float]:
    """Median seconds of the command in a new process: (cache empty, cache filled)."""
    first_runs, later_runs = [], []
    for _ in range(firsts):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            arguments = _write(parsing, folder)
            first_runs.append(_solve(arguments, folder))
            later_runs += [_solve(arguments, folder) for _ in range(laters)]
    return median(first_runs), median(later_runs)


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


def _solve(arguments: list[str], folder: Path) -> float:
    search = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": search}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - start
