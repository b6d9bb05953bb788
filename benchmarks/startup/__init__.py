"""Workload `startup`: how long a first answer takes, warm and cold, and with a busy neighbour."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Agreement, Figure
from benchmarks.startup.neighbour import PROBLEMS, medians

ROOT = Path(__file__).parents[2]
COMMAND = ("-m", "inout")
PARSE = ("parse", "english", "--sentence", "I saw her duck")
SOLVE = (
    *("solve", "examples/cnf.dyna", "--facts", "rule=examples/english.tsv", "--probabilities"),
    *("--sentence", "time flies like an arrow"),
)
CHECK = ("check", "english")
TREE = "(S (NP (PRP she)) (VP (VBD ran)))\n"


@dataclass(frozen=True)
class State:
    """How often to run what is warm, and whether to leave out what takes minutes."""

    repeats: int
    quick: bool


@dataclass(frozen=True)
class Spent:
    """What a process and its children took, in seconds."""

    wall: float
    processor: float


def prepare(quick: bool) -> State:
    """Nothing but the size; what is warm is run once by the check."""
    return State(2 if quick else 7, quick)


def check(state: State) -> Iterator[Agreement]:
    """Every command that is timed ends well."""
    for name, arguments in (("parse", PARSE), ("check", CHECK)):
        done = _python(*COMMAND, *arguments)
        yield Agreement(f"exit code of inout {name}", done.returncode, 0)


def measure(state: State) -> Iterator[Figure]:
    """Processor times of warm commands, times of cold ones, ratios beside a busy neighbour."""
    yield from _warm(state)
    yield from _cold(state)
    yield from _beside_neighbour(state)


def _warm(state: State) -> Iterator[Figure]:
    libraries = _median(state, "-c", "import torch, numba")
    parse = _median(state, *COMMAND, *PARSE)
    yield Figure("import torch, numba", libraries, "s", repeats=state.repeats)
    yield Figure("parse, warm", parse, "s", repeats=state.repeats)
    ratio = parse / libraries
    yield Figure("parse / import", ratio, "times", at_most=1.5, repeats=state.repeats)
    seconds = _median(state, *COMMAND, *CHECK)
    yield Figure("check, warm", seconds, "s", at_most=1.2, repeats=state.repeats)
    with tempfile.TemporaryDirectory() as folder:
        trees = Path(folder) / "trees.mrg"
        trees.write_text(TREE, encoding="utf-8")
        seconds = _median(state, *COMMAND, "eval", str(trees), str(trees))
    yield Figure("eval, warm", seconds, "s", at_most=1.2, repeats=state.repeats)


def _cold(state: State) -> Iterator[Figure]:
    cases: list[tuple[str, tuple[str, ...], float]] = [("parse", PARSE, 10), ("solve", SOLVE, 7)]
    if not state.quick:
        cases += [("demo", ("demo", "--html", "PAGE"), 30), ("warmup", ("warmup",), 90)]
    for name, arguments, bound in cases:
        with tempfile.TemporaryDirectory() as folder:
            given = [f"{folder}/page.html" if word == "PAGE" else word for word in arguments]
            spent = _spent(*COMMAND, *given, cache=folder)
        yield Figure(f"{name}, cold", spent.wall, "s", at_most=bound)
        yield Figure(f"{name}, cold, all processors", spent.processor, "s")


def _beside_neighbour(state: State) -> Iterator[Figure]:
    quiet = medians(state.quick)
    with _spinning():
        busy = medians(state.quick)
    for name in PROBLEMS:
        yield Figure(f"{name}, quiet", 1e3 * quiet[name], "ms")
        ratio = busy[name] / quiet[name]
        yield Figure(f"{name}, busy / quiet", ratio, "times", at_most=3)


def _median(state: State, *arguments: str) -> float:
    """Processor seconds of Python with these arguments, after a run that is not counted."""
    _python(*arguments)
    return statistics.median(_spent(*arguments).processor for _ in range(state.repeats))


def _spent(*arguments: str, cache: str | None = None) -> Spent:
    before, start = _children(), time.perf_counter()
    done = _python(*arguments, cache=cache)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-500:]}")
    return Spent(time.perf_counter() - start, _children() - before)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _python(*arguments: str, cache: str | None = None) -> subprocess.CompletedProcess[str]:
    variables = os.environ | ({"NUMBA_CACHE_DIR": cache} if cache else {})
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # users keep what Python compiles
    line = [sys.executable, *arguments]
    return subprocess.run(line, cwd=ROOT, env=variables, capture_output=True, text=True)


@contextmanager
def _spinning() -> Iterator[None]:
    """Another process holds one of the cores meanwhile."""
    core = min(os.sched_getaffinity(0))
    pin: Callable[[], None] = lambda: os.sched_setaffinity(0, {core})  # noqa: E731
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=pin)
    try:
        yield
    finally:
        process.kill()
        process.wait()
