"""Joins of integer columns against nested loops, in numpy and in polars."""

from __future__ import annotations

import numpy as np
import pytest

from inout.deduction import engine
from inout.deduction.facts import FIRST_PAIR, FIRST_STRING

# Ranges of key columns: dense, sparse, and so wide that three do not fit into one integer.
RANGES = {
    "dense": (0, 5),
    "negative": (-3, 3),
    "strings": (FIRST_STRING, FIRST_STRING + 4),
    "sparse": (0, 10**9),
}


def nested_loops(left: list[np.ndarray], right: list[np.ndarray]) -> list[tuple[int, int]]:
    return [
        (i, j)
        for i in range(len(left[0]))
        for j in range(len(right[0]))
        if all(a[i] == b[j] for a, b in zip(left, right, strict=True))
    ]


@pytest.mark.parametrize("large", [engine.LARGE, -1], ids=["numpy", "polars"])
@pytest.mark.parametrize("columns", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", RANGES)
def test_matches_are_those_of_nested_loops(
    monkeypatch: pytest.MonkeyPatch, large: int, columns: int, kind: str
) -> None:
    monkeypatch.setattr(engine, "LARGE", large)
    rng = np.random.default_rng(columns)
    for num_left, num_right in [(0, 3), (3, 0), (1, 1), (40, 30), (7, 200)]:
        # Few distinct values, so that there are matches also where the range is wide.
        values = rng.integers(*RANGES[kind], size=4)
        left = [rng.choice(values, num_left) for _ in range(columns)]
        right = [rng.choice(values, num_right) for _ in range(columns)]
        found = engine.match_rows(left, right, limit=10**6)
        assert list(zip(*(x.tolist() for x in found), strict=True)) == nested_loops(left, right)


def test_keys_too_wide_for_one_integer_are_renumbered() -> None:
    wide = np.array([0, FIRST_STRING, FIRST_PAIR + 10**9])
    left = [np.tile(wide, 9), np.tile(np.repeat(wide, 3), 3), np.repeat(wide, 9)]
    right = [column[::-1] for column in left]
    found = engine.match_rows(left, right, limit=100)
    assert list(zip(*(x.tolist() for x in found), strict=True)) == [(i, 26 - i) for i in range(27)]


@pytest.mark.parametrize("large", [engine.LARGE, -1], ids=["numpy", "polars"])
def test_the_limit_stops_a_join_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(engine, "LARGE", large)
    ones = np.ones(100_000, dtype=np.int64)
    with pytest.raises(engine.JoinTooLargeError) as caught:
        engine.match_rows([ones], [ones], limit=10**6)
    assert caught.value.rows == 10**10
    with pytest.raises(engine.JoinTooLargeError):
        engine.all_pairs(1000, 1001, limit=10**6)


def test_all_pairs() -> None:
    left, right = engine.all_pairs(2, 3, limit=6)
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == [
        (i, j) for i in range(2) for j in range(3)
    ]
