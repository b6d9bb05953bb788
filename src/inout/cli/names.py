"""Suggestions for names that are nearly right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A clause to append to a message: the nearest known names, or nothing.

    >>> did_you_mean("goall", ["goal", "beta"])
    '; did you mean goal?'
    >>> did_you_mean("cnf", ["cnf_inside"]), did_you_mean("x", ["goal"])
    ('; did you mean cnf_inside?', '')
    """
    names = sorted(known)
    close = get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    close = close or [other for other in names if name and other.startswith(name.lower())][:3]
    return f"; did you mean {' or '.join(close)}?" if close else ""
