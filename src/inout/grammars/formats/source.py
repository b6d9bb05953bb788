"""`Source`: the text of a grammar, its name, and errors that point into it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from inout._core.errors import GrammarError, Remedy

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


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
        """The error about the character at `offset`."""
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
