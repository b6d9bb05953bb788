"""The shelf of recordings: who may have one, and what is kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from inout.kernels.limits import RECORDING_PATIENCE
from inout.kernels.recording import Shelf, freeing


def test_nothing_is_made_the_first_time_and_one_user_has_it_at_a_time() -> None:
    shelf: Shelf[list[int]] = Shelf(most=2)
    assert shelf.take("a", list) is None
    first, second = shelf.take("a", list), shelf.take("a", list)
    assert first is not None
    assert second is not None
    assert first is not second
    assert shelf.take("a", list) is None  # two are lent
    shelf.give_back(first)
    assert shelf.take("a", list) is first


def use(shelf: Shelf[list[str]], key: str) -> bool:
    """Take one and give it back; whether there was one."""
    owned = shelf.take(key, lambda: [key])
    if owned is None:
        return False
    assert owned == [key]
    shelf.give_back(owned)
    return True


def test_what_is_used_by_turns_stays() -> None:
    shelf: Shelf[list[str]] = Shelf(most=2)
    found = [use(shelf, key) for _ in range(50) for key in "abc"]
    assert found == [False] * 3 + [True, True, False] * 49


def test_what_is_unused_for_long_makes_room() -> None:
    shelf: Shelf[list[str]] = Shelf(most=2)
    for key in "aabb":
        use(shelf, key)
    found = [use(shelf, "c") for _ in range(2 * RECORDING_PATIENCE + 5)]
    assert not any(found[: 2 * RECORDING_PATIENCE - 2])
    assert found[-1]
    assert use(shelf, "b")
    assert not use(shelf, "a")


def test_all_together_fit_the_room() -> None:
    shelf: Shelf[list[str]] = Shelf(100, lambda owned: len(owned[0]), lambda: 10)
    keys = ["a" * 4, "b" * 5, "c" * 2, "d" * 11]
    found = [use(shelf, key) for _ in range(3) for key in keys]
    assert found == [False] * 4 + [True, True, False, False] * 2
    while not use(shelf, "c" * 2):
        pass
    assert sum(kept.size for kept in shelf._free.values()) == 7  # "aaaa" was unused for longest


def test_what_is_lent_takes_room_as_well() -> None:
    shelf: Shelf[list[str]] = Shelf(100, lambda owned: len(owned[0]), lambda: 10)
    shelf.take("aaaaaa", list)
    lent = shelf.take("aaaaaa", lambda: ["aaaaaa"])
    assert lent is not None
    assert not use(shelf, "bbbbb")
    assert not any(use(shelf, "bbbbb") for _ in range(3 * RECORDING_PATIENCE))
    shelf.give_back(lent)
    assert use(shelf, "aaaaaa")


def test_what_is_too_large_is_made_once() -> None:
    shelf: Shelf[int] = Shelf(2, lambda _: 11, lambda: 10)
    made: list[int] = []
    for _ in range(5):
        assert shelf.take("a", lambda: made.append(1) or 1) is None  # type: ignore[func-returns-value]
    assert len(made) == 1


def test_a_failure_lends_nothing() -> None:
    shelf: Shelf[list[int]] = Shelf(most=1)
    shelf.take("a", list)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            shelf.take("a", lambda: [1 // 0])
    assert shelf.take("a", list) == []


def short_of_memory() -> list[str]:
    raise torch.cuda.OutOfMemoryError("no more")


def test_what_does_not_fit_the_memory_is_done_without() -> None:
    shelf: Shelf[list[str]] = Shelf(most=2)
    shelf.take("a", short_of_memory)
    assert shelf.take("a", short_of_memory) is None
    assert shelf.take("a", lambda: ["not tried again"]) is None


def test_memory_is_freed_before_failing() -> None:
    shelf: Shelf[list[str]] = Shelf(most=2)
    for _ in range(2):
        use(shelf, "a")

    def hungry() -> int:
        return len(short_of_memory()) if shelf._free else 7

    assert freeing(hungry, shelf) == 7
    with pytest.raises(torch.cuda.OutOfMemoryError):
        freeing(short_of_memory, shelf)


def test_many_threads() -> None:
    shelf: Shelf[list[str]] = Shelf(most=4)

    def work(number: int) -> None:
        for k in range(200):
            use(shelf, "abcdefg"[(number + k) % 7])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert not shelf._lent
    assert len(shelf._free) == 4
