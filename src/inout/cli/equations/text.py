"""An `Answer` as text for a person."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rich.text import Text

from inout.cli import formats
from inout.cli.equations.solve import Answer, GoalAnswer
from inout.cli.paper import Paper, bar_text, draw
from inout.forest.labels import format_value
from inout.viz import text
from inout.viz.labels import clean

MOST_ROWS = 15
MOST_SHOWN_GOALS = 20
MOST_DRAWN_GOALS = 5
_PLAIN = re.compile(r"[^\s\"]+")
_INTEGER = re.compile(r"-?[0-9]+")
NO_DERIVATION = "No derivation: the facts do not derive the goal."


def print_answer(paper: Paper, answer: Answer) -> None:
    """Print numbers, the best derivations, expected counts."""
    paper.line(Text(clean(answer.title), style="bold"))
    paper.line()
    if len(answer.goals) == 1:
        paper.pairs(numbers(answer.goals[0], answer))
    else:
        _print_goals(paper, answer)
    if not any(goal.count for goal in answer.goals):
        paper.line()
        paper.sentence(NO_DERIVATION, "yellow")
        return
    drawn = [goal for goal in answer.goals if goal.best]
    for goal in drawn[:MOST_DRAWN_GOALS]:
        print_derivations(paper, answer, goal)
    if len(drawn) > MOST_DRAWN_GOALS:
        paper.line()
        paper.line(
            f"the derivations of {len(drawn) - MOST_DRAWN_GOALS:,} more goals: --json", "dim"
        )
    for name in answer.facts:
        if name not in answer.from_sentence:
            print_counts(paper, answer, name)


def numbers(goal: GoalAnswer, answer: Answer) -> list[tuple[str, str]]:
    """Names and values of what is known about one goal and the forest."""
    rows = [("log Z", formats.log(goal.log_partition))]
    if goal.count:
        rows.append(("Z", formats.probability(goal.log_partition)))
    rows.append(("derivations", formats.whole(goal.count)))
    if goal.count and goal.entropy is not None:
        rows.append(("entropy", f"{abs(goal.entropy):.4f} nats"))
    return [*rows, forest_size(answer)]


def forest_size(answer: Answer) -> tuple[str, str]:
    """The size of the forest, with its name."""
    items, edges = answer.forest.num_items, answer.forest.num_edges
    return "forest", f"{formats.plural(items, 'item')}, {formats.plural(edges, 'edge')}"


GOAL_HEADERS = ["goal", "log Z", "derivations", "entropy"]


def goal_rows(goals: Sequence[GoalAnswer]) -> list[list[str]]:
    """The numbers of each goal."""
    return [
        [
            clean(str(goal.label)),
            formats.log(goal.log_partition),
            formats.whole(goal.count),
            "" if goal.entropy is None or not goal.count else f"{abs(goal.entropy):.4f}",
        ]
        for goal in goals
    ]


def print_derivations(paper: Paper, answer: Answer, goal: GoalAnswer) -> None:
    """The best derivations of one goal as trees."""
    assert goal.best is not None
    name = "" if len(answer.goals) == 1 else f" of {clean(str(goal.label))}"
    more = goal.count - len(goal.best)
    note = f"of {formats.whole(goal.count)}" if more > 0 else ""
    paper.heading(f"Best derivations{name}", note)
    for rank, derivation in enumerate(goal.best, 1):
        if rank > 1:
            paper.line()
        log_probability = derivation.log_weight - goal.log_partition
        share = math.exp(min(log_probability, 0.0))
        written = formats.probability(log_probability)
        paper.ranked(f"{rank}", written, share, formats.log(derivation.log_weight))
        tree = answer.tree(derivation)
        drawing = draw(tree, paper.width - 3) if answer.phrases else text.tree(tree)
        paper.drawing(drawing, "--json has all items")


def print_counts(paper: Paper, answer: Answer, name: str) -> None:
    """The facts of one relation that are used most, with bars."""
    table = count_table(answer, name, MOST_ROWS)
    several = len(answer.goals) > 1
    paper.heading(f"Expected counts of {clean(name)}", "summed over all goals" if several else "")
    if table.rows:
        full = max(1.0, table.rows[0][2])
        cells: list[list[str | Text]] = [
            [*map(clean, values), Text(weight, style="dim"), f"{count:.4f}", bar_text(count, full)]
            for values, weight, count in table.rows
        ]
        headers = [*map(clean, table.headers), ""]
        paper.table(headers, cells, "l" * table.arity + "rrl")
    if table.rest:
        paper.line(table.rest, "dim")


@dataclass(frozen=True)
class CountTable:
    """Rows of values, weight and expected count, and a remark on the rows left out."""

    headers: Sequence[str]
    arity: int
    numbers: Sequence[int]  # of the rows, in the relation
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
    return CountTable(headers, arity, shown, rows, _rest(counts, used, len(shown)))


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


def _print_goals(paper: Paper, answer: Answer) -> None:
    shown = answer.goals[:MOST_SHOWN_GOALS]
    if shown:
        paper.table(GOAL_HEADERS, goal_rows(shown), "lrrr")
    if len(answer.goals) > len(shown):
        rest = formats.plural(len(answer.goals) - len(shown), "more goal")
        paper.line(f"... {rest}; --json has all", "dim")
    paper.line()
    paper.pairs([forest_size(answer)])
