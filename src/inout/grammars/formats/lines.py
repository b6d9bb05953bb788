"""The format `weight<TAB>lhs rhs...`: one rule per line, its weight first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from inout.grammars.formats.source import (
    Collector,
    Duplicates,
    Reading,
    Source,
    log_of_weight,
    log_weight,
    shortened,
)
from inout.grammars.formats.writing import inexpressible, written_weights
from inout.grammars.table import RuleTable, Symbol, Terminal

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[^ \t"][^ \t]*|"[^\n]*')
_BARE = re.compile(r'[^ \t\n\r"][^ \t\n\r]*')
_ARROWS = ("->", "-->")


def read(
    source: Source, *, start: str | None, duplicates: Duplicates, log: bool | None = None
) -> Reading:
    r"""The rules of a text of lines `weight<TAB>lhs rhs...`.

    Fields are separated by tabs or blanks; an arrow `->` or `-->` after the left side is left out.
    Weights are logs after a line `%weights log` or with `log`. A symbol that is never a left side
    is a terminal, unless a line `%nonterminals A B` names it; a symbol in double quotes (a JSON
    string) is a terminal always. `%start S` names the start symbol, which is otherwise the first
    left side. Lines that begin with `#` are comments.
    """
    collector = Collector(source, duplicates)
    rows, names = [], set[str]()
    for offset, line in _lines(source.text):
        if line.lstrip(" \t")[0] != "%":
            fields = _TOKEN.findall(line)
            rows.append((offset, line, fields))
            names.update(fields[1:2])
            continue
        directive, *arguments = _TOKEN.findall(line)
        place = offset + line.index("%")
        if directive == "%start" and len(arguments) == 1:
            collector.declare_start(arguments[0], offset + line.rindex(arguments[0]))
        elif directive == "%weights" and arguments in (["log"], ["probability"]):
            log = arguments == ["log"] if log is None else log
        elif directive == "%nonterminals":
            names.update(arguments)
        else:
            raise source.error(
                place,
                "expected '%start SYMBOL', '%weights log', '%weights probability' or "
                f"'%nonterminals SYMBOL...', found {shortened(line)}",
            )
    to_log = log_weight if log else log_of_weight
    for offset, line, fields in rows:
        if len(fields) < 2:
            raise source.error(
                offset + len(line.rstrip()), "expected a weight, a left side and a right side"
            )
        weight, lhs, *rhs = fields
        if lhs in _ARROWS:
            raise source.error(offset + line.index(lhs), f"expected a left side, found '{lhs}'")
        if rhs and rhs[0] in _ARROWS:
            del rhs[0]
        try:
            value = to_log(weight)
        except ValueError as error:
            raise source.error(offset + line.index(weight), str(error)) from None
        if '"' in line:
            _check_quotes(source, offset, line)
        head = collector.nonterminal(lhs)
        codes = tuple(
            collector.nonterminal(s)
            if s in names
            else collector.terminal(json.loads(s) if s[0] == '"' else s)
            for s in rhs
        )
        collector.rule(head, codes, value, offset + len(line) - len(line.lstrip(" \t")))
    return collector.reading(start)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Where each line with something in it starts, and the line."""
    offset = 0
    for line in text.split("\n"):
        stripped = line.strip(" \t")
        if stripped and stripped[0] != "#":
            yield offset, line
        offset += len(line) + 1


def _check_quotes(source: Source, offset: int, line: str) -> None:
    """Refuse quoted left sides, unclosed quotes, and text right after a closing quote."""
    for number, match in enumerate(_TOKEN.finditer(line)):
        place, token = offset + match.start(), match[0]
        if token[0] != '"':
            continue
        if number < 2:
            wanted = "a weight" if number == 0 else "a nonterminal, which has no quotes"
            raise source.error(place, f"expected {wanted}, found {shortened(token)}")
        if len(token) == 1 or token[-1] != '"':
            raise source.error(
                place,
                'the terminal is not closed: expected another " on the same line '
                r'(a quote itself is written "\"")',
            )
        if line[match.end() : match.end() + 1] not in ("", " ", "\t"):
            raise source.error(offset + match.end(), 'expected a blank after the closing "')
        try:
            json.loads(token)
        except ValueError:
            raise source.error(
                place, f"expected a JSON string in double quotes, found {shortened(token)}"
            ) from None


def write(table: RuleTable, log_weights: NDArray[np.float64], *, log: bool = False) -> str:
    """The rules, one per line, after their weights, or with `log` their log-weights."""
    lefts = {table.nonterminals[n] for n in set(table.lhs.tolist())}
    names = {name: _bare(name) for name in table.nonterminals}
    texts = {text: _terminal(text, names) for text in table.terminals}
    undefined = [name for name in table.nonterminals if name not in lefts]

    def written(symbol: Symbol) -> str:
        return texts[symbol.text] if isinstance(symbol, Terminal) else names[symbol]

    weights = [repr(w) for w in log_weights.tolist()] if log else written_weights(log_weights)
    lines = ["%weights log"] if log else []
    lines.append(f"%start {table.start}")
    if undefined:
        lines.append(" ".join(["%nonterminals", *undefined]))
    for (lhs, rhs), weight in zip(table.named(), weights, strict=True):
        lines.append(f"{weight}\t" + " ".join([lhs, *map(written, rhs)]))
    return "\n".join(lines) + "\n"


def _bare(name: str) -> str:
    if _BARE.fullmatch(name) is None or name in _ARROWS:
        raise inexpressible("lines", "nonterminal", name)
    return name


def _terminal(text: str, names: dict[str, str]) -> str:
    if _BARE.fullmatch(text) is None or text in names or text in _ARROWS:
        return json.dumps(text, ensure_ascii=False)
    return text
