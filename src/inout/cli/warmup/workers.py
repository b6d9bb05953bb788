"""Problems solved in parallel processes, which leave compiled kernels in the cache."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module

from inout.cli.warmup.problems import COMMANDS, Problem

Done = Callable[[int, int], None]


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def solve_all(problems: Iterable[Problem], done: Done, need_torch: bool = True) -> None:
    """Solve the problems in a process per core; calls done(finished, total) as they end.

    Processes are forked, so that none imports again what they need: numba, and torch unless most
    of them do without. Then this process imports torch meanwhile.
    """
    from inout._core.cpu.compiling import load_compiler

    load_compiler()
    if need_torch:
        _import_torch()
    waiting = list(problems)
    fork = multiprocessing.get_context("fork")
    done(0, len(waiting))
    with ProcessPoolExecutor(min(cores(), len(waiting)), fork, _begin) as pool:
        running = [pool.submit(problem) for problem in waiting]
        _import_torch()
        for number, future in enumerate(as_completed(running), 1):
            future.result()
            done(number, len(waiting))


def prepare(command: str, done: Done) -> None:
    """Compile in parallel what a command will need, unless little is missing.

    Everything else is compiled when first called.
    """
    if cores() == 1:
        return
    missing = [problem for problem, kernel in COMMANDS[command] if not _is_kept(kernel)]
    if len(missing) > 1:
        solve_all(missing, done, need_torch=False)


def _is_kept(kernel: str) -> bool:
    module, _, name = kernel.rpartition(".")
    kept: bool = getattr(import_module(f"inout.kernels.{module}"), name)._cache.is_kept
    return kept


def _import_torch() -> None:
    import inout.grammars.parser.parser  # noqa: F401


def _begin() -> None:
    """Set up a new process: one thread, no output, silent on Ctrl-C."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
