"""A grammar of English and sentences for it, written for this package.

`english` is a PCFG of everyday English; `corpus` has sentences to train a grammar on, and
`ambiguous` some ambiguous ones. `english` has a tree for every one of them.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from inout._core.errors import ArgumentError
from inout.grammars.grammar import Grammar

_GRAMMAR, _SENTENCES = ".cfg", ".txt"


def names() -> tuple[str, ...]:
    """The names of the grammars.

    >>> names()
    ('english',)
    """
    return _names(_GRAMMAR)


@cache
def load(name: str) -> Grammar:
    """The grammar of this name, cached; `ArgumentError` if there is none.

    >>> load("english").start
    'S'
    """
    return Grammar.from_text(_text(name, _GRAMMAR, "grammar"), "nltk", f"{name}{_GRAMMAR}")


def sentences(name: str) -> list[list[str]]:
    """The sentences of this name as lists of words; `ArgumentError` if there are none.

    >>> sentences("ambiguous")[1]
    ['time', 'flies', 'like', 'an', 'arrow']
    """
    return [line.split() for line in _text(name, _SENTENCES, "list of sentences").splitlines()]


@cache
def _names(suffix: str) -> tuple[str, ...]:
    entries = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(e.removesuffix(suffix) for e in entries if e.endswith(suffix)))


def _text(name: str, suffix: str, kind: str) -> str:
    known = _names(suffix)
    if name not in known:
        close = get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise ArgumentError("name", f": no {kind} is called {name!r}; {hint}")
    return (files(__name__) / f"{name}{suffix}").read_text(encoding="utf-8")
