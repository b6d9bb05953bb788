"""Time and memory of a computation on the GPU."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

from benchmarks.problems import Problem
from inout.kernels.recording import SHELF

WARM_UP = 5
CACHE_BYTES = 256 * 2**20  # more than the second-level cache of any GPU


def synchronised(way: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Median seconds (on the wall clock, between events on the GPU), each run waited for.

    As in `triton.testing.do_bench`, the second-level cache is cleared before each run.
    """
    return in_turn({"": way}, repeats)[""]


def in_turn(ways: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, tuple[float, float]]:
    """The same for several ways, whose runs alternate."""
    for way in ways.values():
        for _ in range(WARM_UP):
            way()
    cache = torch.empty(CACHE_BYTES, dtype=torch.int8, device="cuda")
    wall: dict[str, list[float]] = {name: [] for name in ways}
    device: dict[str, list[float]] = {name: [] for name in ways}
    gc.collect()
    gc.disable()
    for _ in range(repeats):
        for name, way in ways.items():
            cache.zero_()
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start = time.perf_counter()
            before.record()
            way()
            after.record()
            torch.cuda.synchronize()
            wall[name].append(time.perf_counter() - start)
            device[name].append(before.elapsed_time(after) / 1e3)
    gc.enable()
    return {name: (median(wall[name]), median(device[name])) for name in ways}


def peak_bytes(problem: Problem) -> int:
    """The most memory that tensors take up during log Z and gradient.

    What other tensors hold at the start does not count; the problem's potentials do, and so does
    recording a grammar's passes, which is done anew.
    """
    SHELF.clear()
    gc.collect()
    torch.cuda.synchronize()
    others = torch.cuda.memory_allocated() - problem.num_bytes
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        problem.gradient()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - others
