"""What formats share when they read: text with errors that point into it, weights, rules."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError, GrammarError, Remedy
from inout.grammars.table import RuleTable, TableBuilder

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
Duplicates = Literal["error", "add"]


@dataclass(frozen=True, slots=True)
class Source:
    """A text with plain newlines, and its name in messages."""

    text: str
    name: str

    @staticmethod
    def of(text: str, name: str | None) -> Source:
        """The source of a raw text, without byte order mark and carriage returns."""
        if text.startswith("\ufeff"):
            text = text[1:]
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return Source(text, name or "<grammar>")

    def line_number(self, offset: int) -> int:
        """The number of the line, from 1, that holds the character at `offset`."""
        return self.text.count("\n", 0, offset) + 1

    def error(self, offset: int, message: str, remedy: Remedy | None = None) -> GrammarError:
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        code = self.text[start : end if end >= 0 else None]
        line = self.line_number(offset)
        error = GrammarError(message, code, line, offset - start + 1, self.name)
        error.remedy = remedy
        return error


def shortened(text: str) -> str:
    """`text` in quotes on one line, not too long for a message."""
    one_line = " ".join(text.split())
    return f"'{one_line}'" if len(one_line) <= 40 else f"'{one_line[:37]}...'"


def is_number(text: str) -> bool:
    """Whether `text` is a number in the notation of weights, or an infinity or NaN."""
    return _NUMBER.fullmatch(text) is not None or text.lower().lstrip("+-") in ("inf", "nan")


def log_of_weight(text: str) -> float:
    """The log of a written weight; ValueError says what is wrong with it."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"a weight must be a number of at least 0. Got {shortened(text)}")
    weight = float(text)
    if weight < 0 or math.isinf(weight):
        raise ValueError(f"a weight must be finite and at least 0. Got {shortened(text)}")
    if weight:
        return math.log(weight)
    if re.search("[1-9]", re.split("[eE]", text)[0]):
        raise ValueError(
            f"this weight is too small for a float. Got {shortened(text)}; use log-weights"
        )
    return -math.inf


def log_weight(text: str) -> float:
    """A written log-weight; ValueError says what is wrong with it."""
    if _NUMBER.fullmatch(text) is not None:
        value = float(text)
        if not math.isinf(value):
            return value
    elif text.lower() in ("-inf", "-infinity"):
        return -math.inf
    raise ValueError(f"a log-weight must be a finite number or -inf. Got {shortened(text)}")


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
