"""`Collector`: gathers the rules that a reader finds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError, Remedy
from inout.grammars.formats.source import Source
from inout.grammars.table import RuleTable, TableBuilder

Duplicates = Literal["error", "add"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The content of a text: the rules, and a log-weight for each."""

    table: RuleTable
    log_weights: NDArray[np.float64]  # [r]


class Collector(TableBuilder):
    """Rules as they are read, each with its log-weight and its place in the text."""

    def __init__(self, source: Source, duplicates: Duplicates) -> None:
        super().__init__()
        self._source, self._duplicates = source, duplicates
        self._log_weights: list[float] = []
        self._places: list[int] = []
        self._first_lhs: int | None = None
        self._declared: tuple[str, int] | None = None

    def rule(self, lhs: int, rhs: tuple[int, ...], log_weight: float, place: int) -> None:
        """Add the rule at `place`; a duplicate rule is an error or adds its weight."""
        first = self.add(lhs, rhs)
        if first is None:
            self._log_weights.append(log_weight)
            self._places.append(place)
            if self._first_lhs is None:
                self._first_lhs = lhs
        elif self._duplicates == "add":
            self._log_weights[first] = _log_add(self._log_weights[first], log_weight)
        else:
            line = self._source.line_number(self._places[first])
            raise self._source.error(
                place, f"duplicate rule, already on line {line}", Remedy.ADD_DUPLICATES
            )

    def declare_start(self, name: str, place: int) -> None:
        """Record the start symbol declared at `place`."""
        if self._declared is not None:
            line = self._source.line_number(self._declared[1])
            raise self._source.error(place, f"the start symbol is already declared on line {line}")
        self._declared = (name, place)

    def reading(self, start: str | None, *, first_is_start: bool = True) -> Reading:
        """The rules, with the given start symbol, or the declared one, or the first left side."""
        if not len(self):
            text = self._source.text
            what = "none" if text.strip() else "an empty text"
            raise self._source.error(len(text.rstrip()), f"expected rules, found {what}")
        lefts = {rule[0] for rule in self._rules}
        if start is not None:
            if self._nonterminals.get(start) not in lefts:
                raise ArgumentError("start", f"must be the left side of a rule. Got {start!r}")
        elif self._declared is not None:
            start, place = self._declared
            if self._nonterminals.get(start) not in lefts:
                raise self._source.error(
                    place, f"the start symbol {start} has no rule; expected the left side of a rule"
                )
        elif first_is_start:
            assert self._first_lhs is not None
            start = list(self._nonterminals)[self._first_lhs]
        else:
            raise self._source.error(
                0, "there is no start symbol: expected start=SYMBOL in the first line"
            )
        return Reading(self.table(start), np.array(self._log_weights, dtype=np.float64))


def _log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
