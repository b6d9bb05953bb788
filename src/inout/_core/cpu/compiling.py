"""`compiled` and `inner`: how every compiled function of the package is made."""

from __future__ import annotations

import builtins
import gc
from collections.abc import Callable
from dis import get_instructions
from functools import cached_property
from types import ModuleType
from typing import Any

from numba import njit, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.registry import cpu_target
from numba.extending import overload

from inout._core.cpu.caching import KernelCache, making


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


class _FixedFlags(Flags):
    """numba's options of a function, hashed once; numba would do so for each call it compiles."""

    def __hash__(self) -> int:
        return self._hash

    def values(self) -> dict[str, Any]:
        """All options."""
        return self._kept

    @cached_property
    def _kept(self) -> dict[str, Any]:
        kept: dict[str, Any] = super().values()
        return kept

    @cached_property
    def _hash(self) -> int:
        return int(super().__hash__())


class _CheckedCompiler(Compiler):
    """numba's compiler. Refuses a function that gets or returns arrays, but counts no references.

    Its caller, or what it calls, does count them: memory would be freed too early, or never.
    """

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        self.state.flags = _FixedFlags(self.state.flags)
        result = super().compile_extra(func)
        found = [self.state.return_type]
        found += [
            signature.return_type
            for call, signature in self.state.calltypes.items()
            if getattr(call, "op", None) == "call"
            and isinstance(self.state.typemap[call.func.name], types.Dispatcher)
        ]
        if not self.state.flags.nrt and any(map(_holds_arrays, found)):
            raise TypeError(f"{func.__qualname__} must be defined with returns_arrays=True")
        return result


def _holds_arrays(kind: Any) -> bool:
    """Whether values of a type are arrays, or tuples with arrays in them."""
    parts = getattr(kind, "types", ())  # of a tuple
    return isinstance(kind, types.Array) or any(map(_holds_arrays, parts))


class _KernelCompiler(_CheckedCompiler):
    """The same for a function with machine code of its own; all that it calls is only linked.

    Without garbage collection, which would walk over all of torch each time.
    """

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        codegen = self.state.targetctx.codegen()
        self.state.library = JITCodeLibrary(codegen, func.__qualname__)
        self.state.library.enable_object_caching()
        collecting = gc.isenabled()
        gc.disable()
        try:
            with making(_Linked, codegen):  # of numba's own functions
                return super().compile_extra(func)
        finally:
            if collecting:
                gc.enable()


class _InnerCompiler(_CheckedCompiler):
    def compile_extra(self, func: Callable[..., Any]) -> Any:
        self.state.library = _Linked(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


_KERNEL: dict[str, Any] = {"no_cfunc_wrapper": True, "pipeline_class": _KernelCompiler}
_INNER: dict[str, Any] = {
    "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _InnerCompiler,
}  # fmt: skip


# What makes arrays is known by these names.
_MAKERS = {
    *("empty", "empty_like", "zeros", "zeros_like", "full", "full_like", "ones", "array", "arange"),
    *("copy", "astype", "ascontiguousarray", "dot", "where", "concatenate", "repeat", "ravel"),
}


def _makes_arrays(function: Callable[..., Any]) -> bool:
    """Whether a function makes arrays, or calls one that does, or one that is defined below it."""
    names = function.__code__.co_names
    called = {step.argval for step in get_instructions(function) if step.opname == "LOAD_GLOBAL"}
    known = [function.__globals__.get(name, vars(builtins).get(name)) for name in called]
    known += [vars(x)[n] for x in known if isinstance(x, ModuleType) for n in names if n in vars(x)]
    return not _MAKERS.isdisjoint(names) or any(
        one is None or getattr(one, "targetoptions", {}).get("_nrt", False) for one in known
    )


def _decorate(function: Any, options: dict[str, Any], returns_arrays: bool) -> Any:
    counts: Any = {"_nrt": returns_arrays or _makes_arrays(function)}
    return njit(nogil=True, **counts, **options)(function)


def compiled(function: Any = None, *, returns_arrays: bool = False, **options: Any) -> Any:
    """Compile a function at its first call and cache it on disk; releases the GIL.

    References to arrays are counted only where arrays are made, by the function itself or by what
    it calls, or where it `returns_arrays` that it was given: counting is slow, and slow to compile.
    """
    if function is None:
        return lambda function: compiled(function, returns_arrays=returns_arrays, **options)
    dispatcher = _decorate(function, _KERNEL | options, returns_arrays)
    dispatcher._cache = KernelCache(function)
    return dispatcher


def inner(function: Any = None, *, returns_arrays: bool = False, **options: Any) -> Any:
    """As `compiled`, for functions that only compiled code calls: skips the Python wrappers.

    The code becomes part of the callers, and is cached with them.
    """
    if function is None:
        return lambda function: inner(function, returns_arrays=returns_arrays, **options)
    return _decorate(function, _INNER | options, returns_arrays)


def inner_overload(stub: Any, *, makes_arrays: bool = False, **options: Any) -> Any:
    """numba's `overload` of a stub, compiled like `inner` functions."""
    stub.targetoptions = {"_nrt": makes_arrays}  # as a compiled function would have
    made: Any = {"nogil": True, "_nrt": makes_arrays} | _INNER | options
    return overload(stub, strict=False, jit_options=made)


def load_compiler() -> None:
    """Make numba import what it otherwise imports with the first kernel."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
