"""The WSJ format: a header, `A -> B C logp`, `===== LEXICON =====`, `POS -> word logp`."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError
from inout.grammars.formats.source import (
    Collector,
    Duplicates,
    Reading,
    Source,
    log_weight,
    shortened,
)
from inout.grammars.formats.writing import inexpressible
from inout.grammars.table import RuleTable

LEXICON = "===== LEXICON ====="
_TOKEN = re.compile(r"[^ \t]+")


def read(source: Source, *, start: str | None, duplicates: Duplicates) -> Reading:
    """The rules of a text in the WSJ format, with natural logs of weights.

    The first line is a header of `key=value` fields, of which `start=` counts. Right sides are
    nonterminals before the line `===== LEXICON =====` and terminals after it, of any number. There
    are no comments: `#` is a symbol of the Penn Treebank.
    """
    collector = Collector(source, duplicates)
    symbol: Callable[[str], int] = collector.nonterminal
    offset = 0
    for line in source.text.split("\n"):
        fields = _TOKEN.findall(line)
        if len(fields) >= 3 and fields[1] == "->":
            try:
                weight = log_weight(fields[-1])
            except ValueError as error:
                raise source.error(offset + line.rindex(fields[-1]), str(error)) from None
            lhs = collector.nonterminal(fields[0])
            collector.rule(lhs, tuple(map(symbol, fields[2:-1])), weight, offset)
        elif fields:
            is_header = all(re.match("[^=]+=", field) for field in fields)
            if len(collector) == 0 and symbol == collector.nonterminal and is_header:
                for field in _TOKEN.finditer(line):
                    key, _, value = field[0].partition("=")
                    if key == "start" and value:
                        collector.declare_start(value, offset + field.start() + len("start="))
            elif line.strip(" \t") == LEXICON and symbol == collector.nonterminal:
                symbol = collector.terminal
            else:
                raise source.error(offset, _complaint(fields, line))
        offset += len(line) + 1
    return collector.reading(start, first_is_start=False)


def _complaint(fields: list[str], line: str) -> str:
    if line.strip(" \t") == LEXICON:
        return "expected one line that starts the lexicon, found another"
    if len(fields) > 1 and fields[1] == "->":
        return f"expected a right side and a log-weight after '->', found {shortened(line)}"
    return f"expected LEFT -> RIGHT... LOG-WEIGHT, found {shortened(line)}"


def write(table: RuleTable, log_weights: NDArray[np.float64]) -> str:
    """The rules of nonterminals (and empty ones), then those of terminals, each in order.

    A rule that mixes terminals and nonterminals raises ArgumentError, as do symbols with blanks.
    """
    for text in (*table.nonterminals, *table.terminals):
        if not text or re.search(r"[ \t\n\r]", text):
            raise inexpressible("wsj", "symbol", text)
    words = np.bincount(table.owners, weights=table.rhs < 0, minlength=len(table))
    mixed = np.flatnonzero((words > 0) & (words < table.arities))
    if len(mixed):
        wanted = ": wsj has no rules that mix terminals and nonterminals"
        raise ArgumentError("format", f"{wanted}. Got {table[int(mixed[0])]}; use json")
    values = [repr(w) for w in log_weights.tolist()]
    names = [table.nonterminals[n] if n >= 0 else table.terminals[-1 - n] for n in table.rhs]
    lines = [
        " ".join([table.nonterminals[lhs], "->", *names[first:end], value])
        for lhs, first, end, value in zip(
            table.lhs.tolist(), table.offsets[:-1].tolist(), table.offsets[1:].tolist(), values,
            strict=True,
        )
    ]  # fmt: skip
    phrases = [line for line, n in zip(lines, words, strict=True) if not n]
    lexicon = [line for line, n in zip(lines, words, strict=True) if n]
    header = f"format=inout start={table.start}"
    return "\n".join([header, *phrases, LEXICON, *lexicon]) + "\n"
