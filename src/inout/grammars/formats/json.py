"""The JSON format: every symbol and every bit of every log-weight."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import GrammarError
from inout.grammars.formats.source import Collector, Duplicates, Reading, Source
from inout.grammars.table import RuleTable, Symbol, Terminal

FORMAT, VERSION = "inout grammar", 1
_BLANK = re.compile(r"[ \t\n\r]*")
_Path = tuple[str | int, ...]


class _Wrong(Exception):
    """A problem with the value at a path; becomes an error once its place is found."""

    def __init__(self, path: _Path, message: str) -> None:
        self.path, self.message = path, message


def read(source: Source, *, start: str | None, duplicates: Duplicates) -> Reading:
    """The rules of a JSON text as `write` makes them."""
    try:
        data = json.loads(source.text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise source.error(error.pos, f"expected JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise source.error(0, f"expected JSON: {error}") from None
    try:
        return _read(source, data, start, duplicates)
    except _Wrong as wrong:
        raise _error(source, wrong) from None


def _read(source: Source, data: Any, start: str | None, duplicates: Duplicates) -> Reading:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise _Wrong((), f'expected an object with "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise _Wrong(("version",), f'expected "version": {VERSION}, the newest there is')
    if not isinstance(data.get("start"), str):
        raise _Wrong(("start",), 'expected "start" and the start symbol, a string')
    rules = data.get("rules")
    if not isinstance(rules, list):
        raise _Wrong(("rules",), 'expected "rules" and a list of rules')
    collector = Collector(source, duplicates)
    for number, row in enumerate(rules):
        if not isinstance(row, list) or len(row) != 3:
            raise _Wrong(("rules", number), "expected [left side, right side, log-weight]")
        lhs, rhs, weight = row
        if not isinstance(lhs, str):
            raise _Wrong(("rules", number, 0), "expected a left side, a string")
        if not isinstance(rhs, list):
            raise _Wrong(("rules", number, 1), "expected a right side, a list of symbols")
        head = collector.nonterminal(lhs)
        codes = tuple(_symbol(collector, s, ("rules", number, 1, i)) for i, s in enumerate(rhs))
        value = _log_weight(weight, ("rules", number, 2))
        # Places are computed only for errors, so duplicate rules are detected here.
        first = collector._rules.get((head, *codes))
        if first is not None and duplicates == "error":
            raise _Wrong(("rules", number), f"duplicate of rule {first}, counted from 0")
        collector.rule(head, codes, value, 0)
    named = data["start"] if start is None else start
    if named not in {row[0] for row in rules} and rules and start is None:
        raise _Wrong(("start",), f"the start symbol {named} has no rule")
    return collector.reading(named)


def _symbol(collector: Collector, value: Any, path: _Path) -> int:
    if isinstance(value, str):
        return collector.nonterminal(value)
    if isinstance(value, dict) and list(value) == ["terminal"]:
        text = value["terminal"]
        if isinstance(text, str):
            return collector.terminal(text)
    raise _Wrong(path, 'expected a nonterminal "A" or a terminal {"terminal": "a"}')


def _log_weight(value: Any, path: _Path) -> float:
    if value == "-inf":
        return -math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Wrong(path, 'expected a log-weight: a number or "-inf"')
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _Wrong(path, 'expected a log-weight: a finite number or "-inf"')
    return number


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _error(source: Source, wrong: _Wrong) -> GrammarError:
    text, at = source.text, _BLANK.match(source.text).end()  # type: ignore[union-attr]
    for step in wrong.path:
        inner = _enter(text, at, step)
        if inner is None:
            break
        at = inner
    return source.error(at, wrong.message)


def _enter(text: str, at: int, step: str | int) -> int | None:
    """Where the member `step` of the valid JSON value at `at` starts, or None without one."""
    decoder = json.JSONDecoder()
    at = _skip(text, at + 1)
    count = 0
    found = None
    while text[at] not in "]}":
        key: Any = count
        if isinstance(step, str):
            key, at = decoder.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        if key == step:
            found = at  # of equal keys the last one counts
            if isinstance(step, int):
                return found
        at = _skip(text, decoder.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _skip(text, at + 1)
        count += 1
    return found


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def write(table: RuleTable, log_weights: NDArray[np.float64]) -> str:
    """A JSON object with one rule per line: `["S", ["NP", {"terminal": "a"}], log-weight]`."""
    dump = json.JSONEncoder(ensure_ascii=False).encode

    def plain(symbol: Symbol) -> Any:
        return {"terminal": symbol.text} if isinstance(symbol, Terminal) else symbol

    rows = [
        dump([lhs, [plain(s) for s in rhs], "-inf" if weight == -math.inf else weight])
        for (lhs, rhs), weight in zip(table.named(), log_weights.tolist(), strict=True)
    ]
    head = f'"format": "{FORMAT}", "version": {VERSION}, "start": {dump(table.start)}'
    return f'{{{head},\n"rules": [\n' + ",\n".join(rows) + "\n]}\n"
