"""`Relation`: the rows of a relation while a program is grounded; `Beam`: which of them stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import at_least
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


@dataclass
class Beam:
    """Tracks inside weights while a program is grounded, and drops items outside the beam.

    Weights of an item count the edges found up to the round in which it first appears; a beam is
    meant for relations whose items are complete by then, such as the states of an automaton.
    """

    widths: dict[str, int]
    fact_weights: NDArray[np.float64] = field(init=False)
    weights: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, width in self.widths.items():
            at_least(f"beam[{name!r}]", width, 1)

    def start(self, derived: Mapping[str, Relation], fact_weights: NDArray[np.float64]) -> None:
        """Take up the weights of the facts, before anything is derived."""
        self.fact_weights = fact_weights
        self.weights = {name: np.empty(0) for name in derived}

    def _grown(self, relation: Relation) -> NDArray[np.float64]:
        known = self.weights[relation.name]
        missing = len(relation) - len(known)
        if missing:
            known = np.concatenate([known, np.full(missing, -np.inf)])
            self.weights[relation.name] = known
        return known

    def add(self, chunk: EdgeChunk) -> None:
        """Add the weights of new edges to their heads."""
        if not self.widths:
            return
        total = np.zeros(len(chunk.heads))
        for relation, rows in chunk.tails:
            total += (self.fact_weights if relation.given else self._grown(relation))[rows]
        np.logaddexp.at(self._grown(chunk.head), chunk.heads, total)

    def select(self, relations: list[Relation]) -> None:
        """Drop the items found in this round beyond the width of their relation's beam."""
        for relation in relations:
            width = self.widths.get(relation.name)
            fresh = np.arange(relation.seen, len(relation))
            if width is None or len(fresh) <= width:
                continue
            heaviest_first = np.argsort(-self._grown(relation)[fresh], kind="stable")
            relation.dropped.update(fresh[heaviest_first[width:]].tolist())
