"""`inout parse`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from inout._core.errors import ArgumentError
from inout.cli.commands.options import (
    FLAG,
    MAX_WORDS,
    DuplicatesOption,
    FormatOption,
    HtmlOption,
    JsonOption,
    MaxWordsOption,
    SentenceOption,
    SentencesArgument,
    StartOption,
    check_seed,
    choice,
    count,
)

EXAMPLES = """[bold]Examples[/bold]

  inout parse english --sentence "time flies like an arrow"
  inout parse english --sentence "time flies like an arrow" --k 5 --count --html page.html
  inout parse english.cfg sentences.txt --samples 3 --seed 1
  inout parse grammar.json dev.txt --method min-risk --restore --format bracketed > parses.mrg
  inout parse english.cfg --json < sentences.txt
  inout parse --model model.lpcfg dev.txt --format bracketed > parses.mrg
"""
GOODMAN, VITERBI, MIN_RISK, MAX_RULE = "goodman", "viterbi", "min-risk", "max-rule"
METHODS = (VITERBI, MIN_RISK, MAX_RULE, GOODMAN)
SHAPES = ("tree", "bracketed")
THRESHOLD, NO_PRUNING = "1e-5", "none"


def parse(
    grammar: Annotated[
        str | None,
        typer.Argument(
            metavar="GRAMMAR",
            help="A file with a grammar, or a latent model, or a name from the library (english); "
            "- is standard input. Not with --model.",
            show_default=False,
        ),
    ] = None,
    files: SentencesArgument = None,
    sentence: SentenceOption = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="A latent model of `inout induce --latent`."),
    ] = None,
    k: Annotated[int, typer.Option("--k", metavar="K", help="How many best trees.")] = 1,
    samples: Annotated[
        int,
        typer.Option("--samples", metavar="N", help="Trees drawn by their probability as well."),
    ] = 0,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Samples: the same number draws the same again."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="Which tree is best: viterbi (most probable), min-risk (most expected "
            "constituents), max-rule (best product of the expected rules), goodman (most expected "
            "nodes; latent models only).",
            show_default="viterbi; max-rule with a latent model, which has no viterbi",
        ),
    ] = None,
    shape: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="tree (drawn) or bracketed (one a line)."),
    ] = "tree",
    count_trees: Annotated[
        bool, typer.Option("--count", metavar=FLAG, help="Count all trees, exactly.")
    ] = False,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore",
            metavar=FLAG,
            help="Undo the Markovisation of `inout induce`: show the treebank's own labels.",
        ),
    ] = False,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            metavar="X",
            help="Latent models: leave out what the skeletal rules expect less often than X; 0 or "
            "none for no pruning, which takes the cube of the length: a minute for 120 words.",
            show_default=THRESHOLD,
        ),
    ] = None,
    max_words: MaxWordsOption = MAX_WORDS,
    format: FormatOption = None,
    start: StartOption = None,
    add_duplicates: DuplicatesOption = False,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """The best trees of sentences, with their probabilities; samples; counts; the chart."""
    from inout.cli.progress import status

    count("--k", k, 1)
    count("--samples", samples, 0)
    check_seed(seed)
    count("--max-words", max_words, 1)
    if method is not None:
        choice("--method", method, METHODS)
    choice("--format", shape, SHAPES)
    least = _threshold(threshold or THRESHOLD)
    if k > 1 and method not in (None, VITERBI):
        raise ArgumentError(f"--k {k} needs --method viterbi: the others have one best tree")
    given = list(files or [])
    if model is not None and grammar is not None:
        given, grammar = [grammar, *given], None
    with status() as line:
        from inout._core.pipeline import begun
        from inout.cli.grammars.loading import is_model, load_grammar, read_sentences
        from inout.cli.grammars.parsing import Request, answers
        from inout.io import check_writable

        if html is not None:
            check_writable(html)
        if grammar is not None and is_model(grammar):
            grammar, model = None, grammar
        name = model if model is not None else grammar
        if name is None:
            raise ArgumentError("Missing argument 'GRAMMAR', or --model MODEL.")
        latent = model is not None
        if latent:
            refused = {"--count": count_trees, "--from": format, "--start": start}
            _check_latent(k, method, refused | {"--add-duplicates": add_duplicates})
        elif threshold is not None or method == GOODMAN:
            option = "--threshold" if threshold is not None else "--method goodman"
            raise ArgumentError(f"{option} is for latent models. Got the grammar {name}")
        lines = read_sentences(given, sentence or [], name)
        request = Request(
            k=k,
            samples=samples,
            seed=seed,
            method=(method or (MAX_RULE if latent else VITERBI)).replace("-", "_"),
            count=count_trees or html is not None,
            picture=html is not None,
            restore=restore,
            numbers=as_json or shape != "bracketed" or html is not None or samples > 0,
            max_words=max_words,
        )
        line.say(f"reading {name}")
        if latent:
            from inout.cli.grammars import latent_parsing
            from inout.latent.decoding.parser import LatentParser

            loaded = latent_parsing.load_model(name)
            if samples and not loaded.model.is_nonnegative:
                raise ArgumentError(
                    "--samples needs a model of probabilities, as --method em makes them. "
                    f"Got {name}, which has negative parameters"
                )
            trees = LatentParser(loaded, threshold=least)
            line.say("parsing")
            found = begun(latent_parsing.answers(trees, lines, request), lines)
        else:
            from inout.grammars.parser.parser import Parser

            parser = Parser(load_grammar(name, format, start, add_duplicates))
            line.prepare("parse")
            line.say("parsing")
            found = begun(answers(parser, lines, request), lines)
    from inout.cli.grammars.parse_output import print_answers

    print_answers(
        found,
        len(lines) if isinstance(lines, list) else None,
        shape="json" if as_json else "bracketed" if shape == "bracketed" else "tree",
        several=k > 1 or samples > 0,
        html=html,
        name=name,
    )


def _threshold(given: str) -> float | None:
    """The threshold of the parser; None, for no pruning, where it is 0 or none."""
    if given == NO_PRUNING:
        return None
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ArgumentError(
            f"--threshold must be a number from 0 to below 1, or none. Got {given!r}"
        )
    return value or None


def _check_latent(k: int, method: str | None, refused: dict[str, Any]) -> None:
    """Refuse what a latent model has no answer to, or what is for grammars."""
    if method == VITERBI:
        raise ArgumentError(
            "--method viterbi is not for latent models, whose most probable tree is too hard to "
            "find; expected max-rule, min-risk or goodman"
        )
    if k > 1:
        raise ArgumentError(
            f"--k {k} is not for latent models, which have one best tree by their posteriors"
        )
    for option, value in refused.items():
        if value:
            raise ArgumentError(f"{option} is for grammars, and not for latent models")
