"""Alternating runs of several ways to do the same, and their medians."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any


def alternate(
    ways: Mapping[str, Callable[[], Any]], repeats: int, warm_up: bool = True
) -> dict[str, float]:
    """The median wall-clock seconds of each way, over `repeats` rounds of all of them in turn.

    Taking turns lets a slow spell of the machine fall on everyone. Garbage is collected between
    the runs, not during them. `warm_up` runs each once before, for compilation and caches.
    """
    if warm_up:
        for way in ways.values():
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            gc.collect()
            gc.disable()
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
            gc.enable()
    return {name: median(taken) for name, taken in seconds.items()}
