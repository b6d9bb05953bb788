"""`inout induce`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from inout._core.errors import ArgumentError
from inout.cli.commands.options import FLAG, FORMATS, choice, count

EXAMPLES = """Trees are cleaned of function tags and traces, and binarised. Rare words share their \
counts with classes of unknown words (UNK-LC-ed), which stand for words that the grammar does not \
know.

[bold]Examples[/bold]

  inout induce train.mrg -o grammar.json
  inout induce train.mrg -o grammar.json --horizontal 1 --vertical 1 --unknown-threshold 2
  inout parse grammar.json dev.txt --restore --format bracketed > parses.mrg
"""
ALL = "all"


def induce(
    treebanks: Annotated[
        list[str],
        typer.Argument(metavar="TREEBANK", help="Files with trees in brackets, plain, .xz or .gz."),
    ],
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
    horizontal: Annotated[
        str,
        typer.Option(
            "--horizontal",
            metavar="N",
            help="How many siblings the new nodes of binary trees remember; or all.",
        ),
    ] = "2",
    vertical: Annotated[
        int,
        typer.Option(
            "--vertical",
            metavar="N",
            help="How many generations labels remember: 1 only their own, 2 the parent too.",
        ),
    ] = 2,
    left: Annotated[
        bool, typer.Option("--left", metavar=FLAG, help="Binarise from the left.")
    ] = False,
    nary: Annotated[
        bool, typer.Option("--nary", metavar=FLAG, help="Keep long rules as they are.")
    ] = False,
    tags: Annotated[
        bool, typer.Option("--tags", metavar=FLAG, help="Tags of words remember parents too.")
    ] = False,
    unknown_threshold: Annotated[
        int,
        typer.Option(
            "--unknown-threshold", metavar="N", help="Words seen at most N times count as rare."
        ),
    ] = 1,
    unknown_share: Annotated[
        float,
        typer.Option(
            "--unknown-share",
            metavar="X",
            help="The share of a rare word's count that its class gets, from 0 to 1.",
        ),
    ] = 0.5,
    start: Annotated[
        str, typer.Option("--start", metavar="SYMBOL", help="The label of the root.")
    ] = "TOP",
    raw: Annotated[
        bool, typer.Option("--raw", metavar=FLAG, help="Keep function tags and traces.")
    ] = False,
) -> None:
    """A grammar read off a treebank: relative frequencies, Markovisation, unknown words."""
    from inout.cli.progress import status

    siblings = _siblings(horizontal)
    count("--vertical", vertical, 1)
    count("--unknown-threshold", unknown_threshold, 0)
    if not 0 <= unknown_share <= 1:
        raise ArgumentError(f"--unknown-share must be from 0 to 1. Got {unknown_share}")
    target: Any = None if to is None else choice("--to", to, FORMATS)
    with status() as line:
        from inout.cli.grammars.induce import read_treebanks
        from inout.cli.grammars.output import check_output, put_grammar
        from inout.grammars import Grammar

        target = check_output(out, target, default="json")
        made = Grammar.from_treebank(
            read_treebanks(treebanks, line),
            horizontal=siblings,
            vertical=vertical,
            direction="left" if left else "right",
            tags=tags,
            binary=not nary,
            unknown_threshold=unknown_threshold,
            unknown_share=unknown_share,
            start=start,
            clean=not raw,
        )
        line.say("writing")
        text = made.to_text(target)
    put_grammar(out, text, made)


def _siblings(given: str) -> int | None:
    if given == ALL:
        return None
    if not given.isascii() or not given.isdigit():
        raise ArgumentError(f"--horizontal must be an integer of at least 0, or all. Got {given!r}")
    return int(given)
