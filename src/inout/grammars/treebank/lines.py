"""The lines of a treebank file, plain or compressed, and the error that points into one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from inout._core.errors import FileError
from inout._core.files import open_bytes, reason, unreadable

_BEFORE, _AFTER = 50, 30  # what is shown of a long line on either side of the caret


class TreeSyntaxError(FileError, ValueError):
    """Bracketed text is wrong at one place; the message shows the line with a caret."""

    def __init__(self, message: str, text: str, line: int, column: int, source: str) -> None:
        self.message, self.line, self.column, self.source = message, line, column, source
        text = text.rstrip("\r\n")
        start, end = max(0, column - 1 - _BEFORE), column + _AFTER
        # One tree a line makes lines of thousands of characters: show the neighbourhood only.
        left = "…" if start else ""
        shown = left + text[start:end] + ("…" if end < len(text) else "")
        before = left + text[start : column - 1]
        pointer = "".join("\t" if c == "\t" else " " for c in before) + "^"
        super().__init__(f"{source}:{line}:{column}: {message}\n  {shown}\n  {pointer}")


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, one at a time; `.xz` and `.gz` files are unpacked on the way.

    Raises `FileError` where the file cannot be read, `TreeSyntaxError` where it is not UTF-8.
    """
    try:
        with open_bytes(Path(path)) as file:
            for number, data in enumerate(file, 1):
                yield _decoded(data, number, str(path))
    except TreeSyntaxError:
        raise
    except unreadable() as error:
        raise FileError(f"{path}: {reason(error)}") from error


def _decoded(data: bytes, number: int, source: str) -> str:
    # A byte order mark may stand at the beginning of the file, and nowhere else.
    encoding = "utf-8-sig" if number == 1 else "utf-8"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        # utf-8-sig counts its positions from behind the mark.
        data = data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data
        column = len(data[: error.start].decode("utf-8")) + 1
        wrong = data[error.start]
        text = data.decode("utf-8", errors="replace")
        message = f"the file must be UTF-8 text. Got the byte 0x{wrong:02x}"
        raise TreeSyntaxError(message, text, number, column, source) from None
