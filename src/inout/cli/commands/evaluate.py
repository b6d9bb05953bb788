"""`inout eval`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from inout._core.errors import ArgumentError
from inout.cli.commands.options import FLAG, JsonOption, count

EXAMPLES = """A sentence without a parse is an empty line or (()); its gold brackets count as \
missed.

[bold]Examples[/bold]

  inout eval gold.mrg parses.mrg
  inout parse grammar.cfg dev.txt --format bracketed | inout eval gold.mrg -
  inout eval gold.mrg parses.mrg --punctuation --root --json
"""


def evaluate(
    gold: Annotated[str, typer.Argument(metavar="GOLD", help="A treebank: trees in brackets.")],
    parses: Annotated[
        str,
        typer.Argument(
            metavar="PARSES", help="A tree a line, in the same order; - is standard input."
        ),
    ],
    cutoff: Annotated[
        int,
        typer.Option("--cutoff", metavar="N", help="A row for the sentences up to N words."),
    ] = 40,
    width: Annotated[
        int, typer.Option("--width", metavar="N", help="Lengths of sentences in each row.")
    ] = 10,
    punctuation: Annotated[
        bool,
        typer.Option(
            "--punctuation", metavar=FLAG, help="Let punctuation count, which evalb leaves out."
        ),
    ] = False,
    root: Annotated[
        bool,
        typer.Option("--root", metavar=FLAG, help="Let the bracket of the root count (TOP, ROOT)."),
    ] = False,
    functions: Annotated[
        bool, typer.Option("--functions", metavar=FLAG, help="NP-SBJ is no NP.")
    ] = False,
    skip_failures: Annotated[
        bool,
        typer.Option(
            "--skip-failures",
            metavar=FLAG,
            help="Leave out sentences without a parse, as evalb does.",
        ),
    ] = False,
    untagged: Annotated[
        bool,
        typer.Option("--untagged", metavar=FLAG, help="Words need no tag of their own."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Parses compared with a treebank (PARSEVAL, as evalb does): brackets, exact match, tags."""
    from inout.cli.progress import status

    count("--cutoff", cutoff, 1)
    count("--width", width, 1)
    if gold == parses == "-":
        raise ArgumentError("only one of GOLD and PARSES can come from standard input")
    with status() as line:
        from inout.cli.grammars import evaluate as report

        line.say("comparing")
        scores = report.evaluate(
            gold,
            parses,
            report.options(
                punctuation=punctuation,
                root=root,
                functions=functions,
                skip_failures=skip_failures,
            ),
            untagged,
        )
    for note in report.notes(scores):
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        print(report.as_json(gold, parses, scores, cutoff, width))
    else:
        print(scores.table(cutoff, width))
