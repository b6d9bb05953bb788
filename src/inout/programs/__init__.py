"""Inside algorithms of well-known models as deduction programs, and helpers for their facts.

Each program is a text file `<name>.dyna` in this folder: `names()` lists them, `describe(name)`
says what one computes and which facts it needs, `load(name)` (or `inout.programs.<name>`) gives
the `Program`.
"""

from __future__ import annotations

from typing import Any

from inout._core.lazy import lazy_package
from inout.programs.library import load, names

_exported, _, __all__ = lazy_package(__name__, __file__)


def __getattr__(name: str) -> Any:
    """The program called `name`: `inout.programs.earley` is `load("earley")`."""
    if name in __all__:
        return _exported(name)
    if name.startswith("_") or name not in names():
        raise AttributeError(f"module {__name__!r} has no attribute or program {name!r}")
    return load(name)


def __dir__() -> list[str]:
    return sorted([*__all__, *names()])
