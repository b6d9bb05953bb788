"""The demonstration: a sentence with two readings, and what an inside algorithm says about it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from inout import programs
from inout.cli import formats
from inout.cli.paper import Paper, bar_text
from inout.cli.solve import Answer, GoalAnswer, answer
from inout.cli.trees import WORD, draw
from inout.deduction import Facts
from inout.forest import Forest, Item
from inout.forest.pictures import as_graph
from inout.viz import Graph, HyperEdge, Node, text
from inout.viz.branches import side_by_side

SENTENCE = "time flies like an arrow"
PROGRAM = "cnf"

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


def run(paper: Paper) -> Answer:
    """Print the demonstration; returns what it was about."""
    rules = Facts(list(GRAMMAR), [math.log(p) for p in GRAMMAR.values()])
    given = {name: Facts.of(rows) for name, rows in programs.sentence(SENTENCE.split()).items()}
    facts = {"rule": rules, **given}
    forest = programs.load(PROGRAM).ground(facts)
    solved = answer(SENTENCE, forest, facts, frozenset(given), best=2, seconds={})
    _print(paper, solved)
    return solved


def _print(paper: Paper, solved: Answer) -> None:
    goal = solved.goals[0]
    assert goal.best is not None and goal.entropy is not None
    paper.line(Text.assemble((SENTENCE, "bold"), ("   a sentence with two readings", "dim")))

    paper.heading("A grammar", "rules with their probabilities")
    for line in _grammar_lines():
        paper.line(f"   {line}")

    paper.heading("Inside", f"the program {PROGRAM}, three equations, sums over all trees")
    paper.line(f"   log Z = {goal.log_partition:.4f}", "bold")
    paper.sentence(
        f"   The sentence has probability {formats.probability(goal.log_partition)}, the sum over "
        f"{goal.count} trees. Their entropy is {goal.entropy:.4f} nats."
    )

    paper.heading("Two readings", "each with its probability given the sentence")
    _print_readings(paper, goal, solved)

    paper.heading("The packed forest", "both trees at once; what they share is there once")
    for line in text.forest(_phrases(solved.forest)).split("\n"):
        paper.line(f"   {line}")

    paper.heading("Expected counts", "how often each rule is used: the gradient of log Z")
    _print_counts(paper, solved)

    paper.heading("Where to go next")
    paper.pairs(
        [
            ("   inout demo --html demo.html", "the same with drawings, for a browser"),
            ("   inout programs", "inside algorithms to start from"),
            (f"   inout programs {PROGRAM}", "the one that was used here"),
            ("   inout solve --help", "your own equations and facts"),
            ("   docs/tutorial.md", "the same from Python, and much more"),
        ]
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
        rows.append([f"   {left} → {' '.join(right)}", f"{count:.3f}", bar_text(count, 2.0)])
    paper.table(["   rule", "expected", ""], rows, "lrl")


def _phrases(forest: Forest) -> Graph:
    """The forest over symbols with their spans and words, without rules."""
    graph = as_graph(forest)
    labels: dict[int | str, str] = {}
    for node in graph.nodes:
        match forest.labels[int(node.id)]:
            case Item(relation="beta", arguments=(symbol, i, k)):
                labels[node.id] = f"{symbol}[{i},{k}]"
            case Item(relation="word", arguments=(word, _, _)):
                labels[node.id] = str(word)
    nodes = [
        Node(n.id, labels[n.id], n.kind, n.weight, n.level)
        for n in graph.nodes
        if n.id in labels and not forest.labels[int(n.id)] == WORD
    ]
    edges = [
        HyperEdge(e.head, tuple(t for t in e.tails if t in labels), e.weight)
        for e in graph.edges
        if e.head in labels
    ]
    return Graph(nodes, edges)
