"""Whole files, read with clear errors and written atomically."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from inout._core.errors import FileError
from inout._core.files import reason


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, without a byte order mark; `.xz` files are decompressed.

    Raises `FileError` if there is no such file or it is not text, then with line and column.
    """
    data = read_bytes(path)
    if Path(path).suffix == ".xz":
        data = _unpacked(path, data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8-sig")) + 1
        raise FileError(
            f"the file must be UTF-8 text. Got the byte 0x{data[error.start]:02x}",
            file=path,
            line=line,
            column=column,
        ) from None


def read_bytes(path: str | Path) -> bytes:
    """All bytes of a file; `FileError` if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise FileError(reason(error), file=path) from error


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 file atomically, as `write_bytes` does."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FileError(str(error), file=path) from error
    write_bytes(path, data)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file under a temporary name beside it, then rename it into place.

    `path` is always either the whole old file or the whole new one, even after a crash.
    """
    check_writable(path)
    target = Path(path).resolve()
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # Temporary files are private; this one becomes an ordinary file.
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(target)
    except (OSError, ValueError) as error:
        raise FileError(reason(error), file=path) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Raise `FileError` if `write_text` could not write this file; checked before long work."""
    try:
        target = Path(path).resolve()
        if target.exists() and not target.is_file():
            kind = "a directory" if target.is_dir() else "no ordinary file"
            raise FileError(f"cannot be written, because it is {kind}", file=path)
        if not target.parent.is_dir():
            raise FileError(f"there is no directory {Path(path).parent}", file=path)
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise FileError("the directory is not writable", file=path)
    except (OSError, ValueError, RuntimeError) as error:
        raise FileError(reason(error), file=path) from error


def check_readable(path: str | Path) -> None:
    """Raise `FileError` if there is no such file; checked before long work."""
    if not Path(path).exists():
        raise FileError(reason(FileNotFoundError()), file=path)
    if Path(path).is_dir():
        raise FileError(reason(IsADirectoryError()), file=path)


def _unpacked(path: str | Path, data: bytes) -> bytes:
    import lzma  # not every Python has it

    try:
        return lzma.decompress(data)
    except lzma.LZMAError as error:
        raise FileError(
            f"the file must be whole and compressed by xz. {error}", file=path
        ) from error


def _umask() -> int:
    """The permissions that new files of this process do not get."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
