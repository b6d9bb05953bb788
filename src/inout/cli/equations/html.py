"""An `Answer` as a self-contained page: numbers, trees, expected counts, the forest."""

from __future__ import annotations

from inout.cli import formats
from inout.cli.equations.phrases import phrase_graph
from inout.cli.equations.solve import Answer, GoalAnswer
from inout.cli.equations.text import GOAL_HEADERS, NO_DERIVATION, count_table, goal_rows, numbers
from inout.forest.export import as_graph
from inout.viz import page, svg

MOST_ROWS = 60
MOST_SHOWN_GOALS = 100
MOST_DRAWN_GOALS = 5


def as_html(answer: Answer) -> str:
    """The whole page."""
    sections = [("Numbers", _numbers(answer))]
    for goal in [goal for goal in answer.goals if goal.best][:MOST_DRAWN_GOALS]:
        name = "" if len(answer.goals) == 1 else f" of {goal.label}"
        sections.append((f"Best derivations{name}", _derivations(answer, goal)))
    sections += [
        (f"Expected counts of {name}", _counts(answer, name))
        for name in answer.facts
        if name not in answer.from_sentence
    ]
    sections.append(("Forest", _forest(answer)))
    return page.html(answer.title, sections)


def _numbers(answer: Answer) -> str:
    if len(answer.goals) == 1:
        table = page.named_values(numbers(answer.goals[0], answer))
    else:
        shown = goal_rows(answer.goals[:MOST_SHOWN_GOALS])
        table = page.table(shown, GOAL_HEADERS, align="lrrr")
    remarks = []
    if not any(goal.count for goal in answer.goals):
        remarks.append(page.paragraph(NO_DERIVATION))
    remarks += [page.paragraph(f"Note: {note}") for note in answer.notes]
    return "\n".join([table, *remarks])


def _derivations(answer: Answer, goal: GoalAnswer) -> str:
    assert goal.best is not None
    pictures = []
    for rank, derivation in enumerate(goal.best, 1):
        tree = answer.tree(derivation)
        share = formats.probability(derivation.log_weight - goal.log_partition)
        caption = f"{rank} · probability {share} · log-weight {formats.log(derivation.log_weight)}"
        pictures.append((page.tree(tree, baseline=answer.phrases), caption))
    return page.figures(pictures)


def _counts(answer: Answer, name: str) -> str:
    table = count_table(answer, name, MOST_ROWS)
    remark = page.paragraph(table.rest) if table.rest else ""
    if len(answer.goals) > 1:
        remark += page.paragraph("Summed over all goals.")
    if not table.rows:
        return remark
    outside = [formats.log(answer.log_outside[name][row]) for row in table.numbers]
    drawn = page.table(
        [
            [*values, weight, around, count]
            for (values, weight, count), around in zip(table.rows, outside, strict=True)
        ],
        [*table.headers[:-1], "log-outside", table.headers[-1]],
        align="l" * table.arity + "rrr",
        bars=[table.arity + 2],
        full=max(1.0, table.rows[0][2]),
    )
    return drawn + remark


def _forest(answer: Answer) -> str:
    if not answer.forest.num_edges:
        return page.paragraph("(empty)")
    graph = phrase_graph(answer.forest) if answer.phrases else as_graph(answer.forest)
    without = " Of the facts, only words are drawn." if answer.phrases else ""
    note = page.paragraph(
        "All derivations, packed. Goals are at the top; each dot is one way to derive the item "
        "above it from the items below; stronger lines and shades are more probable. Tooltips "
        f"show the numbers.{without}"
    )
    return note + page.figures([(svg.forest(graph), "")])
