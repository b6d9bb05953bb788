"""A function applied to each item on all cores, with results in order, as soon as possible."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from queue import Empty, Queue
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 8  # items per thread in progress


def begun(results: Iterator[R], items: object) -> Iterator[R]:
    """The results; where the items are all there, the first result is waited for already here."""
    if not isinstance(items, list):
        return results
    return chain(list(islice(results, 1)), results)


def in_threads(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """function(item) for every item, computed by threads, in the order of the items.

    Items are read by the caller's thread, a few ahead of the results: with a slow source, a
    result waits for the items after it (unlike with `in_order`).

    >>> list(in_threads(lambda n: n * n, range(5), threads=2))
    [0, 1, 4, 9, 16]
    """
    pool = ThreadPoolExecutor(threads)
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def in_order(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """function(item) for every item, computed by threads, in the order of the items.

    Items are read by a separate thread: with a slow source, such as a person typing, a result
    does not wait for the next item. An error while reading is raised after the results of the
    items before it.

    >>> list(in_order(lambda n: n * n, iter(range(5)), threads=2))
    [0, 1, 4, 9, 16]
    """
    waiting: Queue[tuple[T] | BaseException | None] = Queue(maxsize=AHEAD * threads)
    stopped = threading.Event()

    def read() -> None:
        end: BaseException | None = None
        try:
            for item in items:
                waiting.put((item,))
                if stopped.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 (raised again by whoever takes it)
            end = error
        waiting.put(end)

    threading.Thread(target=read, daemon=True).start()
    started: deque[Future[R]] = deque()
    end: BaseException | None = None
    with ThreadPoolExecutor(threads) as pool:
        try:
            reading = True
            while reading or started:
                while reading and len(started) < AHEAD * threads:
                    try:
                        # Wait for the next item only if there is nothing else to do.
                        found = waiting.get(block=not started)
                    except Empty:
                        break
                    if isinstance(found, tuple):
                        started.append(pool.submit(function, found[0]))
                    else:
                        reading, end = False, found
                if started:
                    yield started.popleft().result()
        finally:
            stopped.set()
            for future in started:
                future.cancel()
            # Lets a waiting reader stop.
            while not waiting.empty():
                waiting.get_nowait()
    if end is not None:
        raise end
