"""Files, read whole or line by line with clear errors, and written atomically."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from inout._core.errors import ArgumentError, FileError
from inout._core.files import open_bytes, reason, unreadable

_MARK = b"\xef\xbb\xbf"


def read_text(path: str | Path, encoding: str | None = None, comment: str = "") -> str:
    """The text of a file, UTF-8 by default, without a byte order mark; .xz and .gz are unpacked.

    In lines that begin with `comment`, bytes of another encoding do not matter. Raises `FileError`
    if there is no such file or it is not text, then with line and column.
    """
    try:
        with open_bytes(Path(path)) as file:
            data = file.read()
    except unreadable() as error:
        raise FileError(reason(error), file=path) from error
    return decoded(path, data, encoding, comment)


def decoded(file: str | Path, data: bytes, encoding: str | None = None, comment: str = "") -> str:
    """The text of the bytes of a file; see `read_text`."""
    name = encoding or "utf-8"
    name = "utf-8-sig" if name.lower() in ("utf-8", "utf8") else name
    try:
        return data.decode(name)
    except LookupError:
        raise ArgumentError("encoding", f"must be one that Python has. Got {encoding!r}") from None
    except UnicodeDecodeError as error:
        if encoding is None and comment:
            lines = data.split(b"\n")
            remarks = [line.lstrip().startswith(comment.encode()) for line in lines]
            if any(remarks):
                plain = [b"" if gone else line for line, gone in zip(lines, remarks, strict=True)]
                decoded(file, b"\n".join(plain))  # raises for what matters
                return data.decode("utf-8-sig", errors="replace")
        raise _not_text(error, file, encoding=encoding or "UTF-8") from None


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
            raise _not_text(error, source, number) from None
        yield text.removesuffix("\n").removesuffix("\r")


def _not_text(
    error: UnicodeDecodeError, path: str | Path, first: int = 1, encoding: str = "UTF-8"
) -> FileError:
    """The error of a byte that is not of the encoding, in data that begin at line `first`."""
    before = error.object[: error.start]
    column = len(before[before.rfind(b"\n") + 1 :].decode(encoding)) + 1
    message = f"the file must be {encoding} text. Got the byte 0x{error.object[error.start]:02x}"
    return FileError(message, file=path, line=first + before.count(b"\n"), column=column)


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


def _umask() -> int:
    """The permissions that new files of this process do not get."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
