"""The diagnosis of a grammar as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

from rich.text import Text

from inout.cli import formats
from inout.cli.formats import json_line, number
from inout.cli.paper import Paper
from inout.grammars import Diagnosis, Grammar
from inout.viz.labels import clean

FORMAT = "inout check 1"
MOST_NAMES = 12
MOST_CYCLES = 5


def problems(found: Diagnosis, weighted: bool) -> list[str]:
    """The names of the problems; with `weighted`, sums other than 1 are no problem."""
    wrong = [name for name in ("undefined", "unreachable", "unproductive") if getattr(found, name)]
    if not weighted:
        wrong += ["infinite"] * (found.log_partition == math.inf)
        wrong += ["improper"] * bool(found.improper)
        wrong += ["inconsistent"] * (found.consistency.consistent is False)
    return wrong


def print_diagnosis(
    paper: Paper, name: str, grammar: Grammar, found: Diagnosis, weighted: bool
) -> None:
    """Print the diagnosis, one line each, with problems in colour."""
    wrong = problems(found, weighted)
    paper.line(Text(clean(name), style="bold"))
    paper.line()
    size = ", ".join(
        formats.plural(number, noun)
        for number, noun in (
            (len(grammar), "rule"),
            (len(grammar.nonterminals), "nonterminal"),
            (len(grammar.terminals), "terminal"),
        )
    )
    rows = [("size", size, False), ("start symbol", clean(grammar.start), False)]
    for kind in ("undefined", "unreachable", "unproductive"):
        names = getattr(found, kind)
        rows.append((kind, _listed(map(clean, names), len(names)), kind in wrong))
    rows.append(("sums", _sums(found), "improper" in wrong))
    rows.append(("consistency", _consistency(found), "inconsistent" in wrong))
    rows += [(*row, "infinite" in wrong) for row in _numbers(found)]
    rows.append(("cycles", _cycles(grammar, found), False))
    paper.pairs([(title, Text(text, style="red" if bad else "")) for title, text, bad in rows])
    paper.line()
    if wrong:
        paper.line(f"{formats.plural(len(wrong), 'problem')}: {', '.join(wrong)}", "red")
    else:
        paper.line("no problems", "green")


def as_json(name: str, grammar: Grammar, found: Diagnosis, weighted: bool) -> str:
    """The whole diagnosis as one line of JSON; infinities are strings."""
    wrong = problems(found, weighted)
    expected = found.expectations
    document: dict[str, Any] = {
        "format": FORMAT,
        "grammar": name,
        "ok": not wrong,
        "problems": wrong,
        "start": grammar.start,
        "rules": len(grammar),
        "nonterminals": len(grammar.nonterminals),
        "terminals": len(grammar.terminals),
        "undefined": found.undefined,
        "unreachable": found.unreachable,
        "unproductive": found.unproductive,
        "improper": {name: number(total) for name, total in found.improper.items()},
        "proper": found.consistency.proper,
        "spectral_radius": number(found.consistency.spectral_radius),
        "leaking": found.consistency.leaking,
        "consistent": found.consistency.consistent,
        "log_partition": number(found.log_partition),
        "expected_length": None if expected is None else number(expected.length),
        "expected_rules": None if expected is None else number(expected.rules),
        "entropy": None if expected is None else number(expected.entropy),
        "cycles": [
            {
                "nonterminals": cycle.nonterminals,
                "rules": [str(grammar.rules[r]) for r in cycle.rules],
            }
            for cycle in found.cycles
        ],
    }
    return json_line(document)


def _listed(names: Iterable[str], total: int) -> str:
    return f"{total:,}: {_first(names, total)}" if total else "none"


def _first(names: Iterable[str], total: int) -> str:
    shown = " ".join(islice(names, MOST_NAMES))
    more = total - MOST_NAMES
    return f"{shown} … {more:,} more; --json has all" if more > 0 else shown


def _sums(found: Diagnosis) -> str:
    if not found.improper:
        return "the weights of each left side sum to 1"
    parts = (f"{clean(name)} {total:.6g}" for name, total in found.improper.items())
    count = len(found.improper)
    sides = formats.plural(count, "left side")
    return f"the weights of {sides} do not sum to 1: {_first(parts, count)}"


def _consistency(found: Diagnosis) -> str:
    about = found.consistency
    radius = f"spectral radius {about.spectral_radius:.6g}"
    if not about.proper:
        ways = "; inout convert --normalise fixes that" if found.expectations else ""
        return f"the weights are not probabilities ({radius}){ways}"
    if about.leaking:
        return f"some never end: no finite tree for {_listed(about.leaking, len(about.leaking))}"
    if about.consistent is None:
        return f"{radius}: the probabilities of all trees sum to 1, their mean size is infinite"
    if about.consistent:
        return f"the probabilities of all trees sum to 1 ({radius})"
    share = formats.probability(found.log_partition)
    return f"the probabilities of all trees sum to {share}, not to 1 ({radius})"


def _numbers(found: Diagnosis) -> list[tuple[str, str]]:
    expected = found.expectations
    if expected is None:
        zero = found.log_partition == -math.inf
        what = "0: there is no tree" if zero else "infinite: the sum over all trees diverges"
        return [("Z", what)]
    log_z = 0.0 if abs(found.log_partition) < 1e-12 else found.log_partition
    return [
        ("log Z", formats.log(log_z)),
        ("expected length", f"{expected.length:.4f} words, {expected.rules:.4f} rules"),
        ("entropy", f"{expected.entropy:.4f} nats, {expected.entropy / math.log(2):.4f} bits"),
    ]


def _cycles(grammar: Grammar, found: Diagnosis) -> str:
    if not found.cycles:
        return "none"
    shown = [
        ", ".join(clean(str(grammar.rules[r])) for r in cycle.rules)
        for cycle in found.cycles[:MOST_CYCLES]
    ]
    more = len(found.cycles) - len(shown)
    tail = f"; {more:,} more" if more else ""
    return f"{len(found.cycles)}, giving infinitely many trees: {'; '.join(shown)}{tail}"
