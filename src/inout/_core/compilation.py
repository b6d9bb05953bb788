"""Listeners for the compilation of kernels. Imports nothing heavy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG = logging.getLogger("inout")
_watchers: list[Callable[[str], None]] = []


@contextmanager
def watching(started: Callable[[str], None]) -> Iterator[None]:
    """Call `started` with the name of each function before it is compiled in this context."""
    _watchers.append(started)
    try:
        yield
    finally:
        _watchers.remove(started)


def tell(name: str) -> None:
    """Tell all listeners that a function of this name is about to be compiled."""
    _LOG.info("compiling %s", name)
    for started in tuple(_watchers):
        started(name)
