"""Peak memory of a chain's log Z and gradient, in a process of its own (Linux only)."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks import problems
from benchmarks.resident import resident, start_of_phase
from inout import LinearChain

ROOT = Path(__file__).parents[2]


def peak_over_potentials(b: int, n: int, s: int) -> float:
    """Bytes at the peak, potentials and gradients included, over the bytes of the potentials.

    Imports, compilation and the start of the threads come before.
    """
    return float(_printed("probe", b, n, s))


def _printed(function: str, *arguments: object) -> str:
    """What a function of this module prints in a process of its own."""
    script = f"from benchmarks.chain import memory; memory.{function}(*{arguments!r})"
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def long_chain(n: int, s: int, memory: str | None) -> tuple[float, float]:
    """(seconds, bytes besides the potentials) of log Z and its gradient; transitions are shared."""
    seconds, size = _printed("long_probe", n, s, memory).split()
    return float(seconds), float(size)


def long_probe(n: int, s: int, memory: str | None) -> None:
    """Print them."""
    generator = torch.Generator().manual_seed(0)
    transitions = torch.randn(s, s, generator=generator).requires_grad_()

    def gradient(emissions: torch.Tensor) -> None:
        log_z = LinearChain(emissions, transitions, memory=memory).log_partition().sum()
        torch.autograd.grad(log_z, (emissions, transitions))

    gradient(torch.zeros(1, 100, s, requires_grad=True))
    emissions = torch.randn(1, n, s, generator=generator).requires_grad_()
    at_first, start = start_of_phase(), time.perf_counter()
    gradient(emissions)
    print(time.perf_counter() - start, resident("VmHWM") - at_first)


def probe(b: int, n: int, s: int) -> None:
    """Print the ratio."""
    problems.chain(b, min(n, 16), s).gradient()
    at_first = start_of_phase()
    problem = problems.chain(b, n, s)
    found = problem.gradient()
    peak = resident("VmHWM") - at_first
    del found
    print(peak / problem.num_bytes)
