"""How much of a grid of tests runs: some of it by default, all of it with --exhaustive."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

# Seeds of a grid in the default tier. Three find nearly every fault that more seeds find: see
# tests/mutations, which checks that.
FEW = 3

# Set by tests/conftest.py before any module with tests is imported, also in workers.
exhaustive = False


def seeds(start: int, stop: int | None = None, *, few: int = FEW) -> range:
    """range(start) or range(start, stop); in the default tier its first `few` numbers."""
    whole = range(start) if stop is None else range(start, stop)
    return whole if exhaustive else whole[:few]


def examples(many: int) -> int:
    """How many examples hypothesis draws: `many`, a quarter of them in the default tier."""
    return many if exhaustive else max(many // 4, FEW)


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The tests that only the exhaustive tier has: marked `exhaustive`, or beyond `few(n)`.

    Which of the cases of a test are among its few depends on its name alone.
    """
    gone = set()
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("exhaustive"):
            gone.add(item)
        elif item.get_closest_marker("few"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, own in cases.items():
        marker = own[0].get_closest_marker("few")
        assert marker is not None
        few = min(marker.args[0], len(own))
        gone |= set(own) - set(Random(name).sample(own, few))
    return gone
