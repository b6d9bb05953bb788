"""`inout convert`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from inout._core.errors import ArgumentError
from inout.cli.commands.options import (
    FLAG,
    FORMATS,
    DuplicatesOption,
    FormatOption,
    GrammarArgument,
    StartOption,
    choice,
)

EXAMPLES = """[bold]Examples[/bold]

  inout convert english.cfg --to lines
  inout convert wsj.gr.xz -o wsj.json
  inout convert rules.tsv --trim --normalise -o english.cfg
"""


def convert(
    grammar: GrammarArgument,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Where to write it, instead of standard output."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="nltk, lines, wsj or json. Taken from the name of the file unless told.",
        ),
    ] = None,
    trim: Annotated[
        bool,
        typer.Option("--trim", metavar=FLAG, help="Leave out rules that stand in no tree."),
    ] = False,
    normalise: Annotated[
        bool,
        typer.Option(
            "--normalise",
            metavar=FLAG,
            help="Probabilities for the weights: every tree keeps its share of the whole.",
        ),
    ] = False,
    log: Annotated[
        bool, typer.Option("--log", metavar=FLAG, help="Write the logarithms of weights (lines).")
    ] = False,
    format: FormatOption = None,
    start: StartOption = None,
    add_duplicates: DuplicatesOption = False,
) -> None:
    """A grammar in another format, without useless rules, or with probabilities."""
    from inout.cli.progress import status

    with status() as line:
        from inout.cli.grammars.loading import load_grammar
        from inout.cli.grammars.output import check_output, put_grammar

        target: Any = None if to is None else choice("--to", to, FORMATS)
        target = check_output(out, target)
        line.say(f"reading {grammar}")
        read = load_grammar(grammar, format, start, add_duplicates)
        made = read.trimmed().grammar if trim else read
        if not len(made):
            raise ArgumentError(f"{grammar}: no rule stands in a tree, so --trim would leave none")
        if normalise:
            made = made.normalised()
        text = made.to_text(target, log=log)
    if len(made) < len(read):
        print(f"note: {len(read) - len(made):,} of {len(read):,} rules left out", file=sys.stderr)
    put_grammar(out, text, made)
