"""Every error inout raises on purpose: one root, one class per kind of mistake."""

from __future__ import annotations


class InoutError(Exception):
    """Root of all errors that inout raises on purpose."""


class ArgumentError(InoutError, ValueError):
    """An argument has the wrong shape, type or value."""


class ForestError(InoutError, ValueError):
    """A forest cannot be built or asked as wanted."""


class CycleError(ForestError):
    """An item would be needed to derive itself; `items` names the cycle in order."""

    def __init__(self, items: list[str]) -> None:
        self.items = items
        path = " <- ".join([*items, items[0]])
        super().__init__(f"the items form a cycle, so there is no order to compute them in: {path}")


class ProgramError(InoutError, ValueError):
    """A deduction program is wrong at one place; the message shows the line with a caret."""

    def __init__(self, message: str, text: str, line: int, column: int, source: str) -> None:
        self.message, self.line, self.column, self.source = message, line, column, source
        lines = text.splitlines()
        code = lines[line - 1] if 0 < line <= len(lines) else ""
        # Tabs must survive in the pointer line, or the caret lands elsewhere on screen.
        pointer = "".join("\t" if c == "\t" else " " for c in code[: column - 1]) + "^"
        super().__init__(f"{source}:{line}:{column}: {message}\n  {code}\n  {pointer}")


class GroundingError(InoutError):
    """A program cannot be grounded on these facts (too large, endless, wrong types)."""


class FileError(InoutError):
    """A file cannot be read or written; the message says which, where and why."""


class CountOverflowError(InoutError, OverflowError):
    """A count left the range of int64; exact counting in Python integers has no such bound."""


class PrecisionError(InoutError, ArithmeticError):
    """The answer would have fewer correct digits than were asked for; the message says why."""
