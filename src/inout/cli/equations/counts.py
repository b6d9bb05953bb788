"""The expected counts of a relation as a table, highest first."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from inout.cli import formats
from inout.cli.equations.solve import Answer
from inout.forest.labels import format_value

_PLAIN = re.compile(r"[^\s\"]+")
_INTEGER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True)
class CountTable:
    """Rows of values, weight and expected count, and a remark on the rows left out."""

    headers: Sequence[str]
    arity: int
    rows: Sequence[tuple[Sequence[str], str, float]]
    rest: str


def count_table(answer: Answer, name: str, most: int) -> CountTable:
    """The `most` facts of a relation with the highest expected counts, as text."""
    facts, counts = answer.facts[name], answer.counts[name]
    order = sorted(range(len(counts)), key=lambda row: -counts[row])
    used = [row for row in order if counts[row] > 0]
    shown = used[:most]
    arity = max((len(facts.rows[row]) for row in shown), default=0)
    as_weight = formats.probability if answer.request.probabilities else formats.log
    rows = []
    for row in shown:
        values = [written(value) for value in facts.rows[row]]
        values += [""] * (arity - len(values))
        rows.append((values, as_weight(float(facts.log_weights[row])), counts[row]))
    weight = "weight" if answer.request.probabilities else "log-weight"
    headers = [*([name, *[""] * (arity - 1)] if arity else []), weight, "expected"]
    return CountTable(headers, arity, rows, _rest(counts, used, len(shown)))


def _rest(counts: Sequence[float], used: Sequence[int], shown: int) -> str:
    left = len(counts) - shown
    if not left:
        return "" if shown else "(no facts)"
    rows = formats.plural(left, "more row" if shown else "row")
    if len(used) == shown:
        return f"{rows} that no derivation uses"
    return f"{rows}, none above {counts[used[shown]]:.4f}; --json has all"


def written(constant: Hashable) -> str:
    """A value of a fact; an ambiguous string is quoted.

    >>> written("NP"), written(3), written("3"), written("a b")
    ('NP', '3', '"3"', '"a b"')
    """
    plain = isinstance(constant, str) and _PLAIN.fullmatch(constant)
    if plain and not _INTEGER.fullmatch(str(constant)):
        return str(constant)
    return format_value(constant)
