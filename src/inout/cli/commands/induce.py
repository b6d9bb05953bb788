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
  inout induce train.mrg --latent 16 --method em --em-start split --iterations 20 -o model.lpcfg
  inout parse --model model.lpcfg dev.txt --format bracketed > parses.mrg
"""
ALL = "all"
METHODS = ("spectral", "em")
STARTS = ("split", "random", "spectral")
LATENT_PANEL = "Latent models"
SHARE, ROOT = 0.5, "TOP"
ITERATIONS = 50  # as in `inout.learning.latent_grammars`


def induce(
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
        float | None,
        typer.Option(
            "--unknown-share",
            metavar="X",
            help="The share of a rare word's count that its class gets, from 0 to 1.",
            show_default=str(SHARE),
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="SYMBOL", help="The label of the root.", show_default=ROOT),
    ] = None,
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
        str | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="spectral (moments, one pass) or em (the likelihood of the trees).",
            rich_help_panel=LATENT_PANEL,
            show_default=METHODS[0],
        ),
    ] = None,
    em_start: Annotated[
        str | None,
        typer.Option(
            "--em-start",
            metavar="START",
            help="Where EM starts: split (values are doubled again and again), random, or "
            "spectral (clusters of the vectors of --method spectral).",
            rich_help_panel=LATENT_PANEL,
            show_default=STARTS[0],
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            "--iterations",
            metavar="N",
            help="Iterations of EM at most, after each split or in all.",
            rich_help_panel=LATENT_PANEL,
            show_default=str(ITERATIONS),
        ),
    ] = None,
    restarts: Annotated[
        int | None,
        typer.Option(
            "--restarts",
            metavar="N",
            help="With --em-start random: N further points, of which the best is kept.",
            rich_help_panel=LATENT_PANEL,
            show_default="0",
        ),
    ] = None,
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
    """A grammar read off a treebank, with Markovisation and unknown words; or a latent model."""
    siblings = _siblings(horizontal or ("2" if latent is None else "0"))
    generations = vertical if vertical is not None else 2 if latent is None else 1
    count("--vertical", generations, 1)
    count("--unknown-threshold", unknown_threshold, 0)
    direction: Any = "left" if left else "right"
    of_em = {"--em-start": em_start, "--iterations": iterations, "--restarts": restarts}
    if latent is not None:
        _refuse(
            {"--to": to, "--nary": nary, "--tags": tags, "--unknown-share": unknown_share}
            | {"--start": start, "--raw": raw},
            "is not for latent models: it cannot go with --latent",
        )
        if out is None or out == "-":
            raise ArgumentError("--latent needs -o FILE: a model is not text to print")
        count("--latent", latent, 1)
        check_seed(seed)
        way = choice("--method", method or METHODS[0], METHODS)
        orders = {"horizontal": siblings, "vertical": generations, "direction": direction}
        options = _em_options(way, of_em)
        _induce_latent(treebanks, out, latent, way, seed, options, orders, unknown_threshold)
        return
    _refuse(
        {"--method": method, "--seed": seed} | of_em, "is for latent models: it needs --latent N"
    )
    share = SHARE if unknown_share is None else unknown_share
    if not 0 <= share <= 1:
        raise ArgumentError(f"--unknown-share must be from 0 to 1. Got {share}")
    target: Any = None if to is None else choice("--to", to, FORMATS)
    from inout.cli.progress import status

    with status() as line:
        from inout.cli.grammars.induce import read_treebanks, refuse_treebank_as_output
        from inout.cli.grammars.output import check_output, put_grammar
        from inout.grammars import Grammar, Markovisation

        target = check_output(out, target, default="json")
        refuse_treebank_as_output(treebanks, out)
        made = Grammar.from_treebank(
            read_treebanks(treebanks, line),
            Markovisation(siblings, generations, direction, tags, binary=not nary),
            unknown_threshold=unknown_threshold,
            unknown_share=share,
            start=ROOT if start is None else start,
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
    seed: int | None,
    options: dict[str, Any],
    orders: dict[str, Any],
    unknown_threshold: int,
) -> None:
    """Train a model of the treebanks and write it."""
    from time import monotonic

    from inout.cli.progress import status

    began = monotonic()
    with status() as line:
        from inout.cli.grammars.induce import read_treebanks, refuse_treebank_as_output
        from inout.io import check_writable

        check_writable(out)
        refuse_treebank_as_output(treebanks, out)
        trees = read_treebanks(treebanks, line)

        from inout.cli.grammars.induce_latent import put_model, train
        from inout.grammars import Markovisation
        from inout.latent.training_set import TrainingSet

        data = TrainingSet.of(trees, Markovisation(**orders), unknown_threshold=unknown_threshold)
    about = {**orders, "unknown_threshold": unknown_threshold}
    made = train(data, latent, method, seed=seed, options=options, about=about)
    put_model(out, made, began)


def _em_options(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options of `fit_latent_em`; refused where the method has none of them."""
    if method != "em":
        _refuse(given, f"needs --method em. Got --method {method}")
        return {}
    start = choice("--em-start", given["--em-start"] or STARTS[0], STARTS)
    iterations, restarts = given["--iterations"], given["--restarts"]
    if start != "random":
        why = f"needs --em-start random, the only one with other points. Got {start}"
        _refuse({"--restarts": restarts}, why)
    return {
        "start": start,
        "iterations": count("--iterations", ITERATIONS if iterations is None else iterations, 0),
        "restarts": count("--restarts", restarts or 0, 0),
    }


def _refuse(given: dict[str, Any], why: str) -> None:
    """Raise for the first of these options that was given."""
    for option, value in given.items():
        if value is not None and value is not False:
            raise ArgumentError(f"{option} {why}")


def _siblings(given: str) -> int | None:
    if given == ALL:
        return None
    if not given.isascii() or not given.isdigit():
        raise ArgumentError(f"--horizontal must be an integer of at least 0, or all. Got {given!r}")
    return int(given)
