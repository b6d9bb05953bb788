"""`compiled` and `inner`: how every compiled function of the package is made."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import cpu_target
from numba.extending import overload

from inout._core.cpu.caching import KernelCache


class _Linked(JITCodeLibrary):
    """Code that is only linked into other code, and only optimised there.

    By default numba optimises and compiles a function on its own, then again as part of each
    caller, and of each caller's caller.
    """

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    @property
    def codegen(self) -> Any:
        """A stand-in for the code generator, of which only one method is called."""
        return _NoObjects


class _NoObjects:
    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """Does nothing: compiled code refers to no objects."""


class _KernelCompiler(Compiler):
    """numba's compiler without garbage collection, which would walk over all of torch each time."""

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        collecting = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(func)
        finally:
            if collecting:
                gc.enable()


class _InnerCompiler(Compiler):
    def compile_extra(self, func: Callable[..., Any]) -> Any:
        self.state.library = _Linked(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


_INNER: dict[str, Any] = {
    "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True,
    "pipeline_class": _InnerCompiler,
}  # fmt: skip


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function at its first call and cache it on disk; releases the GIL."""
    if function is None:
        return lambda function: compiled(function, **options)
    dispatcher = njit(nogil=True, pipeline_class=_KernelCompiler, **options)(function)
    dispatcher._cache = KernelCache(function)
    return dispatcher


def inner(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """As `compiled`, for functions that only compiled code calls: skips the Python wrappers.

    The code becomes part of the callers, and is cached with them.
    """
    decorate = njit(**_INNER, **options)
    return decorate if function is None else decorate(function)


def inner_overload(stub: Callable[..., Any], **options: Any) -> Any:
    """numba's `overload` of a stub, compiled like `inner` functions."""
    made: Any = _INNER | options
    return overload(stub, strict=False, jit_options=made)


def load_compiler() -> None:
    """Make numba import what it otherwise imports with the first kernel."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
