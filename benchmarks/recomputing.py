"""Time and peak memory with `memory="sqrt"` beside the usual passes: on one thread."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from benchmarks import problems
from benchmarks.report import Figure
from benchmarks.resident import resident, start_of_phase
from inout import Forest, LinearChain

ROOT = Path(__file__).parents[1]


def batch(problem: str, shape: tuple[int, ...], repeats: int) -> Iterator[Figure]:
    """log Z and gradient of a function of `problems`."""
    name = f"{problem} {list(shape)}: "
    yield from _beside_usual(
        name, "potentials and gradients", "batch_probe", problem, shape, repeats
    )


def forest(n: int, s: int, repeats: int) -> Iterator[Figure]:
    """Expected counts of the forest of a chain."""
    name = f"forest of a chain {[n, s]}, expected counts: "
    yield from _beside_usual(name, "weights and counts", "forest_probe", n, s, repeats)


def _beside_usual(name: str, besides: str, *call: object) -> Iterator[Figure]:
    *probe, repeats = call
    assert isinstance(repeats, int)
    runs = [(_run(*probe, None), _run(*probe, "sqrt")) for _ in range(repeats)]
    usual, little = zip(*runs, strict=True)
    peaks = [max(size for _, size in way) / 2**20 for way in (usual, little)]
    seconds = [statistics.median(taken for taken, _ in way) for way in (usual, little)]
    peak = f"peak memory besides {besides}"
    yield Figure(name + peak, peaks[0], "MiB", repeats=repeats)
    name += 'memory="sqrt", '
    yield Figure(name + peak, peaks[1], "MiB", at_most=peaks[0] / 3, repeats=repeats)
    ratio = seconds[1] / seconds[0]
    yield Figure(f"{name}time / usual", ratio, "times", at_most=1.6, repeats=repeats)


def _run(function: object, *arguments: object) -> tuple[float, float]:
    """(seconds, bytes) that a function of this module prints in a process of its own."""
    script = f"from benchmarks import recomputing; recomputing.{function}(*{arguments!r})"
    command, alone = [sys.executable, "-c", script], os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=alone, check=True, stdout=subprocess.PIPE, text=True
    )
    seconds, size = map(float, done.stdout.split())
    return seconds, size


def batch_probe(name: str, shape: tuple[int, ...], memory: str | None) -> None:
    """Print seconds of the processor and bytes besides potentials and gradients."""

    def of_shape(*sizes: int) -> problems.Problem:
        problem: problems.Problem = getattr(problems, name)(*sizes)
        return replace(problem, family=partial(problem.family, memory=memory))

    of_shape(*(min(size, 6) for size in shape)).gradient()  # compiles
    problem = of_shape(*shape)
    at_first, start = start_of_phase(), time.process_time()
    found = problem.gradient()
    print(time.process_time() - start, resident("VmHWM") - at_first - problem.num_bytes)
    del found


def forest_probe(n: int, s: int, memory: str | None) -> None:
    """Print seconds, without the cut into blocks, which is kept, and bytes besides weights."""

    def of_length(length: int) -> Forest:
        generator = torch.Generator().manual_seed(0)
        emissions, transitions = (
            torch.randn(shape, generator=generator, dtype=torch.float64)
            for shape in ((length, s), (s, s))
        )
        return LinearChain(emissions, transitions).forest().with_memory(memory)

    of_length(10).expected_counts()  # compiles
    made = of_length(n)
    at_first = start_of_phase()
    made.expected_counts()
    growth = resident("VmHWM") - at_first
    start = time.process_time()
    made.expected_counts()
    print(time.process_time() - start, growth - 16 * made.num_items)
