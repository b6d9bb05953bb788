"""`inout induce`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from inout._core.errors import ArgumentError
from inout.cli.commands.options import FLAG, FORMATS, check_seed, choice, count

EXAMPLES = """Trees are cleaned of function tags and traces, and binarised. Rare words share their \
counts with classes of unknown words (UNK-LC-ed), which stand for words that the grammar does not \
know.

With --latent N each label has up to N latent values, which the grammar learns by itself: by \
moments (--method spectral, one pass) or by EM on the trees (--method em). Such a model is not \
text, and `inout parse --model` reads it.

[bold]Examples[/bold]

  inout induce train.mrg -o grammar.json
  inout induce train.mrg -o grammar.json --horizontal 1 --vertical 1 --unknown-threshold 2
  inout parse grammar.json dev.txt --restore --format bracketed > parses.mrg
  inout induce train.mrg --latent 16 -o model.lpcfg
  inout induce train.mrg --latent 16 --method em --em-start split --iterations 30 -o model.lpcfg
  inout parse --model model.lpcfg dev.txt --format bracketed > parses.mrg
"""
ALL = "all"
METHODS = ("spectral", "em")
STARTS = ("split", "random", "spectral")
LATENT_PANEL = "Latent models"
# What says how a grammar is written or made, and how a latent model is; by the names below.
FOR_GRAMMARS = {
    "to": "--to",
    "nary": "--nary",
    "tags": "--tags",
    "unknown_share": "--unknown-share",
    "start": "--start",
    "raw": "--raw",
}
FOR_LATENT = {
    "method": "--method",
    "em_start": "--em-start",
    "iterations": "--iterations",
    "restarts": "--restarts",
    "seed": "--seed",
}
FOR_EM = {"em_start": "--em-start", "iterations": "--iterations", "restarts": "--restarts"}


def induce(
    context: typer.Context,
    treebanks: Annotated[
        list[str],
        typer.Argument(metavar="TREEBANK", help="Files with trees in brackets, plain, .xz or .gz."),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Where to write it, instead of standard output; --latent needs it.",
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
        str | None,
        typer.Option(
            "--horizontal",
            metavar="N",
            help="How many siblings the new nodes of binary trees remember; or all.",
            show_default="2; 0 with --latent",
        ),
    ] = None,
    vertical: Annotated[
        int | None,
        typer.Option(
            "--vertical",
            metavar="N",
            help="How many generations labels remember: 1 only their own, 2 the parent too.",
            show_default="2; 1 with --latent",
        ),
    ] = None,
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
    latent: Annotated[
        int | None,
        typer.Option(
            "--latent",
            metavar="N",
            help="A model with up to N latent values for each label, instead of a grammar.",
            rich_help_panel=LATENT_PANEL,
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="spectral (moments, one pass) or em (the likelihood of the trees).",
            rich_help_panel=LATENT_PANEL,
        ),
    ] = "spectral",
    em_start: Annotated[
        str,
        typer.Option(
            "--em-start",
            metavar="START",
            help="Where EM starts: split (values are doubled again and again), random, or "
            "spectral (clusters of the vectors of --method spectral).",
            rich_help_panel=LATENT_PANEL,
        ),
    ] = "split",
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations",
            metavar="N",
            help="Iterations of EM at most, after each split or in all.",
            rich_help_panel=LATENT_PANEL,
        ),
    ] = 30,
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts",
            metavar="N",
            help="With --em-start random: N further points, of which the best is kept.",
            rich_help_panel=LATENT_PANEL,
        ),
    ] = 0,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Another number makes other random choices.",
            rich_help_panel=LATENT_PANEL,
            show_default="the same every time",
        ),
    ] = None,
) -> None:
    """A grammar read off a treebank: relative frequencies, Markovisation, unknown words."""
    siblings = _siblings(horizontal or ("2" if latent is None else "0"))
    generations = vertical if vertical is not None else 2 if latent is None else 1
    count("--vertical", generations, 1)
    count("--unknown-threshold", unknown_threshold, 0)
    direction: Any = "left" if left else "right"
    if latent is not None:
        _refuse(context, FOR_GRAMMARS, "is not for latent models: it cannot go with --latent")
        count("--latent", latent, 1)
        _check_method(context, method, em_start)
        count("--iterations", iterations, 0)
        count("--restarts", restarts, 0)
        check_seed(seed)
        if out is None:
            raise ArgumentError("--latent needs -o FILE: a model is not text to print")
        binarisation = {
            "horizontal": siblings,
            "vertical": generations,
            "direction": direction,
            "unknown_threshold": unknown_threshold,
        }
        options = {"iterations": iterations, "restarts": restarts} if method == "em" else {}
        _induce_latent(treebanks, out, latent, method, em_start, seed, options, binarisation)
        return
    _refuse(context, FOR_LATENT, "is for latent models: it needs --latent N")
    if not 0 <= unknown_share <= 1:
        raise ArgumentError(f"--unknown-share must be from 0 to 1. Got {unknown_share}")
    target: Any = None if to is None else choice("--to", to, FORMATS)
    from inout.cli.progress import status

    with status() as line:
        from inout.cli.grammars.induce import read_treebanks
        from inout.cli.grammars.output import check_output, put_grammar
        from inout.grammars import Grammar

        target = check_output(out, target, default="json")
        made = Grammar.from_treebank(
            read_treebanks(treebanks, line),
            horizontal=siblings,
            vertical=generations,
            direction=direction,
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


def _induce_latent(
    treebanks: Sequence[str],
    out: str,
    latent: int,
    method: Any,
    em_start: Any,
    seed: int | None,
    options: dict[str, Any],
    binarisation: dict[str, Any],
) -> None:
    """Train a model of the treebanks and write it."""
    from time import monotonic

    from inout.cli.progress import status

    began = monotonic()
    with status() as line:
        from inout.cli.grammars.induce import read_treebanks
        from inout.io import check_writable

        check_writable(out)
        trees = read_treebanks(treebanks, line)
        line.say("starting")
        from inout.cli.grammars.induce_latent import put_model, train
        from inout.latent.training_set import TrainingSet

        data = TrainingSet.of(trees, **binarisation)
    made = train(
        data, latent, method, start=em_start, seed=seed, options=options, about=binarisation
    )
    put_model(out, made, began)


def _check_method(context: typer.Context, method: str, em_start: str) -> None:
    """Refuse names that are none, and options that the method does not have."""
    choice("--method", method, METHODS)
    choice("--em-start", em_start, STARTS)
    if method != "em":
        _refuse(context, FOR_EM, f"needs --method em. Got --method {method}")
    elif em_start != "random":
        _refuse(
            context,
            {"restarts": "--restarts"},
            f"needs --em-start random, the only one with other points. Got {em_start}",
        )


def _refuse(context: typer.Context, options: dict[str, str], why: str) -> None:
    """Raise for the first of these options that was given."""
    for name, option in options.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ArgumentError(f"{option} {why}")


def _siblings(given: str) -> int | None:
    if given == ALL:
        return None
    if not given.isascii() or not given.isdigit():
        raise ArgumentError(f"--horizontal must be an integer of at least 0, or all. Got {given!r}")
    return int(given)
