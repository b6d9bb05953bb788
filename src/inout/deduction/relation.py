"""`Relation`: the rows of one relation while a program is being grounded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inout.kernels.math.interning import RowTable

Part = Literal["old", "new", "all"]


@dataclass(frozen=True)
class View:
    """Some rows of a relation and their numbers."""

    rows: NDArray[np.int64]  # [n, arity]
    numbers: NDArray[np.int64]  # [n]


@dataclass
class Relation:
    """Rows known so far; `old` ones have been joined, `new` ones are being joined this round.

    Given facts are complete from the start: all their rows are old.
    """

    name: str
    arity: int
    given: View | None = None
    table: RowTable = field(init=False)
    dropped: set[int] = field(default_factory=set)  # rows that fell off a beam
    old: int = 0
    seen: int = 0

    def __post_init__(self) -> None:
        self.table = RowTable(self.arity)

    def __len__(self) -> int:
        return len(self.table) if self.given is None else len(self.given.rows)

    def view(self, part: Part) -> View:
        """The rows of one part."""
        if self.given is not None:
            return self.given
        first = self.old if part == "new" else 0
        last = self.old if part == "old" else self.seen
        numbers = np.arange(first, last)
        if self.dropped:
            numbers = numbers[~np.isin(numbers, list(self.dropped))]
            return View(self.table.rows[numbers], numbers)
        return View(self.table.rows[first:last], numbers)

    def advance(self) -> bool:
        """Make the rows found in the last round the new ones; whether there are any."""
        self.old, self.seen = self.seen, len(self.table)
        return self.seen > self.old


@dataclass(frozen=True)
class EdgeChunk:
    """Edges of one firing of a rule: head rows, and for every tail its relation and rows."""

    head: Relation
    heads: NDArray[np.int32]  # [n]
    tails: tuple[tuple[Relation, NDArray[np.int32]], ...]  # [n] each
