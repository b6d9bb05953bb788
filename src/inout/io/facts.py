"""Facts from tab-separated text: one row per line, with or without a weight at its end."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from inout._core.errors import AmbiguousFactsError, FileError
from inout.deduction import Facts
from inout.deduction.syntax import quote
from inout.io.files import read_text

# Only what would be written back the same way: 007 and 1.0 are strings.
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_INTEGER_LIMIT = 2**40


@dataclass(frozen=True, slots=True)
class _Line:
    """The fields of one line, and what messages about it need."""

    path: str | Path
    number: int
    fields: list[str]
    block: int  # how many empty lines are above it
    indent: int = 0  # characters before the first field

    def error(self, field: int, message: str) -> FileError:
        return FileError(message, file=self.path, line=self.number, column=self.column(field))

    def column(self, field: int) -> int:
        before = self.fields[:field]
        return self.indent + sum(map(len, before)) + len(before) + 1


def read_facts(
    path: str | Path,
    arities: Iterable[int],
    *,
    weighted: bool | None = None,
    probabilities: bool = False,
) -> Facts:
    r"""The rows of a file of facts with their log-weights.

    Fields are separated by tabs. A field that looks like an integer is one, a field in double
    quotes is always a string, and so is everything else. Empty lines and lines that begin with
    `#` are ignored. A row with as many fields as the relation has arguments (`arities`) has weight
    one; an additional last field is its log-weight, or with `probabilities` its weight, which may
    be 0.

    If the relation has several arities, a file may be ambiguous: that raises
    `AmbiguousFactsError`, unless `weighted` says which. Errors raise `FileError` with line and
    column. O(size of the file).

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rule.tsv"
    >>> _ = path.write_text("# a grammar\nS\tNP\tVP\t-0.5\nNP\tshe\t-1\n")
    >>> facts = read_facts(path, arities=[2, 3])
    >>> facts.rows, facts.log_weights.tolist()
    ([('S', 'NP', 'VP'), ('NP', 'she')], [-0.5, -1.0])
    """
    return _facts(list(_lines(path)), set(arities), weighted, probabilities)


def read_examples(
    path: str | Path, arities: Mapping[str, Iterable[int]], *, probabilities: bool = False
) -> list[tuple[int, dict[str, Facts]]]:
    r"""The examples of a file, and the line that each begins at: blocks of facts.

    Each line is the name of a relation and a row as for `read_facts`, separated by a tab; empty
    lines separate the examples. A relation of which an example has no row is empty there.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "corpus.tsv"
    >>> _ = path.write_text("word\ta\t0\t1\nlength\t1\n\nlength\t0\n")
    >>> found = read_examples(path, {"word": [3], "length": [1]})
    >>> [(line, example["word"].rows) for line, example in found]
    [(1, [('a', 0, 1)]), (4, [])]
    """
    lines: dict[str, list[_Line]] = {}
    firsts: dict[int, int] = {}
    for line in _lines(path):
        name = line.fields[0].strip(" ")
        if name not in arities:
            raise line.error(0, f"expected one of the relations {', '.join(arities)}. Got {name!r}")
        row = replace(line, fields=line.fields[1:], indent=len(line.fields[0]) + 1)
        lines.setdefault(name, []).append(row)
        firsts.setdefault(line.block, line.number)
    examples: dict[int, dict[str, Facts]] = {block: {} for block in firsts}
    for name, found in lines.items():
        facts = _facts(found, set(arities[name]), None, probabilities)
        places: dict[int, list[int]] = {block: [] for block in firsts}
        for place, line in enumerate(found):
            places[line.block].append(place)
        for block, kept in places.items():
            weights = facts.log_weights[kept] if facts.weighted else None
            examples[block][name] = Facts([facts.rows[place] for place in kept], weights)
    return [(firsts[block], example) for block, example in examples.items()]


def facts_text(facts: Facts, *, probabilities: bool = False) -> str:
    """The text of a file of weighted facts, as `read_facts` reads it.

    >>> facts_text(Facts([("S", "12", 12)], [-0.5]))
    'S\\t"12"\\t12\\t-0.5\\n'
    """
    weights = facts.log_weights.exp() if probabilities else facts.log_weights
    rows = zip(facts.rows, weights.tolist(), strict=True)
    return "".join("\t".join([*map(_field, row), repr(weight)]) + "\n" for row, weight in rows)


def _field(value: str | int) -> str:
    """A value as it is written in a file."""
    if not isinstance(value, str):
        return str(value)
    try:
        plain = value.isprintable() and value[:1] != "#" and read_value(value) == value
    except ValueError:
        plain = False
    return value if plain else quote(value)


def _facts(
    lines: list[_Line], arities: set[int], weighted: bool | None, probabilities: bool
) -> Facts:
    readings = list(_readings(lines, arities, weighted))
    rows, weights = [], []
    for line, has_weight in zip(lines, readings, strict=True):
        size = len(line.fields) - has_weight
        rows.append(tuple(_value(line, field) for field in range(size)))
        weights.append(_log_weight(line, size, probabilities) if has_weight else 0.0)
    return Facts(rows, weights if any(readings) else None)


def read_value(field: str) -> str | int:
    """The value of one field of a file.

    >>> read_value("12"), read_value('"12"'), read_value("NP")
    (12, '12', 'NP')
    """
    field = field.strip(" ")
    if _INTEGER.fullmatch(field):
        value = int(field)
        if abs(value) >= _INTEGER_LIMIT:
            raise ValueError("integers must be smaller than 2**40 in size")
        return value
    if len(field) < 2 or field[0] != '"' or field[-1] != '"':
        if not field:
            raise ValueError('the field is empty; an empty string is written ""')
        return field
    return re.sub(r"\\?.|\\$", _unescaped, field[1:-1], flags=re.DOTALL)


def _unescaped(match: re.Match[str]) -> str:
    text = match[0]
    if text == '"':
        raise ValueError('a quote within quotes is written \\"')
    if text[0] != "\\":
        return text
    if text[1:] not in _ESCAPES:
        raise ValueError(f"unknown escape '{text}' in quotes; there are \\n \\t \\r \\\" \\\\")
    return _ESCAPES[text[1:]]


def _lines(path: str | Path) -> Iterator[_Line]:
    block = 0
    for number, text in enumerate(read_text(path).split("\n"), 1):
        text = text.removesuffix("\r")
        block += not text.strip()
        if text.strip() and not text.startswith("#"):
            yield _Line(path, number, text.split("\t"), block)


def _readings(lines: list[_Line], arities: set[int], weighted: bool | None) -> Iterator[bool]:
    """Whether the last field of each line is a weight."""
    plain = [len(line.fields) in arities for line in lines]
    with_weight = [len(line.fields) - 1 in arities for line in lines]
    if weighted is None and len(arities) > 1:
        # A last field that is no number cannot be a weight, so it settles the matter.
        with_weight = [
            may and (not bare or _number(line.fields[-1]) is not None)
            for may, bare, line in zip(with_weight, plain, lines, strict=True)
        ]
        if all(with_weight) != all(plain):
            weighted = all(with_weight)
    for line, bare, more in zip(lines, plain, with_weight, strict=True):
        choices = [w for w, fits in ((False, bare), (True, more)) if fits and weighted in (None, w)]
        if not choices:
            raise line.error(0, _wrong_size(len(line.fields), arities, weighted))
        if len(choices) > 1:
            size = len(line.fields)
            raise AmbiguousFactsError(
                f"the last of these {size} fields may be a value or a weight, because rows have "
                f"{_sizes(arities)} values",
                file=line.path,
                line=line.number,
                column=line.column(size - 1),
            )
        yield choices[0]


def _wrong_size(size: int, arities: set[int], weighted: bool | None) -> str:
    weight = {None: ", and at most a weight after them", True: " and a weight", False: ""}[weighted]
    got = "1 field" if size == 1 else f"{size} fields"
    values = "value" if arities == {1} else "values"
    return f"expected {_sizes(arities)} {values} separated by tabs{weight}. Got {got}"


def _sizes(arities: set[int]) -> str:
    return " or ".join(str(arity) for arity in sorted(arities))


def _value(line: _Line, field: int) -> str | int:
    try:
        return read_value(line.fields[field])
    except ValueError as error:
        raise line.error(field, str(error)) from None


def _number(text: str) -> float | None:
    """The number a field holds: a decimal or -inf, else None."""
    text = text.strip(" ")
    if text.lower() in ("-inf", "-infinity"):
        return -math.inf
    if not _DECIMAL.fullmatch(text):
        return None
    value = float(text)
    return None if math.isinf(value) else value


def _log_weight(line: _Line, field: int, probabilities: bool) -> float:
    number, written = _number(line.fields[field]), line.fields[field].strip(" ")
    if not probabilities:
        if number is None:
            raise line.error(field, f"a log-weight must be a number or -inf. Got {written!r}")
        return number
    if number is None or number < 0:
        raise line.error(field, f"a weight must be a number of at least 0. Got {written!r}")
    return math.log(number) if number else -math.inf
