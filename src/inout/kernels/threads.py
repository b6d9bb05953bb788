"""Running a kernel over parts of a batch in threads; kernels release the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="inout")


# A forked process has none of its parent's threads: waiting for them would never end.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def over_batch(part: Callable[[int, int], None], size: int, work: int) -> None:
    """Calls part(lo, hi) for consecutive ranges that cover 0..size, one for each torch thread.

    `work` is the number of elementary operations in all: below a few ten thousand, starting
    threads would cost more than it saves.
    """
    threads = min(torch.get_num_threads(), size, 1 + work // 50_000)
    if threads <= 1:
        part(0, size)
        return
    bounds = [size * k // threads for k in range(threads + 1)]
    # The caller's thread takes the first range itself.
    others = [_pool(threads).submit(part, bounds[k], bounds[k + 1]) for k in range(1, threads)]
    part(0, bounds[1])
    for other in others:
        other.result()
