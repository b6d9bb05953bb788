"""Texts of grammars in files, which may be compressed by xz."""

from __future__ import annotations

import lzma
from pathlib import Path

from inout._core.errors import FileError
from inout.io.files import read_text


def read_grammar_text(path: str | Path) -> str:
    """The text of a UTF-8 file, or of one whose name ends in `.xz` and that xz compressed.

    Raises `FileError` where there is no such file, or it is no text: with line, column and byte.
    """
    if Path(path).suffix != ".xz":
        return read_text(path)
    try:
        data = lzma.decompress(Path(path).read_bytes())
    except FileNotFoundError as error:
        raise FileError(f"{path}: there is no such file") from error
    except lzma.LZMAError as error:
        raise FileError(f"{path}: the file must be whole and compressed by xz. {error}") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise FileError(f"{path}: {reason or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8-sig")) + 1
        raise FileError(
            f"{path}:{line}:{column}: the file must be UTF-8 text. "
            f"Got the byte 0x{data[error.start]:02x}"
        ) from None
