"""Opening files that may be compressed, and why a file could not be read or written."""

from __future__ import annotations

from io import BufferedIOBase
from pathlib import Path

# lzma is imported where it is needed: not every Python has it.


def open_bytes(path: Path) -> BufferedIOBase:
    """The file opened for reading; `.xz` and `.gz` are decompressed."""
    if path.suffix == ".xz":
        import lzma

        return lzma.LZMAFile(path)
    if path.suffix == ".gz":
        import gzip

        return gzip.GzipFile(path)
    return path.open("rb")


def unreadable() -> tuple[type[Exception], ...]:
    """The exceptions that reading such a file may raise."""
    return (OSError, EOFError, ValueError, *_compression_errors())


def reason(error: Exception) -> str:
    """What is wrong with a file, in words."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "is a directory, not a file"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, EOFError):
        return "the compressed file ends too early"
    if isinstance(error, _compression_errors()):
        return f"not compressed as its name says ({error})"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _compression_errors() -> tuple[type[Exception], ...]:
    import gzip
    import zlib

    try:
        import lzma
    except ImportError:
        return zlib.error, gzip.BadGzipFile
    return zlib.error, gzip.BadGzipFile, lzma.LZMAError
