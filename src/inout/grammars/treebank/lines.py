"""The lines of a treebank file, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from inout._core.errors import FileError, TreeSyntaxError
from inout._core.files import open_bytes, reason, unreadable


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
        raise FileError(reason(error), file=path) from error


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
