"""Inside algorithms of well-known models as deduction programs, and helpers that make facts.

Each program is a text file `<name>.dyna` in this folder: `names()` lists them, `describe(name)`
says what one computes and which facts it needs, `load(name)` (or `inout.programs.<name>`) gives
the `Program`.
"""

from inout.deduction import Program
from inout.programs.facts import brackets as brackets
from inout.programs.facts import earley_rules as earley_rules
from inout.programs.facts import sentence as sentence
from inout.programs.facts import sentence_pair as sentence_pair
from inout.programs.left_corner import left_corner_closure as left_corner_closure
from inout.programs.library import describe as describe
from inout.programs.library import load as load
from inout.programs.library import names as names
from inout.programs.library import text as text

__all__ = [
    "brackets",
    "describe",
    "earley_rules",
    "left_corner_closure",
    "load",
    "names",
    "sentence",
    "sentence_pair",
    "text",
]


def __getattr__(name: str) -> Program:
    """The program called `name`: `inout.programs.earley` is `load("earley")`."""
    if name.startswith("_") or name not in names():
        raise AttributeError(f"module {__name__!r} has no attribute or program {name!r}")
    return load(name)


def __dir__() -> list[str]:
    return sorted([*__all__, *names()])
