"""`inout sample`."""

from __future__ import annotations

from typing import Annotated

import typer

from inout.cli.commands.options import (
    FLAG,
    DuplicatesOption,
    FormatOption,
    GrammarArgument,
    JsonOption,
    StartOption,
    check_seed,
    choice,
    count,
)

EXAMPLES = """[bold]Examples[/bold]

  inout sample english
  inout sample english.cfg -n 1000 --seed 1 > corpus.txt
  inout sample english.cfg -n 3 --format tree
  inout sample rules.tsv --normalise --format bracketed
"""
SHAPES = ("words", "bracketed", "tree")


def sample(
    grammar: GrammarArgument,
    samples: Annotated[
        int, typer.Option("--samples", "-n", metavar="N", help="How many to draw.")
    ] = 10,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", help="The same number draws the same again; random unless told."
        ),
    ] = None,
    shape: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="words, bracketed (one tree a line) or tree (drawn).",
        ),
    ] = "words",
    normalise: Annotated[
        bool,
        typer.Option(
            "--normalise",
            metavar=FLAG,
            help="Make probabilities of the weights first, where they are none.",
        ),
    ] = False,
    format: FormatOption = None,
    start: StartOption = None,
    add_duplicates: DuplicatesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Sentences or trees drawn from a grammar."""
    from inout.cli.progress import status

    choice("--format", shape, SHAPES)
    count("--samples", samples, 0)
    check_seed(seed)
    with status() as line:
        from inout.cli.grammars.loading import load_grammar
        from inout.cli.grammars.sample import prepare, print_samples

        line.say(f"reading {grammar}")
        prepared = prepare(load_grammar(grammar, format, start, add_duplicates), normalise)
    print_samples(prepared, samples, seed, "json" if as_json else shape)
