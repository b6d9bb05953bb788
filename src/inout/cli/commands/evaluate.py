"""`inout eval`."""

from __future__ import annotations

from inout._core.errors import ArgumentError
from inout.cli.commands.options import JSON, argument, count, flag, option
from inout.cli.messages import note
from inout.cli.progress import status

EXAMPLES = """A sentence without a parse is an empty line or (()); its gold brackets count as \
missed.

[bold]Examples[/bold]

  inout eval gold.mrg parses.mrg
  inout parse grammar.cfg dev.txt --format bracketed | inout eval gold.mrg -
  inout eval gold.mrg parses.mrg --punctuation --root --json
"""


def evaluate(
    gold: str = argument("GOLD", "Treebank in brackets."),
    parses: str = argument("PARSES", "One tree per line, in the same order; - is stdin."),
    cutoff: int = option("--cutoff", "N", "Also score the sentences of up to N words.", 40),
    width: int = option("--width", "N", "Width of the length ranges in the table.", 10),
    punctuation: bool = flag("--punctuation", "Count punctuation, which evalb ignores."),
    root: bool = flag("--root", "Count the root bracket (TOP, ROOT)."),
    functions: bool = flag("--functions", "Keep function tags: NP-SBJ is not NP."),
    skip_failures: bool = flag("--skip-failures", "Skip sentences without a parse, as evalb does."),
    untagged: bool = flag("--untagged", "Allow words without a tag."),
    as_json: bool = JSON,
) -> None:
    """Score parses against a treebank (PARSEVAL, as evalb does): brackets, exact match, tags."""
    count("--cutoff", cutoff, 1)
    count("--width", width, 1)
    if gold == parses == "-":
        raise ArgumentError(None, "only one of GOLD and PARSES can be standard input")
    with status() as line:
        from inout.cli.grammars import evaluate as report

        line.say("comparing")
        counted = report.options(
            punctuation=punctuation, root=root, functions=functions, skip_failures=skip_failures
        )
        scores = report.evaluate(gold, parses, counted, untagged)
    for text in report.notes(scores):
        note(text)
    if as_json:
        print(report.as_json(gold, parses, scores, cutoff, width))
    else:
        print(scores.table(cutoff, width))
