"""Alternating runs of several ways to do the same, and their medians."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

# A way is called as often in a row as fits this many seconds, at least once: what takes less would
# be timed with caches that collecting the garbage has emptied.
IN_A_ROW = 0.03


def alternate(
    ways: Mapping[str, Callable[[], Any]],
    repeats: int,
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median seconds of each way, over `repeats` rounds of all of them in turn.

    Taking turns lets a slow spell of the machine fall on everyone. Garbage is collected between
    the runs, not during them. `warm_up` runs each once before, for compilation and caches.
    """
    calls = dict.fromkeys(ways, 1)
    if warm_up:
        for name, way in ways.items():
            way()
            calls[name] = max(1, int(IN_A_ROW / max(_seconds(way), 1e-9)))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            gc.collect()
            gc.disable()
            start = clock()
            for _ in range(calls[name]):
                way()
            seconds[name].append((clock() - start) / calls[name])
            gc.enable()
    return {name: median(taken) for name, taken in seconds.items()}


def closely(ways: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median seconds of each way, in turn, with nothing in between that clears the caches.

    For ways of milliseconds: collecting garbage takes longer than they do.
    """
    for _ in range(3):
        for way in ways.values():
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    gc.collect()
    gc.disable()
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    gc.enable()
    return {name: median(taken) for name, taken in seconds.items()}


def _seconds(way: Callable[[], Any]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start
