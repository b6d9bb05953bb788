"""Text formats of grammars: four formats, detected from the content."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import expect, expect_one_of
from inout._core.errors import ArgumentError
from inout._core.errors import GrammarError as GrammarError
from inout.grammars.formats import json, lines, nltk, wsj
from inout.grammars.formats.source import Duplicates as Duplicates
from inout.grammars.formats.source import Reading as Reading
from inout.grammars.formats.source import Source as Source
from inout.grammars.formats.source import is_number
from inout.grammars.table import RuleTable

Format = Literal["nltk", "lines", "wsj", "json"]

_MODULES: dict[str, Any] = {"nltk": nltk, "lines": lines, "wsj": wsj, "json": json}
_SUFFIXES = {".cfg": "nltk", ".pcfg": "nltk", ".tsv": "lines", ".gr": "wsj", ".json": "json"}
_HEADER = re.compile(r"(?:[^\s=]+=\S*[ \t]*)+")
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|-inf")


def read(
    source: Source,
    *,
    format: Format | None = None,
    start: str | None = None,
    duplicates: Duplicates = "error",
    log: bool | None = None,
) -> Reading:
    """The rules and log-weights of a text; the format is detected by default."""
    expect(duplicates in get_args(Duplicates), "duplicates", 'must be "error" or "add"', duplicates)
    chosen = detect(source) if format is None else _known(format)
    options: dict[str, Any] = {"start": start, "duplicates": duplicates}
    if chosen == "lines":
        options["log"] = log
    elif log is not None:
        raise ArgumentError(
            "log", f"must be None for every format but lines. The format is {chosen}"
        )
    reading: Reading = _MODULES[chosen].read(source, **options)
    return reading


def write(
    table: RuleTable, log_weights: NDArray[np.float64], format: Format, *, log: bool = False
) -> str:
    """The text of a grammar in a format; `log` writes the log-weights of lines."""
    chosen = _known(format)
    if chosen == "lines":
        return lines.write(table, log_weights, log=log)
    if log:
        raise ArgumentError("log", f"must be False for every format but lines. Got {chosen}")
    return str(_MODULES[chosen].write(table, log_weights))


def detect(source: Source) -> Format:
    """The format of a text, by its first rule, header or brace; GrammarError if there is none.

    >>> detect(Source.of("S -> 'a' [0.5]", None)), detect(Source.of("0.5 S a", None))
    ('nltk', 'lines')
    """
    text = source.text
    if text.lstrip()[:1] == "{":
        return "json"
    offset = 0
    for line in text.split("\n"):
        fields = line.split()
        found = _by_line(line.strip(), fields) if fields else None
        if found is not None:
            return found
        if fields and fields[0][0] not in "#%|":
            raise source.error(
                offset + line.index(fields[0]),
                "this is not the first line of any grammar format: expected LEFT -> RIGHT (nltk), "
                "WEIGHT LEFT RIGHT (lines), a header with start=SYMBOL (wsj) or {...} (json)",
            )
        offset += len(line) + 1
    what = "only comments and directives" if text.strip() else "an empty text"
    raise source.error(len(text.rstrip()), f"expected rules, found {what}")


def _by_line(line: str, fields: list[str]) -> Format | None:
    """The format that one line indicates, or None."""
    if fields[0][0] in "#%":
        return "lines" if fields[0] in ("%weights", "%nonterminals") else None
    arrow = len(fields) > 1 and fields[1] == "->"
    if arrow and len(fields) > 2 and _DECIMAL.fullmatch(fields[-1]):
        return "wsj"
    if line == wsj.LEXICON or _HEADER.fullmatch(line):
        return "wsj"
    if arrow or fields[0].partition("->")[1]:
        return "nltk"
    if is_number(fields[0]):
        return "lines"
    return None


def format_of_path(path: str) -> Format:
    """The format of a file by its suffix; ArgumentError for an unknown suffix."""
    for suffix, format in _SUFFIXES.items():
        if path.endswith(suffix):
            return format  # type: ignore[return-value]
    known = ", ".join(_SUFFIXES)
    raise ArgumentError("format", f"must be given for a file name without {known}. Got {path!r}")


def _known(format: str) -> Format:
    expect_one_of("format", format, _MODULES)
    return format  # type: ignore[return-value]
