"""Problems solved in parallel processes, which leave compiled kernels in the cache."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from importlib import import_module
from typing import Any

from inout.cli.warmup.problems import COMMANDS, Problem

Done = Callable[[int, int], None]
_finished: Any  # in a worker: the number of problems solved by all of them


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def solve_all(groups: Sequence[Sequence[Problem]], done: Done, need_torch: bool = True) -> None:
    """Solve the problems in a process per core; calls done(finished, total) as they end.

    The problems of a group share code, which a process compiles once. So one process solves them
    all, unless that would leave cores idle. Processes are forked, so that none imports again what
    they need: numba, and torch unless most of them do without. Then this process imports torch
    meanwhile.
    """
    from inout._core.cpu.compiling import load_compiler

    load_compiler()
    if need_torch:
        _import_torch()
    total = sum(map(len, groups))
    if len(groups) < 2 * cores():
        groups = [(problem,) for group in groups for problem in group]
    fork = multiprocessing.get_context("fork")
    finished = fork.Value("i", 0)
    shown = 0
    done(shown, total)
    with ProcessPoolExecutor(min(cores(), len(groups)), fork, _begin, (finished,)) as pool:
        running = {pool.submit(_solve, group) for group in groups}
        _import_torch()
        while running:
            ended, running = wait(running, timeout=0.1)
            for future in ended:
                future.result()
            while shown < finished.value:
                shown += 1
                done(shown, total)


def prepare(command: str, done: Done) -> None:
    """Compile in parallel what a command will need, unless little is missing.

    Everything else is compiled when first called.
    """
    if cores() == 1:
        return
    missing = [problem for problem, kernel in COMMANDS[command] if not _is_kept(kernel)]
    if len(missing) > 1:
        solve_all([(problem,) for problem in missing], done, need_torch=False)


def _is_kept(kernel: str) -> bool:
    module, _, name = kernel.rpartition(".")
    kept: bool = getattr(import_module(f"inout.kernels.{module}"), name)._cache.is_kept
    return kept


def _import_torch() -> None:
    import inout.grammars.parser.parser  # noqa: F401


def _begin(finished: Any) -> None:
    """Set up a new process: one thread, no output, silent on Ctrl-C, a count of what it solves."""
    global _finished
    _finished = finished
    os.environ["OMP_NUM_THREADS"] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)


def _solve(group: Sequence[Problem]) -> None:
    for problem in group:
        problem()
        with _finished:
            _finished.value += 1
