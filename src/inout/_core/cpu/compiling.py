"""`compiled` and `inner`: how every compiled function of the package is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from inout._core.cpu.caching import KernelCache


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compiles a function at its first call, and keeps the code on disk; releases Python's lock."""
    if function is None:
        return lambda function: compiled(function, **options)
    dispatcher = njit(nogil=True, **options)(function)
    dispatcher._cache = KernelCache(function)
    return dispatcher


def inner(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """As `compiled`, for what only compiled code calls: no wrappers, which take time to make.

    The code is part of its callers', and kept with them.
    """
    options |= {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    decorate = njit(**options)
    return decorate if function is None else decorate(function)
