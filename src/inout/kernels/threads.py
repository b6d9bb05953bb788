"""Running a kernel over parts of a batch in threads; kernels release the interpreter lock.

The threads are those of torch's own OpenMP, if it has one. After each operation torch's threads
spin for about a millisecond, waiting for more work: a separate pool would compete with them for
the cores just when a model's layers and our kernels take turns.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import get_ident
from time import perf_counter, thread_time
from typing import Any

# Where another process holds a core, the caller waits for a thread that does not run, for much
# longer than the work takes. Short work then stays on one thread for a while, each time twice as
# long: a single late thread is chance. Longer work gains more from a second thread than it may
# lose.
SHORT = 20_000_000  # elementary operations
PAUSES = 0.01, 0.5  # seconds, the first and the longest
PATIENCE = 0.5e-3  # seconds, besides what the caller would have needed alone


class _Alone:
    """When one thread is enough."""

    until = 0.0
    pause = PAUSES[0]


_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="inout")


@cache
def _openmp() -> Any | None:
    """GNU OpenMP as torch has loaded it, or None."""
    for path in (Path(sys.modules["torch"].__file__ or "").parent / "lib").glob("libgomp*.so*"):
        try:
            library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:  # there, but not what torch uses
            continue
        break
    else:
        return None
    library.GOMP_parallel.argtypes = [_TASK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    library.GOMP_parallel.restype = None
    return library


def _after_fork() -> None:
    """A forked process has none of its parent's threads: waiting for them would deadlock."""
    global _openmp
    _pool.cache_clear()
    _openmp = lambda: None  # type: ignore[assignment]  # noqa: E731


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def over_batch(part: Callable[[int, int], None], size: int, work: int) -> None:
    """Calls part(lo, hi) for consecutive ranges that cover 0..size, one for each torch thread.

    `work` is the number of elementary operations in all: below a few ten thousand, starting
    threads would cost more than it saves.
    """
    if size == 0:
        return
    torch = sys.modules.get("torch")  # without it, as when compiling ahead, one thread is enough
    threads = min(torch.get_num_threads() if torch else 1, size, 1 + work // 50_000)
    start = perf_counter()
    if threads <= 1 or (work < SHORT and start < _Alone.until):
        part(0, size)
        return
    bounds = [size * k // threads for k in range(threads + 1)]
    openmp = _openmp()
    if openmp is None:
        # The caller's thread takes the first range itself.
        others = [_pool(threads).submit(part, bounds[k], bounds[k + 1]) for k in range(1, threads)]
        part(0, bounds[1])
        for other in others:
            other.result()
        return
    failures: list[BaseException] = []
    caller, own = get_ident(), 0.0
    busy = thread_time()
    ranges = pairwise(bounds)

    def task(_: int | None) -> None:
        nonlocal own
        for lo, hi in ranges:  # one, or more if OpenMP gives fewer threads than were asked for
            try:
                part(lo, hi)
            except BaseException as error:  # noqa: BLE001  # raised below, in the caller's thread
                failures.append(error)
        if get_ident() == caller:
            own = thread_time() - busy

    openmp.GOMP_parallel(_TASK(task), None, threads, 0)
    end = perf_counter()
    if end - start > threads * own + PATIENCE:
        _Alone.until = end + _Alone.pause
        _Alone.pause = min(2 * _Alone.pause, PAUSES[1])
    else:
        _Alone.pause = PAUSES[0]
    if failures:
        raise failures[0]


# Sums over a batch are made in this many groups, each by one thread, and then added up: so they do
# not depend on the number of threads.
GROUPS = 8


def groups(size: int) -> list[int]:
    """Bounds of the groups in which to add up a batch."""
    count = min(size, GROUPS)
    return [size * k // count for k in range(count + 1)] if count else [0]
