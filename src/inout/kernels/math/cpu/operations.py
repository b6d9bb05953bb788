"""`operation`: functions of compiled code that do what the type of their first argument says.

A loop that exists for several kinds of numbers is written once, with operations in it. numba
chooses among their implementations when it compiles the loop: nothing is chosen at run time, and
the compiled code can be cached, which closures over compiled functions would prevent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inout._core.cpu.compiling import inner_overload


def operation(stub: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Makes an operation of a stub; `stub.on(types)` implements it for some NamedTuple types.

    `options` are those of `inner_overload`, and numba's, such as `fastmath`.
    """
    if stub is None:
        return lambda stub: operation(stub, **options)
    implementations: dict[type, Callable[..., Any]] = {}

    def on(*types: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            implementations.update(dict.fromkeys(types, function))
            return function

        return register

    # Inlined: most are a few instructions, in the innermost loops.
    @inner_overload(stub, forceinline=True, **options)
    def choose(first: Any, *rest: Any) -> Any:
        return implementations.get(getattr(first, "instance_class", type(None)))

    stub.on = on  # type: ignore[attr-defined]
    return stub
