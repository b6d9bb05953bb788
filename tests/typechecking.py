"""Annotations of the package are checked in the tests, each call that is unlike the calls before.

jaxtyping's own hook checks every call, which takes longer than all the work that is tested. Here
a function is wrapped when it is first called, and a call is checked unless one with arguments of
the same types and shapes (and a result of the same type and shape) has been. Of functions called
thousands of times one call in OFTEN is looked at from then on.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, update_wrapper, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from inspect import isclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

import jaxtyping
import numpy as np
import torch
from jaxtyping import config, install_import_hook
from torch import Tensor

# An int where a float is wanted is fine, as it is for mypy.
TYPECHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"

MANY, OFTEN = 2000, 16

_every_call = jaxtyping.jaxtyped


class UncheckedKernels(MetaPathFinder):
    """Finds compiled modules ahead of the type-checking hook: what it makes does not compile."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parts = fullname.split(".")
        compiled = parts[0] == "inout" and parts[-2:-1] in (["cpu"], ["gpu"])
        if compiled and not parts[-1].endswith(("passes", "chart")):
            return PathFinder.find_spec(fullname, path, target)
        return None


def check_annotations() -> None:
    """Check them in all modules of the package that are imported from now on."""
    jaxtyping.jaxtyped = _unlike_calls
    install_import_hook("inout", TYPECHECKER)
    sys.meta_path.insert(0, UncheckedKernels)


def _unlike_calls(thing: Any = None, *, typechecker: Any) -> Any:
    """What jaxtyping's hook puts before every function and class, instead of its own decorator."""
    again = partial(_unlike_calls, typechecker=typechecker)
    if thing is None:
        return again
    if isclass(thing):
        # Dataclasses only: their __init__ is no function that the hook sees.
        if "__dataclass_fields__" in vars(thing) and "__init__" in vars(thing):
            thing.__init__ = again(thing.__init__)  # type: ignore[misc]
        return thing
    if isinstance(thing, classmethod | staticmethod):
        return type(thing)(again(thing.__func__))
    if isinstance(thing, property):
        parts = (thing.fget, thing.fset, thing.fdel)
        return property(*(part and again(part) for part in parts), thing.__doc__)
    return _checked(thing, typechecker) if set(thing.__annotations__) - {"return"} else thing


@dataclass
class _Seen:
    """The calls of one function that have been checked; of an inner function, of all its copies."""

    calls: int = 0
    results: dict[Any, set[Any]] = field(default_factory=dict)  # their kinds by those of arguments
    checker: list[Callable[..., Any]] = field(default_factory=list)  # made at the first call
    waiting: threading.local = field(default_factory=threading.local)

    def call(
        self, inner: Callable[..., Any], like: Callable[..., Any], typechecker: Any, given: Any
    ) -> Any:
        """What `inner` makes of the arguments `given`, all of them checked as for `like`."""
        if not self.checker:
            self.checker.append(_every_call(self.twin(like), typechecker=typechecker))
        arguments, named = given
        self.waiting.function = inner
        # beartype looks at random items of lists, and hypothesis minds who draws at random.
        state = random.getstate()
        try:
            return self.checker[0](*arguments, **named)
        finally:
            random.setstate(state)

    def twin(self, like: Callable[..., Any]) -> Callable[..., Any]:
        """A function with the annotations of `like` that calls whatever function is waiting."""
        waiting = self.waiting

        def answer(*arguments: Any, **named: Any) -> Any:
            return waiting.function(*arguments, **named)

        code, closure = answer.__code__, answer.__closure__
        twin = FunctionType(code, like.__globals__, answer.__name__, None, closure)
        return update_wrapper(twin, like)


# Equal code alone is not enough: dataclasses with the same fields have equal __init__.
_numbers: dict[tuple[str, str, CodeType], int] = {}
_seen: list[_Seen] = []


def _checked(function: Callable[..., Any], typechecker: Any) -> Callable[..., Any]:
    """`function`, its annotations checked where a call is unlike those before."""
    name = function.__module__, function.__qualname__, function.__code__
    # A number, since torch.compile traces through functions, and what they close over.
    number = _numbers.setdefault(name, len(_seen))
    if number == len(_seen):
        _seen.append(_Seen())

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        if config.jaxtyping_disable or torch.compiler.is_compiling():
            return function(*arguments, **named)
        seen = _seen[number]
        seen.calls += 1
        if seen.calls > MANY and seen.calls % OFTEN:
            return function(*arguments, **named)
        kinds: Any = tuple([_kind(argument) for argument in arguments])
        if named:
            kinds = kinds, tuple([(name, _kind(value)) for name, value in named.items()])
        known = seen.results.get(kinds)
        if known is None:
            result = seen.call(function, function, typechecker, (arguments, named))
            seen.results[kinds] = {_kind(result)}
            return result
        result = function(*arguments, **named)
        kind = _kind(result)
        if kind not in known:
            seen.call(lambda *_, **__: result, function, typechecker, (arguments, named))
            known.add(kind)
        return result

    return call


def _kind(value: Any) -> Any:
    """What an annotation may ask of `value`: hashable, and quick to make."""
    kind = type(value)
    if isinstance(value, Tensor):
        return kind, value.dtype, value.shape
    if kind is np.ndarray:
        return value.dtype, value.shape
    if kind is tuple:
        return tuple([_kind(part) for part in value[:8]])
    if kind is list:
        return kind, _kind(value[0]) if value else None
    if kind is dict:
        return kind, tuple([(_kind(key), _kind(part)) for key, part in value.items()][:1])
    return kind
