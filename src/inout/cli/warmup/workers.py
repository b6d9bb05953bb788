"""Problems solved in processes side by side, so that what they compile is there for all later."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module

from inout.cli.warmup.problems import COMMANDS, Problem

Done = Callable[[int, int], None]


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def solve_all(problems: Iterable[Problem], done: Done) -> None:
    """Solves the problems in a process for each core; done(how many, of how many) as they end.

    Processes are forked, so that none has to import torch and numba again.
    """
    _import_all()
    waiting = list(problems)
    fork = multiprocessing.get_context("fork")
    done(0, len(waiting))
    with ProcessPoolExecutor(min(cores(), len(waiting)), fork, _begin) as pool:
        running = [pool.submit(problem) for problem in waiting]
        for number, future in enumerate(as_completed(running), 1):
            future.result()
            done(number, len(waiting))


def prepare(command: str, done: Done) -> None:
    """Compiles in processes side by side what a command will need, unless little is missing.

    What is not compiled here is compiled where it is first called.
    """
    if cores() == 1:
        return
    missing = [problem for problem, kernel in COMMANDS[command] if not _is_kept(kernel)]
    if len(missing) > 1:
        solve_all(missing, done)


def _is_kept(kernel: str) -> bool:
    module, _, name = kernel.rpartition(".")
    kept: bool = getattr(import_module(f"inout.kernels.{module}"), name)._cache.is_kept
    return kept


def _import_all() -> None:
    """What every process needs, before there are several."""
    import torch  # noqa: F401

    import inout.grammars.parser.parser  # noqa: F401
    from inout._core.cpu.compiling import load_compiler

    load_compiler()


def _begin() -> None:
    """In a new process: one thread, no output, and Ctrl-C ends it without a word."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
