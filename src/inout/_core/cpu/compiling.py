"""`compiled`: how every compiled function of the package is made, with its place in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compiles a function at its first call, and keeps the code on disk; releases Python's lock."""
    decorate = njit(cache=True, nogil=True, **options)
    return decorate if function is None else decorate(function)


def inner(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """As `compiled`, for what only compiled code calls: no wrappers, which take time to make.

    The code is part of its callers', and kept with them.
    """
    options |= {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    decorate = njit(**options)
    return decorate if function is None else decorate(function)
