"""Files of sequences for the commands about contexts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from inout._core.errors import ArgumentError, FileError
from inout.cli.progress import Line
from inout.io.files import check_readable
from inout.io.lines import decoded_lines
from inout.io.tagged import Form, TaggedSequence, parse_tagged, read_tagged

STANDARD_INPUT = "-"
_EVERY = 500


def check_files(paths: Sequence[str]) -> None:
    """Report missing files before any work is done."""
    for path in paths:
        if path != STANDARD_INPUT:
            check_readable(path)
    if paths.count(STANDARD_INPUT) > 1:
        raise ArgumentError(None, "only one input can be standard input")


def refuse_as_output(option: str, out: str, inputs: Sequence[str]) -> None:
    """Raise if the output file is one of the inputs."""
    for path in inputs:
        both = path != STANDARD_INPUT and Path(path).exists() and Path(out).exists()
        if both and Path(path).samefile(out):
            raise ArgumentError(option, f"must not be an input file. Got {out}")


def read_sequences(
    paths: Sequence[str], form: Form, columns: int | None = None
) -> Iterator[TaggedSequence]:
    """The sequences of all files, read lazily."""
    return chain.from_iterable(_sequences(path, form, columns) for path in paths)


def read_labelled(paths: Sequence[str], form: Form, line: Line) -> list[TaggedSequence]:
    """All sequences: at least one, and all with labels."""
    found = []
    for sequence in read_sequences(paths, form):
        need_labels(sequence)
        found.append(sequence)
        if len(found) % _EVERY == 0:
            line.say(f"{len(found):,} sequences read")
    if not found:
        raise FileError("no sequences", file=", ".join(paths))
    return found


def need_labels(sequence: TaggedSequence) -> list[str]:
    """The labels of a sequence; an error if it has none."""
    if sequence.labels is None:
        raise FileError(
            "sequences must have labels. Got one without", file=sequence.source, line=sequence.line
        )
    return sequence.labels


def need_common_labels(
    path: str, tried: Sequence[TaggedSequence], trained: Sequence[TaggedSequence]
) -> None:
    """Raise if a file shares no label with the training data."""
    learned = {label for sequence in trained for label in need_labels(sequence)}
    wanted = {label for sequence in tried for label in need_labels(sequence)}
    if not learned & wanted:
        some = [", ".join(sorted(labels)[:3]) for labels in (wanted, learned)]
        raise FileError(
            f"labels must be those of the training data ({some[1]}, …). Got {some[0]}, …", file=path
        )


def is_typed() -> bool:
    """Whether standard input is a person at a keyboard."""
    return sys.stdin is not None and sys.stdin.isatty()


def _sequences(path: str, form: Form, columns: int | None) -> Iterator[TaggedSequence]:
    if path != STANDARD_INPUT:
        return read_tagged(path, form, columns=columns)
    if sys.stdin is None:
        raise FileError("standard input is closed", file="<stdin>")
    if is_typed():
        print("reading sequences from the terminal; end with Ctrl-D", file=sys.stderr)
    lines = decoded_lines(sys.stdin.buffer, "<stdin>")
    return parse_tagged(lines, "<stdin>", form, columns=columns)
