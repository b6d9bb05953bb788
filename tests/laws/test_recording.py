"""The shelf of recordings: who may have one, and what is kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from inout.kernels.recording import Shelf


def test_nothing_is_made_the_first_time_and_one_user_has_it_at_a_time() -> None:
    shelf: Shelf[list[int]] = Shelf(most=2)
    assert shelf.take("a", list) is None
    first, second = shelf.take("a", list), shelf.take("a", list)
    assert first is not None
    assert second is not None
    assert first is not second
    assert shelf.take("a", list) is None  # two are lent
    shelf.give_back("a", first)
    assert shelf.take("a", list) is first


def test_the_latest_are_kept() -> None:
    shelf: Shelf[list[str]] = Shelf(most=2)
    for key in "abc":
        shelf.take(key, lambda: [""])
        owned = shelf.take(key, lambda key=key: [key])  # type: ignore[misc]
        assert owned is not None
        shelf.give_back(key, owned)
    assert shelf.take("c", lambda: ["new"]) == ["c"]
    assert shelf.take("a", lambda: ["new"]) == ["new"]


def test_a_failure_lends_nothing() -> None:
    shelf: Shelf[list[int]] = Shelf(most=1)
    shelf.take("a", list)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            shelf.take("a", lambda: [1 // 0])
    assert shelf.take("a", list) == []


def test_many_threads() -> None:
    shelf: Shelf[list[int]] = Shelf(most=4)

    def use(number: int) -> None:
        for k in range(200):
            key = (number + k) % 7
            if (owned := shelf.take(key, list)) is not None:
                shelf.give_back(key, owned)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    assert shelf._lent == 0
