"""NLTK's format: `S -> NP VP [0.9] | V [0.1]`, terminals in quotes."""

from __future__ import annotations

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
    shortened,
)
from inout.grammars.formats.writing import inexpressible, written_weights
from inout.grammars.table import RuleTable, Terminal

_CONTINUED = re.compile(r"^(?![ \t]*#).*\\[ \t]*\n", re.MULTILINE)
# Wider than NLTK's own nonterminals, which are words with / ^ < > and - in them.
_NONTERMINAL = r"""[^\s'"|\[\]\\#%][^\s'"|\[\]\\]*"""
_LEFT = re.compile(rf"(?P<name>{_NONTERMINAL})\s*")
_ARROW = re.compile(r"->\s*")
_START = re.compile(r"%\s*start\s+(?P<name>\S+)\s*(?:#.*)?$")
_TOKEN = re.compile(
    rf"""(?:(?P<nonterminal>{_NONTERMINAL})
    | (?P<terminal>"[^"]*"|'[^']*')
    | (?P<bar>\|)
    | \[\s*(?P<weight>[^\]\s]*)\s*\]
    | (?P<comment>\#.*)
    )\s*""",
    re.VERBOSE,
)


def read(source: Source, *, start: str | None, duplicates: Duplicates) -> Reading:
    """The rules of a text in NLTK's format.

    One left side per line, its right sides separated by `|`; a line that ends in a backslash, or
    one that starts with `|`, continues. A right side may be empty. A weight in brackets ends a
    right side, and is 1 where there is none. `%start S` names the start symbol, which is otherwise
    the first left side. `#` starts a comment where a symbol could start.
    """
    collector = Collector(source, duplicates)
    lhs: int | None = None
    for first, line in _lines(source.text):
        if line[0] == "%":
            match = _START.match(line)
            if match is None:
                raise source.error(first, "expected '%start' and one symbol, or a rule")
            collector.declare_start(match["name"], first + match.start("name"))
        elif line[0] == "|":
            if lhs is None:
                raise source.error(first, "expected a rule before another right side for it")
            _read_right_sides(source, collector, lhs, first, line, 1)
        else:
            lhs, end = _read_left_side(source, collector, first, line)
            _read_right_sides(source, collector, lhs, first, line, end)
    return collector.reading(start)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Where each line with something in it starts, and the line; continued lines are one."""
    # Offsets stay those of the text, so that errors point into it.
    joined = _CONTINUED.sub(lambda m: re.sub(r"\\([ \t]*)\n$", r" \1 ", m[0]), text)
    while joined != text and _CONTINUED.search(joined):
        joined = _CONTINUED.sub(lambda m: re.sub(r"\\([ \t]*)\n$", r" \1 ", m[0]), joined)
    offset = 0
    for line in joined.split("\n"):
        stripped = line.strip()
        if stripped and stripped[0] != "#":
            yield offset + line.index(stripped[0]), stripped
        offset += len(line) + 1


def _read_left_side(source: Source, collector: Collector, first: int, line: str) -> tuple[int, int]:
    """The number of the left side, and where in the line its right sides start."""
    left = _LEFT.match(line)
    if left is None or left["name"] == "->":
        what = "terminals are allowed on the right only" if line[0] in "'\"" else "found " + line[0]
        raise source.error(first, f"expected a nonterminal on the left of a rule; {what}")
    arrow = _ARROW.match(line, left.end())
    if arrow is None:
        hint = " (a blank stands before '->')" if "->" in left["name"] else ""
        found = shortened(line[left.end() :][:20]) if left.end() < len(line) else "the line's end"
        raise source.error(
            first + left.end("name"), f"expected '->' after a left side, found {found}{hint}"
        )
    return collector.nonterminal(left["name"]), arrow.end()


def _read_right_sides(
    source: Source, collector: Collector, lhs: int, first: int, line: str, at: int
) -> None:
    rhs: list[int] = []
    weight: float | None = None
    place = first + min(at, len(line) - 1)
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        token = _TOKEN.match(line, at)
        if token is None:
            raise source.error(first + at, _complaint(line, at))
        kind, found = token.lastgroup, token[token.lastgroup or 0]
        if kind == "comment":
            break
        if kind == "bar":
            collector.rule(lhs, tuple(rhs), weight or 0.0, place)
            rhs, weight, place = [], None, first + min(token.end(), len(line) - 1)
        elif weight is not None:
            raise source.error(first + at, f"expected '|' or the line's end, found {found}")
        elif kind == "weight":
            try:
                weight = log_of_weight(found)
            except ValueError as error:
                raise source.error(first + token.start("weight"), str(error)) from None
        elif kind == "terminal":
            rhs.append(collector.terminal(found[1:-1]))
        elif found == "->":
            raise source.error(first + at, "expected one '->' a line, found another")
        else:
            rhs.append(collector.nonterminal(found))
        at = token.end()
    collector.rule(lhs, tuple(rhs), weight or 0.0, place)


def _complaint(line: str, at: int) -> str:
    if line[at] in "'\"":
        return f"the terminal is not closed: expected another {line[at]} on the same line"
    if line[at] == "[":
        return "the weight is not closed: expected ']' on the same line"
    if line[at] == "\\":
        return "expected the line's end after '\\'"
    return f"expected a symbol, a weight in brackets, '|' or the line's end, found '{line[at]}'"


def write(table: RuleTable, log_weights: NDArray[np.float64]) -> str:
    """The rules, one per line, without weights if all are 1.

    Raises ArgumentError for symbols that the format cannot express: nonterminals with quotes,
    brackets, bars or blanks, and terminals with both kinds of quotes or with line ends.
    """
    names = {name: _nonterminal(name) for name in table.nonterminals}
    texts = {text: _quoted(text) for text in table.terminals}
    bare = not log_weights.any()
    weights = [""] * len(table) if bare else [f" [{w}]" for w in written_weights(log_weights)]
    lines = [f"%start {names[table.start]}"]
    for (lhs, rhs), weight in zip(table.named(), weights, strict=True):
        right = "".join(" " + (texts[s.text] if isinstance(s, Terminal) else names[s]) for s in rhs)
        lines.append(f"{names[lhs]} ->{right}{weight}")
    return "\n".join(lines) + "\n"


def _nonterminal(name: str) -> str:
    if re.fullmatch(_NONTERMINAL, name) is None or name == "->":
        raise inexpressible("nltk", "nonterminal", name)
    return name


def _quoted(text: str) -> str:
    quote = "'" if "'" not in text else '"'
    if quote in text or "\n" in text or "\r" in text:
        raise inexpressible("nltk", "terminal", text)
    return f"{quote}{text}{quote}"
