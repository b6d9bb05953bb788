"""`inout solve`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from inout._core.errors import ArgumentError
from inout.cli.commands.options import FLAG, HtmlOption

EXAMPLES = """[bold]Facts[/bold]

A file of facts has a row a line, fields separated by tabs. A field that looks like an integer \
is one; a field in double quotes is a string. Empty lines and lines that begin with # are left \
out. A row may end with its log-weight (its weight with --probabilities); otherwise it weighs one.

[bold]Examples[/bold]

  inout solve cnf_inside --facts rule=grammar.tsv --fact start=S \\
              --probabilities --sentence "she sleeps"
  inout solve mine.dyna --facts edge=graph.tsv --goal path --best 5
  inout solve mine.dyna --facts edge=graph.tsv --json > answer.json
  inout solve mine.dyna --facts edge=graph.tsv --html answer.html
"""


def solve(
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM", help="A file of equations, or a name from `inout programs`."
        ),
    ],
    facts: Annotated[
        list[str] | None,
        typer.Option(
            "--facts", metavar="NAME=FILE", help="Facts of a relation, from a file. Repeatable."
        ),
    ] = None,
    fact: Annotated[
        list[str] | None,
        typer.Option(
            "--fact",
            metavar="NAME=VALUES",
            help='One fact of weight one, values separated by spaces: "rule=S NP VP". Repeatable.',
        ),
    ] = None,
    sentence: Annotated[
        str | None,
        typer.Option(
            "--sentence", metavar="WORDS", help="Words, given as word(W,I,K) and length(N)."
        ),
    ] = None,
    goal: Annotated[
        str, typer.Option("--goal", metavar="NAME", help="The relation to derive.")
    ] = "goal",
    best: Annotated[
        int, typer.Option("--best", metavar="K", help="How many derivations to show.")
    ] = 3,
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            metavar=FLAG,
            help="Weights in files are weights, not their logarithms.",
        ),
    ] = False,
    weighted: Annotated[
        list[str] | None,
        typer.Option("--weighted", metavar="NAME", help="Every row of these facts has a weight."),
    ] = None,
    unweighted: Annotated[
        list[str] | None,
        typer.Option("--unweighted", metavar="NAME", help="No row of these facts has a weight."),
    ] = None,
    beam: Annotated[
        list[str] | None,
        typer.Option(
            "--beam",
            metavar="NAME=WIDTH",
            help="Let only the WIDTH heaviest new items of a relation go on in each round.",
        ),
    ] = None,
    max_edges: Annotated[
        int | None,
        typer.Option(
            "--max-edges",
            metavar="N",
            help="Stop beyond N edges (50,000,000 unless told).",
        ),
    ] = None,
    max_rounds: Annotated[
        int | None,
        typer.Option(
            "--max-rounds",
            metavar="N",
            help="Stop after N rounds of derivation (100,000 unless told).",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", metavar=FLAG, help="Print JSON for a machine, with all rows and items."
        ),
    ] = False,
    html: HtmlOption = None,
) -> None:
    """Solve a program on facts: log Z, the best derivations, the expected count of every fact."""
    from inout.cli.progress import status

    if best < 0:
        raise ArgumentError(f"--best must be at least 0. Got {best}")
    with status() as line:
        from inout.cli.solve import Request
        from inout.cli.solve import solve as run
        from inout.io import check_writable, write_text

        if html is not None:
            check_writable(html)
        request = Request(
            program=program,
            files=[_pair("--facts", text, "FILE") for text in facts or []],
            single=[(name, values) for name, _, values in (t.partition("=") for t in fact or [])],
            sentence=sentence,
            goal=goal,
            best=best,
            weighted=weighted or [],
            unweighted=unweighted or [],
            probabilities=probabilities,
            beam=dict(_width(text) for text in beam or []),
            max_edges=max_edges,
            max_rounds=max_rounds,
        )
        line.prepare("solve")
        answer = run(request, line.grown)
        line.say("drawing")
        if html is not None:
            from inout.cli.html_report import as_html

            write_text(html, as_html(answer))
    for note in answer.notes:
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        from inout.cli.json_report import as_json as to_json

        print(to_json(answer))
        return
    from inout.cli.paper import Paper
    from inout.cli.text_report import print_answer

    paper = Paper()
    print_answer(paper, answer)
    if html is not None:
        paper.note_file(html)


def _pair(option: str, text: str, what: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise ArgumentError(f"{option} must look like NAME={what}. Got {text!r}")
    return name, value


def _width(text: str) -> tuple[str, int]:
    name, width = _pair("--beam", text, "WIDTH")
    if not width.isascii() or not width.isdigit() or int(width) < 1:
        raise ArgumentError(f"--beam: the width must be an integer of at least 1. Got {width!r}")
    return name, int(width)
