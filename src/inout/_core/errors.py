"""Every error inout raises on purpose: one root, one class per kind of mistake."""

from __future__ import annotations

import copyreg
from enum import Enum
from pathlib import Path
from typing import Any

# A line may be megabytes long: this much is shown on either side of a caret.
_BEFORE, _AFTER = 50, 40


class Remedy(Enum):
    """Hints on how to fix an error, for Python; the command has its own texts."""

    ADD_DUPLICATES = 'duplicates="add" adds up their weights'
    DIAGNOSE = "inout.grammars.diagnose shows why"
    FEWER_DERIVATIONS = "ask for fewer, or raise max_edges"
    LARGER_MAX_EDGES = "raise max_edges, or make the problem smaller"
    LARGER_MAX_ROUNDS = "raise max_rounds if it should"
    NORMALISE = "grammar.normalised() turns weights into probabilities"
    READ_COLUMNS = "form='conll' reads words in columns"
    RESUME = "resume=True continues from it, deleting it starts afresh"


class InoutError(Exception):
    """Root of all errors that inout raises on purpose.

    `message` says what is wrong, and these say where, each None if it does not apply:
    `argument`, the name of the argument; `file`, `line` and `column`, counted from 1; `remedy`
    is what helps. The text of the error is all of them together; a message that is a sentence of
    its own begins with a colon.

    >>> print(InoutError("must be at least 1. Got 0", argument="k"))
    k must be at least 1. Got 0
    >>> print(InoutError("no such file", file="english.cfg"))
    english.cfg: no such file
    """

    def __init__(
        self,
        message: str,
        *,
        argument: str | None = None,
        file: str | Path | None = None,
        line: int | None = None,
        column: int | None = None,
        remedy: Remedy | None = None,
    ) -> None:
        self.args = (message,)  # by hand: torch.compile cannot follow Exception.__init__
        self.message = message
        self.argument = argument
        self.file = None if file is None else str(file)
        self.line = line
        self.column = column
        self.remedy = remedy

    @property
    def place(self) -> str | None:
        """FILE:LINE:COLUMN, as far as known."""
        parts = (self.file, self.line, self.column)
        return ":".join(str(part) for part in parts if part is not None) or None

    def text(self, argument: str | None, remedy: str | None) -> str:
        """The whole text, with these names for the argument and the remedy."""
        place = "" if self.place is None else f"{self.place}: "
        name = argument or ""
        if name and not self.message.startswith(":"):
            name += " "
        helps = "" if remedy is None else f"; {remedy}"
        return f"{place}{name}{self.message}{helps}"

    def __reduce__(self) -> tuple[Any, ...]:
        """How errors get from one process to another: as they are, `__init__` is not called."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return self.text(self.argument, None if self.remedy is None else self.remedy.value)


class ArgumentError(InoutError, ValueError):
    """An argument has the wrong shape, type or value.

    It is named, or None where the mistake lies in several of them together.

    >>> print(ArgumentError("k", "must be at least 1. Got 0"))
    k must be at least 1. Got 0
    """

    def __init__(self, argument: str | None, message: str, *, remedy: Remedy | None = None) -> None:
        super().__init__(message, argument=argument, remedy=remedy)


class ChartTooLargeError(ArgumentError):
    """The chart of a sentence does not fit in memory."""


class ForestError(InoutError, ValueError):
    """A forest cannot be built or queried as requested."""


class CycleError(ForestError):
    """An item depends on itself; `items` is the cycle in order."""

    def __init__(self, items: list[str]) -> None:
        self.items = items
        path = " <- ".join([*items, items[0]])
        super().__init__(f"the items form a cycle, so there is no order to compute them in: {path}")


class GroundingError(InoutError):
    """A program cannot be grounded on these facts (too large, endless, wrong types)."""


class FileError(InoutError):
    """A file cannot be read or written; the message says which, where and why."""


class AmbiguousFactsError(FileError):
    """The rows of a file could be read with weights or without."""


class TextError(InoutError, ValueError):
    """An error at one place of a text; `excerpt` is the line there, with a caret below it.

    `source` is the name that the text is called by: that of its file, if it is from one.
    """

    def __init__(self, message: str, code: str, line: int, column: int, source: str) -> None:
        super().__init__(message, file=source, line=line, column=column)
        self.excerpt = _excerpt(code.rstrip("\r\n"), column)

    @property
    def source(self) -> str:
        """The name of the text."""
        return self.file or ""

    def text(self, argument: str | None, remedy: str | None) -> str:
        """The whole text, with the excerpt below it."""
        return f"{super().text(argument, remedy)}\n{self.excerpt}"


class ProgramError(TextError):
    """An error at one place of a deduction program, whose whole text is given."""

    def __init__(self, message: str, text: str, line: int, column: int, source: str) -> None:
        lines = text.splitlines()
        code = lines[line - 1] if 0 < line <= len(lines) else ""
        super().__init__(message, code, line, column, source)


class GrammarError(TextError, FileError):
    """An error at one place of the text of a grammar."""


class TreeSyntaxError(TextError, FileError):
    """An error at one place of bracketed text."""


class CountOverflowError(InoutError, OverflowError):
    """A count exceeds int64; exact counting in Python integers has no such limit."""


class PrecisionError(InoutError, ArithmeticError):
    """The result would have fewer correct digits than requested; the message says why."""


class NotDifferentiableError(InoutError, NotImplementedError):
    """What was asked for has no derivative; the message says what has one."""


class TrainingError(InoutError):
    """Training cannot continue: the objective fell, an analysis was lost, or weights overflowed."""


def _excerpt(code: str, column: int) -> str:
    """The neighbourhood of a column in a line of code, with a caret below it."""
    start, end = max(0, column - 1 - _BEFORE), column - 1 + _AFTER
    if len(code) <= _BEFORE + _AFTER:
        start, end = 0, len(code)
    left, right = "…" * (start > 0), "…" * (end < len(code))
    before = left + code[start : column - 1]
    # Tabs must survive in the pointer line, or the caret is misplaced.
    pointer = "".join("\t" if character == "\t" else " " for character in before)
    return f"  {left}{code[start:end]}{right}\n  {pointer}^"
