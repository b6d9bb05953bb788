"""The lines of a text file, read lazily in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from inout._core.errors import FileError
from inout._core.files import open_bytes, reason, unreadable

_MARK = b"\xef\xbb\xbf"


def lines_of_file(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends; `.xz` and `.gz` are decompressed.

    Raises `FileError` if the file cannot be read or is not UTF-8 text.
    """
    try:
        with open_bytes(Path(path)) as file:
            yield from decoded_lines(file, str(path))
    except unreadable() as error:
        raise FileError(reason(error), file=path) from error


def decoded_lines(data: Iterable[bytes], source: str) -> Iterator[str]:
    r"""Lines of bytes as text, without their ends (\n or \r\n) and without a byte order mark.

    >>> list(decoded_lines([b"a\r\n", b"b"], "<stdin>"))
    ['a', 'b']
    """
    for number, line in enumerate(data, 1):
        line = line.removeprefix(_MARK) if number == 1 else line
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            column = len(line[: error.start].decode("utf-8")) + 1
            raise FileError(
                f"the file must be UTF-8 text. Got the byte 0x{line[error.start]:02x}",
                file=source,
                line=number,
                column=column,
            ) from None
        yield text.removesuffix("\n").removesuffix("\r")
