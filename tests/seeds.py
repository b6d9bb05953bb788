"""How much of a grid of tests runs: some of it by default, all of it with --exhaustive."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from zlib import crc32

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
    """The tests that this tier does not have.

    By default they are marked `exhaustive`, or are beyond `few(n)`, or belong to other classes'
    shares of a suite. Which of the cases of a test are among its few depends on its name alone.
    The exhaustive tier leaves out two thirds of the shared-out tests of variants.
    """
    if exhaustive:
        return {item for item in items if not _is_for_variant(item)}
    gone = set()
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("exhaustive") or not _is_in_share(item):
            gone.add(item)
        elif item.get_closest_marker("few"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, own in cases.items():
        marker = own[0].get_closest_marker("few")
        assert marker is not None
        few = min(marker.args[0], len(own))
        gone |= set(own) - set(Random(name).sample(own, few))
    return gone


def _is_in_share(item: pytest.Item) -> bool:
    """Whether the class of a test has it in the default tier.

    A suite of many families says `one_in = k`: each class that inherits it has one in k of its
    tests, and each of these runs in about one class in k. The marker `one_in(k)` says so of one
    test, and a class for a variant of a family of all its tests. Which they are depends on names
    alone.
    """
    own, name = getattr(item, "cls", None), getattr(item, "originalname", "")
    if own is None:
        return True
    suite = next(kind for kind in own.__mro__ if name in vars(kind))
    marker = item.get_closest_marker("one_in")
    k = marker.args[0] if marker else vars(suite).get("one_in", 1)
    if suite is not own:
        k *= vars(own).get("one_in", 1)
    return bool((crc32(name.encode()) + crc32(own.__name__.encode())) % k == 0)


def _is_for_variant(item: pytest.Item) -> bool:
    """Whether the class of a test has it in the exhaustive tier.

    A class that says `variant = True` is like another of its family but for its arguments: of the
    suites that share their tests out it has a third. Another class of the family has them all.
    """
    own, name = getattr(item, "cls", None), getattr(item, "originalname", "")
    if own is None or not vars(own).get("variant", False):
        return True
    suite = next(kind for kind in own.__mro__ if name in vars(kind))
    if suite is own or "one_in" not in vars(suite) or "variant" in vars(suite):
        return True
    return bool((crc32(name.encode()) + crc32(own.__name__.encode())) % 3 == 0)
