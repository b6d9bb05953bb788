"""The demonstration: a sentence with two readings, and what an inside algorithm says about it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from inout import programs
from inout.cli import formats
from inout.cli.paper import Paper, bar_text
from inout.cli.solve import Answer, GoalAnswer, Request, answer
from inout.cli.trees import draw, phrase_graph
from inout.deduction import Facts
from inout.forest import Forest
from inout.viz.branches import side_by_side

SENTENCE = "time flies like an arrow"
PROGRAM = "cnf_inside"

# Probabilities of rules given their left-hand sides.
GRAMMAR: dict[tuple[str, ...], float] = {
    ("S", "NP", "VP"): 1.0,
    ("NP", "Det", "N"): 0.5,
    ("NP", "N", "N"): 0.25,
    ("NP", "time"): 0.25,
    ("VP", "V", "PP"): 0.3,
    ("VP", "V", "NP"): 0.7,
    ("PP", "P", "NP"): 1.0,
    ("N", "time"): 0.4,
    ("N", "flies"): 0.2,
    ("N", "arrow"): 0.4,
    ("V", "flies"): 0.4,
    ("V", "like"): 0.6,
    ("P", "like"): 1.0,
    ("Det", "an"): 1.0,
}


LEAD = "A sentence with two readings, and what the inside algorithm says about it."


def solve_demo() -> Answer:
    """The sentence parsed with the grammar."""
    rules = Facts(list(GRAMMAR), [math.log(p) for p in GRAMMAR.values()])
    given = {name: Facts.of(rows) for name, rows in programs.sentence(SENTENCE.split()).items()}
    given["start"] = Facts([("S",)])
    facts = {"rule": rules, **given}
    forest = programs.load(PROGRAM).ground(facts)
    request = Request(PROGRAM, sentence=SENTENCE, best=2, probabilities=True)
    return answer(request, forest, facts, frozenset(given), seconds={})


def print_demo(paper: Paper, solved: Answer) -> None:
    """Grammar, log Z, trees, forest, expected counts, and where to go next."""
    goal = solved.goals[0]
    assert goal.best is not None and goal.entropy is not None
    paper.line(Text.assemble((SENTENCE, "bold"), ("   a sentence with two readings", "dim")))

    paper.heading("A grammar", "rules with their probabilities")
    for line in _grammar_lines():
        paper.line(f"   {line}")

    paper.heading("Inside", f"the program {PROGRAM}, three equations, sums over all trees")
    paper.line(f"   log Z = {goal.log_partition:.4f}", "bold")
    paper.sentence(
        f"The sentence has probability {formats.probability(goal.log_partition)}, the sum over "
        f"{goal.count} trees. Their entropy is {goal.entropy:.4f} nats.",
        indent=3,
    )

    paper.heading("Two readings", "each with its probability given the sentence")
    _print_readings(paper, goal, solved)

    paper.heading("The packed forest", "both trees at once: X[i,k] is X over the words i to k")
    _print_forest(paper, solved.forest)

    paper.heading("Expected counts", "how often each rule is used: the gradient of log Z")
    _print_counts(paper, solved)

    paper.heading("Where to go next")
    paper.pairs(
        [
            ("inout demo --html demo.html", "the same with drawings, for a browser"),
            ("inout programs", "inside algorithms to start from"),
            (f"inout programs {PROGRAM}", "the one that was used here"),
            ("inout solve --help", "your own equations and facts"),
            ("docs/tutorial.md", "the same from Python, and much more"),
        ],
        indent=3,
    )


def _grammar_lines() -> list[str]:
    """The rules by left-hand side, one line each."""
    sides: dict[str, list[str]] = {}
    for (left, *right), p in GRAMMAR.items():
        sides.setdefault(left, []).append(f"{' '.join(right)} {p:g}")
    width = max(map(len, sides))
    return [f"{left:<{width}} → {' | '.join(right)}" for left, right in sides.items()]


def _print_readings(paper: Paper, goal: GoalAnswer, solved: Answer) -> None:
    assert goal.best is not None
    heads, drawings = [], []
    for derivation in goal.best:
        p = math.exp(derivation.log_weight - goal.log_partition)
        heads.append((f"{p:.3f}  ", p))
        drawings.append(draw(solved.tree(derivation), paper.width - 3))
    together = side_by_side(["\n".join(["0.000  " + " " * 20, d]) for d in drawings], paper.width)
    if together is None:
        for (share, p), drawing in zip(heads, drawings, strict=True):
            paper.line(Text.assemble("   ", (share, "bold"), bar_text(p)))
            paper.line(_indented(drawing))
            paper.line()
        return
    first, _, rest = together.partition("\n")
    second = first.rindex("0.000")
    line = Text.assemble("   ", (heads[0][0], "bold"), bar_text(heads[0][1]))
    line.pad_right(second + 3 - line.cell_len)
    paper.line(Text.assemble(line, (heads[1][0], "bold"), bar_text(heads[1][1])))
    paper.line(_indented(rest))


def _indented(drawing: str) -> str:
    return "\n".join(f"   {line}" for line in drawing.split("\n"))


def _print_counts(paper: Paper, solved: Answer) -> None:
    rows: list[Sequence[str | Text]] = []
    for (left, *right), count in zip(GRAMMAR, solved.counts["rule"], strict=True):
        rows.append([f"{left} → {' '.join(right)}", f"{count:.3f}", bar_text(count)])
    paper.table(["rule", "expected", ""], rows, "lrl", indent=3)


def _print_forest(paper: Paper, forest: Forest) -> None:
    """Every item with its probability and the ways to derive it, rules left out."""
    graph = phrase_graph(forest)
    labels = {node.id: node.label for node in graph.nodes}
    width = max(map(len, labels.values()))
    goals = set(graph.goals)
    for node in sorted(graph.nodes, key=lambda node: -node.level):
        ways = [edge for edge in graph.edges if edge.head == node.id and node.id not in goals]
        for place, edge in enumerate(sorted(ways, key=lambda edge: -(edge.weight or 0.0))):
            tails = " ".join(labels[tail] for tail in edge.tails)
            name = f"{node.weight:.3f}  {labels[node.id]:<{width}}" if place == 0 else ""
            share = f"   {edge.weight:.3f}" if len(ways) > 1 else ""
            paper.line(Text.assemble(f"   {name:<{width + 7}} ← {tails}", (share, "dim")))
