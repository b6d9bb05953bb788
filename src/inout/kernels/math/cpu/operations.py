"""`operation`: functions of compiled code that do what the type of their first argument says.

A loop that exists for several kinds of numbers is written once, with operations in it. numba
chooses among their implementations when it compiles the loop: nothing is chosen at run time, and
the compiled code can be cached, which closures over compiled functions would prevent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inout._core.cpu.compiling import inner_overload

Function = Callable[..., Any]


def operation(*types: type, **options: Any) -> Callable[[Function], Any]:
    """Makes an operation of a function, which implements it for these NamedTuple types.

    `on(types)` of the operation implements it for others. `options` are those of `inner_overload`,
    and numba's, such as `fastmath`.
    """
    implementations: dict[type, Function] = {}

    def on(*types: type) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            implementations.update(dict.fromkeys(types, function))
            return function

        return register

    def make(function: Any) -> Any:
        # Inlined: most are a few instructions, in the innermost loops.
        @inner_overload(function, forceinline=True, **options)
        def choose(first: Any, *rest: Any) -> Any:
            return implementations.get(getattr(first, "instance_class", type(None)))

        function.on = on
        return on(*types)(function)

    return make
