"""`python -m benchmarks compare CHECKOUT NAME …`: figures of another checkout and of this one.

Both run the workloads in turn, so that a machine that gets slower does so for both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.report import say, table

ROOT = Path(__file__).parents[1]
Figures = Mapping[str, float]  # by name, without those that failed


def compare(other: Path, names: Sequence[str], rounds: int, quick: bool) -> int:
    """Prints a table for each workload; the exit status."""
    for name in names:
        found: tuple[list[Figures], list[Figures]] = ([], [])
        for number in range(rounds):
            say(f"{name}: round {number + 1} of {rounds}")
            for runs, checkout in zip(found, (other, ROOT), strict=True):
                runs.append(_run(checkout, name, quick))
        print("\n".join([f"## `{name}`", "", *rows(*found), ""]))
    return 0


def rows(before: Sequence[Figures], after: Sequence[Figures]) -> list[str]:
    """The medians of the figures that all runs have, as a table, and how they changed."""
    names = [name for name in after[0] if all(name in run for run in (*before, *after))]
    cells = []
    for name in names:
        old, new = (median(run[name] for run in runs) for runs in (before, after))
        ratio = f"{new / old:.2f}" if old else ""
        cells.append((name, f"{old:,.4g}", f"{new:,.4g}", ratio))
    return table(("figure", "before", "after", "after / before"), cells)


def _run(checkout: Path, name: str, quick: bool) -> Figures:
    """The figures of a workload as the code of a checkout has it."""
    path = os.pathsep.join([str(checkout / "src"), str(checkout)])
    command = [sys.executable, "-m", "benchmarks", "run", name, *(["--quick"] if quick else [])]
    ended = subprocess.run(
        command,
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ended.stdout.splitlines()
    if not lines:
        sys.exit(f"benchmarks: {name} failed in {checkout}:\n{ended.stderr}")
    figures = json.loads(lines[-1])["figures"]
    return {figure["name"]: figure["value"] for figure in figures if figure["value"] is not None}
