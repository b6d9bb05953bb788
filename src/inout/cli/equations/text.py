"""An `Answer` as text for a person."""

from __future__ import annotations

import math

from rich.text import Text

from inout.cli import formats
from inout.cli.drawing import draw
from inout.cli.equations.counts import CountTable, count_table
from inout.cli.equations.solve import Answer, GoalAnswer
from inout.cli.paper import Paper, bar_text
from inout.viz import text
from inout.viz.labels import clean

MOST_ROWS = 15
MOST_SHOWN_GOALS = 20
MOST_DRAWN_GOALS = 5


def print_answer(paper: Paper, answer: Answer) -> None:
    """Print numbers, the best derivations, expected counts."""
    paper.line(Text(clean(answer.title), style="bold"))
    paper.line()
    if len(answer.goals) == 1:
        paper.pairs(numbers(answer.goals[0], answer))
    else:
        _print_goals(paper, answer)
    if not any(goal.count for goal in answer.goals):
        _print_no_derivation(paper, answer)
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
    forest = answer.forest
    rows = [("log Z", formats.log(goal.log_partition))]
    if goal.count:
        rows.append(("Z", formats.probability(goal.log_partition)))
    rows.append(("derivations", formats.whole(goal.count)))
    if goal.count and goal.entropy is not None:
        rows.append(("entropy", f"{abs(goal.entropy):.4f} nats"))
    size = f"{formats.plural(forest.num_items, 'item')}, {formats.plural(forest.num_edges, 'edge')}"
    rows.append(("forest", size))
    return rows


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
        paper.line(
            Text.assemble(
                (f"{rank}", "bold"),
                f"  probability {formats.probability(log_probability)}  ",
                bar_text(math.exp(min(log_probability, 0.0))),
                (f"  log-weight {formats.log(derivation.log_weight)}", "dim"),
            )
        )
        paper.line()
        tree = answer.tree(derivation)
        drawing = draw(tree, paper.width - 3) if answer.phrases else text.tree(tree)
        paper.drawing(drawing, "--json has all items")


def print_counts(paper: Paper, answer: Answer, name: str) -> None:
    """The facts of one relation that are used most, with bars."""
    table = count_table(answer, name, MOST_ROWS)
    several = len(answer.goals) > 1
    paper.heading(f"Expected counts of {clean(name)}", "summed over all goals" if several else "")
    if table.rows:
        cells: list[list[str | Text]] = [
            [*map(clean, values), Text(weight, style="dim"), f"{count:.4f}", _bar(count, table)]
            for values, weight, count in table.rows
        ]
        headers = [*map(clean, table.headers), ""]
        paper.table(headers, cells, "l" * table.arity + "rrl")
    if table.rest:
        paper.line(table.rest, "dim")


def _bar(count: float, table: CountTable) -> Text:
    return bar_text(count, max(1.0, table.rows[0][2]))


def _print_goals(paper: Paper, answer: Answer) -> None:
    shown = answer.goals[:MOST_SHOWN_GOALS]
    rows = [
        [
            clean(str(goal.label)),
            formats.log(goal.log_partition),
            formats.whole(goal.count),
            "" if goal.entropy is None or not goal.count else f"{abs(goal.entropy):.4f}",
        ]
        for goal in shown
    ]
    if rows:
        paper.table(["goal", "log Z", "derivations", "entropy"], rows, "lrrr")
    if len(answer.goals) > len(shown):
        rest = formats.plural(len(answer.goals) - len(shown), "more goal")
        paper.line(f"... {rest}; --json has all", "dim")
    forest = answer.forest
    paper.line()
    paper.pairs(
        [
            (
                "forest",
                f"{formats.plural(forest.num_items, 'item')}, "
                f"{formats.plural(forest.num_edges, 'edge')}",
            )
        ]
    )


def _print_no_derivation(paper: Paper, answer: Answer) -> None:
    paper.line()
    paper.sentence("No derivation: the facts do not derive the goal.", "yellow")
