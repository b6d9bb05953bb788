"""Files that commands read and write: checks before any work, and standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

from inout._core.errors import ArgumentError, FileError, Remedy
from inout.io.files import check_readable, check_writable, decoded_lines

STANDARD_INPUT, STDIN = "-", "<stdin>"  # as an argument, and in messages


def check_inputs(paths: Sequence[str]) -> None:
    """Report missing files before any work is done."""
    for path in paths:
        if path != STANDARD_INPUT:
            check_readable(path)
    if paths.count(STANDARD_INPUT) > 1:
        raise ArgumentError(None, "only one input can be standard input")


def check_output(option: str, out: str | None, inputs: Sequence[str] = ()) -> None:
    """Raise if the output file cannot be written, or is one of the inputs."""
    if out is None:
        return
    check_writable(out)
    for path in inputs:
        both = path != STANDARD_INPUT and Path(path).exists() and Path(out).exists()
        if both and Path(path).samefile(out):
            raise ArgumentError(option, f"must not be an input file. Got {out}")


@contextmanager
def checkpointed(kept: Path, *, resume: bool) -> Iterator[None]:
    """Training with a checkpoint and writing of the result; after that it is removed."""
    check_writable(kept)
    if not resume and kept.exists():
        raise FileError("this checkpoint already exists", file=kept, remedy=Remedy.RESUME)
    try:
        yield
    except KeyboardInterrupt:
        if kept.exists():
            print(f"stopped; --resume continues from {kept}", file=sys.stderr)
        raise
    except FileError as error:
        if not kept.exists() or error.file == str(kept):
            raise
        again = f"{error.message}; --resume writes it again from {kept}"
        raise FileError(again, file=error.file) from error
    kept.unlink(missing_ok=True)


def is_typed() -> bool:
    """Whether standard input is a person at a keyboard."""
    return sys.stdin is not None and sys.stdin.isatty()


def stdin_lines(what: str) -> Iterator[str]:
    """The lines of standard input, read lazily; `what` they are is said to a person."""
    return decoded_lines(stdin_bytes(what), STDIN)


def stdin_bytes(what: str) -> BufferedIOBase:
    """Standard input; `what` it is is said to a person."""
    if sys.stdin is None:
        raise FileError("standard input is closed", file=STDIN)
    if is_typed():
        print(f"reading {what} from the terminal; end with Ctrl-D", file=sys.stderr)
    return sys.stdin.buffer  # type: ignore[return-value]  # of a process, and of tests
