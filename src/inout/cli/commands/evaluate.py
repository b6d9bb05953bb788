"""`inout eval`."""

from __future__ import annotations

import sys
from typing import Annotated

from inout._core.errors import ArgumentError
from inout.cli.commands.options import JsonOption, argument, count, flag, option
from inout.cli.progress import status

EXAMPLES = """A sentence without a parse is an empty line or (()); its gold brackets count as \
missed.

[bold]Examples[/bold]

  inout eval gold.mrg parses.mrg
  inout parse grammar.cfg dev.txt --format bracketed | inout eval gold.mrg -
  inout eval gold.mrg parses.mrg --punctuation --root --json
"""


def evaluate(
    gold: Annotated[str, argument("GOLD", "Treebank in brackets.")],
    parses: Annotated[str, argument("PARSES", "One tree per line, in the same order; - is stdin.")],
    cutoff: Annotated[
        int, option("--cutoff", "N", "Also score the sentences of up to N words.")
    ] = 40,
    width: Annotated[int, option("--width", "N", "Width of the length ranges in the table.")] = 10,
    punctuation: Annotated[
        bool, flag("--punctuation", "Count punctuation, which evalb ignores.")
    ] = False,
    root: Annotated[bool, flag("--root", "Count the root bracket (TOP, ROOT).")] = False,
    functions: Annotated[
        bool, flag("--functions", "Keep function tags: NP-SBJ is not NP.")
    ] = False,
    skip_failures: Annotated[
        bool, flag("--skip-failures", "Skip sentences without a parse, as evalb does.")
    ] = False,
    untagged: Annotated[bool, flag("--untagged", "Allow words without a tag.")] = False,
    as_json: JsonOption = False,
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
    for note in report.notes(scores):
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        print(report.as_json(gold, parses, scores, cutoff, width))
    else:
        print(scores.table(cutoff, width))
