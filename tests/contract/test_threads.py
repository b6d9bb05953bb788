"""A batch shared out among threads; on one of them while the others do not come."""

import pytest
import torch

from inout.kernels import threads


class SlowLibrary:
    """OpenMP whose threads come at once, or late; and the clock."""

    def __init__(self):
        self.calls, self.delay, self.now = 0, 0.0, 1.0

    def GOMP_parallel(self, task, data, count, flags):
        self.calls += 1
        task(data)
        self.now += self.delay


@pytest.fixture
def library(monkeypatch):
    made = SlowLibrary()
    monkeypatch.setattr(threads._Alone, "until", 0.0)
    monkeypatch.setattr(threads._Alone, "pause", 100.0)
    monkeypatch.setattr(threads, "perf_counter", lambda: made.now)
    monkeypatch.setattr(threads, "_openmp", lambda: made)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    return made


def _covered(work):
    done = []
    threads.over_batch(lambda low, high: done.extend(range(low, high)), 4, work)
    return sorted(done) == [0, 1, 2, 3]


def test_small_work_stays_on_one_thread(library):
    assert _covered(10_000)
    assert library.calls == 0


def test_short_work_stays_on_one_thread_after_the_second_was_slow(library):
    library.delay = 0.05
    assert _covered(1_000_000)
    assert library.calls == 1
    assert _covered(1_000_000)
    assert library.calls == 1
    assert _covered(threads.SHORT)  # worth a wait
    assert library.calls == 2
    library.now += 1000  # seconds
    assert _covered(1_000_000)
    assert library.calls == 3


def test_pauses_grow_while_the_second_thread_is_slow(library):
    first, longest = threads.PAUSES
    threads._Alone.pause, library.delay = first, 0.01
    for pause in (first, 2 * first, 4 * first):
        assert _covered(1_000_000)
        assert threads._Alone.until == pytest.approx(library.now + pause)
        library.now += 1
    threads._Alone.pause = longest
    assert _covered(1_000_000)
    assert threads._Alone.pause == longest
    library.now, library.delay = library.now + 1, 0.0
    assert _covered(1_000_000)
    assert threads._Alone.pause == first
