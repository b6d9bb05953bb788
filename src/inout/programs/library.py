"""The programs of this folder: their names, texts and descriptions."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from inout._core.errors import ArgumentError

if TYPE_CHECKING:
    from inout.deduction import Program

SUFFIX = ".dyna"
PACKAGE = "inout.programs"


@cache
def names() -> tuple[str, ...]:
    """The names of all programs, in alphabetical order.

    >>> "cnf_inside" in names()
    True
    """
    entries = (entry.name for entry in files(PACKAGE).iterdir())
    return tuple(sorted(e.removesuffix(SUFFIX) for e in entries if e.endswith(SUFFIX)))


def text(name: str) -> str:
    """The text of a program, its describing comment included.

    >>> print(text("crf_cfg").splitlines()[-1])
    beta(X,I,K) += binary(X,Y,Z,I,J,K) * beta(Y,I,J) * beta(Z,J,K), I < J, J < K.
    """
    if name not in names():
        close = get_close_matches(name, names(), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names())}"
        raise ArgumentError("name", f": no program is called {name!r}; {hint}")
    return (files(PACKAGE) / f"{name}{SUFFIX}").read_text(encoding="utf-8")


def describe(name: str) -> str:
    """What a program computes, the facts it needs, its items, its cost and its papers.

    This is the comment at the top of its file.

    >>> print(describe("crf_cfg").splitlines()[0])
    Conditional random field over the trees of a grammar in Chomsky normal form (CRF-CFG).
    """
    lines = []
    for line in text(name).splitlines():
        if not line.startswith("%"):
            break
        lines.append(line.removeprefix("%").removeprefix(" "))
    return "\n".join(lines)


@cache
def load(name: str) -> Program:
    """The program called `name`, parsed once and kept; `ArgumentError` if there is none.

    >>> load("cnf_inside").inputs
    {'start': (1,), 'length': (1,), 'rule': (2, 3), 'word': (3,)}
    """
    from inout.deduction import Program  # which imports torch

    return Program(text(name), source=f"{name}{SUFFIX}")
