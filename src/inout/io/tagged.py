r"""Tagged sequences in text files: labels with features, or words with tags in columns.

The form `features` has one position per line: its label and the names of its features, separated
by tabs, with a colon and a value if that is not 1. A blank line ends a sequence::

    B	word=the	capital:0.5
    I	word=cat

An unknown label is empty or `?`. `\:`, `\\`, `\t`, `\n` and `\r` are escapes, `\?` is a label that
is a question mark. There are no comments: names may begin with `#`. CRFsuite reads and writes the
same format, except for `\t`, `\n`, `\r`.

The form `conll` is that of CoNLL's shared tasks: one word per line, then other columns, with the
label in the last one, separated by blanks. Standard features are computed from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from inout._core.checks import expect
from inout._core.errors import ArgumentError, FileError, Remedy
from inout.io.column_features import column_features
from inout.io.files import lines_of_file, write_text

Form: TypeAlias = Literal["features", "conll"]

UNKNOWN = "?"
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_MEANING = {"\\": "\\", ":": ":", "t": "\t", "n": "\n", "r": "\r"}
_SPECIAL = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_COLON = re.compile(r"(?<!\\)(?:\\\\)*:")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_BLANKS = re.compile(r"[ \t]+")


@dataclass(frozen=True, slots=True)
class TaggedSequence:
    """A sequence: the features of each position with their values, and the labels if known."""

    positions: list[dict[str, float]]
    labels: list[str] | None
    source: str
    line: int  # where it begins

    @property
    def place(self) -> str:
        """File and line where it begins."""
        return f"{self.source}:{self.line}"

    def __len__(self) -> int:
        return len(self.positions)


def read_tagged(
    path: str | Path, form: Form = "features", *, columns: int | None = None
) -> Iterator[TaggedSequence]:
    r"""The sequences of a file, read lazily.

    Errors raise `FileError` with their line. A duplicate feature at a position counts twice.
    The file may be compressed (`.xz`, `.gz`). In the form `conll` lines with this many `columns`
    (by default 1, the words) have no label; in other lines it is the last column.

    O(size of the file) time, O(longest sequence) memory.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.tsv"
    >>> _ = path.write_text("B\tword=the\nI\tword=cat\tlength:3\n\nB\tword=a\\:b\n")
    >>> for sequence in read_tagged(path):
    ...     print(sequence.labels, sequence.positions)
    ['B', 'I'] [{'word=the': 1.0}, {'word=cat': 1.0, 'length': 3.0}]
    ['B'] [{'word=a:b': 1.0}]
    """
    return parse_tagged(lines_of_file(path), str(path), form, columns=columns)


def parse_tagged(
    lines: Iterable[str],
    source: str = "<text>",
    form: Form = "features",
    *,
    columns: int | None = None,
) -> Iterator[TaggedSequence]:
    """The same of lines of text; messages begin with `source`.

    >>> [len(sequence) for sequence in parse_tagged(["A\\tx", "B\\tx", "", "", "A\\ty"])]
    [2, 1]
    """
    expect(form in ("features", "conll"), "form", 'must be "features" or "conll"', form)
    made = _of_features if form == "features" else partial(_of_columns, columns or 1)
    block: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if line.strip(" "):
            block.append((number, line))
        elif block:
            yield made(block, source)
            block = []
    if block:
        yield made(block, source)


def write_tagged(
    path: str | Path,
    sequences: Iterable[Sequence[Mapping[str, float] | Iterable[str]]],
    labels: Iterable[Sequence[str]] | None = None,
) -> None:
    r"""Write sequences in the form `features`, atomically; without labels, `?` for each.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.tsv"
    >>> write_tagged(path, [[{"a": 1.0, "b:c": 0.5}, ["d"]]], [["X", "Y"]])
    >>> path.read_text()
    'X\ta\tb\\:c:0.5\nY\td\n\n'
    """
    blocks = []
    several = list(sequences)
    named = [[None] * len(positions) for positions in several] if labels is None else list(labels)
    wanted = f"must be those of {len(several)} sequences"
    expect(len(named) == len(several), "labels", wanted, len(named))
    for k, (positions, tags) in enumerate(zip(several, named, strict=True)):
        if not positions or len(positions) != len(tags):
            raise ArgumentError(
                "sequences",
                ": every sequence must have at least one position, and as many labels. Got "
                f"{len(positions)} positions and {len(tags)} labels in sequence {k}",
            )
        blocks.append("".join(map(_written, positions, tags)))
    write_text(path, "".join(f"{block}\n" for block in blocks))


class _Place(NamedTuple):
    """A line of a file."""

    source: str
    line: int

    def error(self, message: str, remedy: Remedy | None = None) -> FileError:
        return FileError(message, file=self.source, line=self.line, remedy=remedy)


def _of_features(block: list[tuple[int, str]], source: str) -> TaggedSequence:
    positions, labels = [], []
    for number, line in block:
        place = _Place(source, number)
        label, *features = line.split("\t")
        if " " in label:
            raise place.error(
                f"fields must be separated by tabs, and labels have no spaces. Got {label!r:.60}",
                Remedy.READ_COLUMNS,
            )
        labels.append(None if label in ("", UNKNOWN) else _unescaped(label, place))
        values: dict[str, float] = {}
        for feature in features:
            name, value = _feature(feature, place)
            values[name] = values.get(name, 0.0) + value
            if not math.isfinite(values[name]):
                raise place.error(
                    "the values of a feature must have a finite sum. "
                    f"Got {values[name]} for {name!r:.60}"
                )
        positions.append(values)
    return _sequence(positions, labels, block, source)


def _of_columns(columns: int, block: list[tuple[int, str]], source: str) -> TaggedSequence:
    rows = [_BLANKS.split(line.strip(" \t")) for _, line in block]
    for (number, _), row in zip(block, rows, strict=True):
        if len(row) != len(rows[0]):
            raise _Place(source, number).error(
                "the lines of a sequence must have the same number of columns. "
                f"Got {len(row)} after {len(rows[0])}"
            )
    # A single column is that of the words, whatever `columns` says.
    labelled = len(rows[0]) not in (1, columns)
    labels = [None if not labelled or row[-1] == UNKNOWN else row[-1] for row in rows]
    positions = column_features([row[:-1] if labelled else row for row in rows])
    return _sequence(positions, labels, block, source)


def _sequence(
    positions: list[dict[str, float]],
    labels: list[str | None],
    block: list[tuple[int, str]],
    source: str,
) -> TaggedSequence:
    """The sequence; an error if only some of its labels are known."""
    begin = block[0][0]
    known = [label for label in labels if label is not None]
    if not known:
        return TaggedSequence(positions, None, source, begin)
    if len(known) < len(labels):
        number = block[labels.index(None)][0]
        raise _Place(source, number).error(
            "all positions of a sequence must have a label, or none. "
            r"Got one without (empty or ?; a label that is a question mark is written \?)"
        )
    return TaggedSequence(positions, known, source, begin)


def _feature(text: str, place: _Place) -> tuple[str, float]:
    colon = _COLON.search(text)
    name, number = (text, "1") if colon is None else (text[: colon.end() - 1], text[colon.end() :])
    if not name:
        raise place.error(f"features must have a name. Got {text!r:.60} behind a tab")
    if not _DECIMAL.fullmatch(number) or not math.isfinite(value := float(number)):
        raise place.error(
            f"the value of a feature must be a finite number. Got {number!r:.60} for "
            rf"{name!r:.60}; a colon in a name is written \:"
        )
    return _unescaped(name, place), value


def _unescaped(text: str, place: _Place) -> str:
    def meaning(match: re.Match[str]) -> str:
        if match[1] == UNKNOWN and text == match[0]:
            return UNKNOWN
        if match[1] not in _MEANING:
            wanted = "a backslash must be written \\\\, except in \\:, \\t, \\n and \\r"
            raise place.error(f"{wanted}. Got {text!r:.60}")
        return _MEANING[match[1]]

    return _ESCAPE.sub(meaning, text) if "\\" in text else text


def _written(position: Mapping[str, float] | Iterable[str], label: str | None) -> str:
    items = position.items() if isinstance(position, Mapping) else [(n, 1.0) for n in position]
    fields = [UNKNOWN if label is None else written_label(label)]
    for name, value in items:
        if not name or not math.isfinite(value):
            wanted = "features must have a name and a finite value"
            raise ArgumentError("sequences", f": {wanted}. Got {value} for {name!r}")
        escaped = name.translate(_SPECIAL).replace(":", "\\:")
        fields.append(escaped if value == 1 else f"{escaped}:{float(value)!r}")
    return "\t".join(fields) + "\n"


def written_label(label: str) -> str:
    """A label as it is written in a file."""
    if not label or " " in label:
        raise ArgumentError("labels", f"must have at least one letter and no spaces. Got {label!r}")
    return "\\?" if label == UNKNOWN else label.translate(_SPECIAL)
