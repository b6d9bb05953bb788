"""Orderings: in which order the positions of a sequence get their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError

LEFT_TO_RIGHT = "left-to-right"

Visit: TypeAlias = Callable[[Any], Sequence[int]]
Ordering: TypeAlias = str | Visit


def _middle_out(sequence: Any) -> list[int]:
    """The middle, then what is next to it on either side, the left one first."""
    middle = (len(sequence) - 1) / 2
    return sorted(range(len(sequence)), key=lambda i: (abs(i - middle), i))


_KNOWN: dict[str, Visit] = {
    LEFT_TO_RIGHT: lambda sequence: range(len(sequence)),
    "right-to-left": lambda sequence: range(len(sequence) - 1, -1, -1),
    "middle-out": _middle_out,
}
ORDERINGS = tuple(_KNOWN)


def name_of(ordering: Ordering) -> str:
    """What an ordering is called in the settings of a model: its name, or that of its function."""
    if callable(ordering):
        return f"function {getattr(ordering, '__name__', type(ordering).__name__)}"
    if ordering not in _KNOWN:
        wanted = f"must be {', '.join(ORDERINGS)}, or a function of a sequence"
        raise ArgumentError("ordering", f"{wanted}. Got {ordering!r:.80}")
    return ordering


def checked_ordering(name: str, given: Ordering | None) -> Ordering:
    """The ordering of this name: that of the library, or the function that is given."""
    if name in _KNOWN and given in (None, name):
        return name
    if given is None or name_of(given) != name:
        got = "none" if given is None else name_of(given)
        where = "" if name in _KNOWN else ", which is not in its file and only Python can give"
        raise ArgumentError("ordering", f"must be that of the model, {name}{where}. Got {got}")
    return given


def visits(ordering: Ordering, sequences: Sequence[Any]) -> NDArray[np.int64] | None:
    """The positions of each sequence as they are visited, one after the other; None: from 0 on."""
    if ordering == LEFT_TO_RIGHT:
        return None
    visit = ordering if callable(ordering) else _KNOWN[ordering]
    found = [np.zeros(0, np.int64)]
    for number, sequence in enumerate(sequences):
        given = visit(sequence)
        try:
            own = np.asarray(given)
        except (TypeError, ValueError):
            own = np.zeros(0)
        own = own if own.size else own.astype(np.int64)
        positions = np.arange(len(sequence))
        if own.dtype.kind not in "iu" or not np.array_equal(np.sort(own), positions):
            raise ArgumentError(
                "ordering",
                f"must give each position from 0 to {len(sequence) - 1} once, for sequence "
                f"{number}. Got {given!r:.80}",
            )
        found.append(own.astype(np.int64))
    return np.concatenate(found)
