"""Peak memory of a chain's log Z and gradient, in a process of its own (Linux only)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks import problems
from benchmarks.forest.memory import _memory, _start_of_phase

ROOT = Path(__file__).parents[2]


def peak_over_potentials(b: int, n: int, s: int) -> float:
    """Bytes at the peak, potentials and gradients included, over the bytes of the potentials.

    Imports, compilation and the start of the threads come before.
    """
    script = (
        "import sys; from benchmarks.chain import memory; memory.probe(*map(int, sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, str(b), str(n), str(s)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def probe(b: int, n: int, s: int) -> None:
    """Print the ratio."""
    problems.chain(b, min(n, 16), s).gradient()
    at_first = _start_of_phase()
    problem = problems.chain(b, n, s)
    found = problem.gradient()
    peak = _memory("VmHWM") - at_first
    del found
    print(peak / problem.num_bytes)
