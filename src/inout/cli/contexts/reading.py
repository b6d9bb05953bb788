"""Files of sequences for the commands about contexts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from inout._core.errors import FileError
from inout.cli.files import STANDARD_INPUT, STDIN, stdin_lines
from inout.cli.progress import Line
from inout.io.tagged import Form, TaggedSequence, parse_tagged, read_tagged

_EVERY = 500


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


def _sequences(path: str, form: Form, columns: int | None) -> Iterator[TaggedSequence]:
    if path != STANDARD_INPUT:
        return read_tagged(path, form, columns=columns)
    return parse_tagged(stdin_lines("sequences"), STDIN, form, columns=columns)
