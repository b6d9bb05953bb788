"""`inout em`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from inout._core.errors import ArgumentError
from inout.cli.commands.options import (
    FLAG,
    FORMATS,
    MAX_WORDS,
    DuplicatesOption,
    FormatOption,
    GrammarArgument,
    JsonOption,
    MaxWordsOption,
    StartOption,
    check_seed,
    choice,
    count,
)

EXAMPLES = """The state is kept in FILE.checkpoint after every iteration. After a crash the same \
command with --resume goes on from there, and ends with the grammar of an undisturbed run. \
Afterwards the checkpoint is removed.

[bold]Examples[/bold]

  inout em english.cfg corpus.txt -o trained.cfg
  inout em english.cfg corpus.txt -o trained.cfg --restarts 10 --seed 1 --prior 0.1
  inout em english.cfg counts.tsv -o trained.cfg --frequencies
  inout em english.cfg corpus.txt -o trained.cfg --resume
"""


def em(
    grammar: GrammarArgument,
    corpus: Annotated[
        list[str],
        typer.Argument(metavar="CORPUS", help="Files with a sentence a line; - is standard input."),
    ],
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="Where to write the grammar.")
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="nltk, lines, wsj or json. Taken from the name of the file unless told.",
        ),
    ] = None,
    iterations: Annotated[
        int, typer.Option("--iterations", metavar="N", help="Stop after N iterations.")
    ] = 100,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", metavar="X", help="Stop when the relative change is at most X."
        ),
    ] = 1e-6,
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts",
            metavar="N",
            help="Start from N random points as well, and keep the best.",
        ),
    ] = 0,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Which random points they are.")
    ] = 0,
    prior: Annotated[
        float | None,
        typer.Option("--prior", metavar="X", help="Add X to the expected count of every rule."),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            "--alpha",
            metavar="A",
            help="A Dirichlet prior; below 1 it drops rules that are hardly used.",
        ),
    ] = None,
    frequencies: Annotated[
        bool,
        typer.Option(
            "--frequencies",
            metavar=FLAG,
            help="Each line begins with how often the sentence occurs, and a tab.",
        ),
    ] = False,
    brackets: Annotated[
        bool,
        typer.Option(
            "--brackets",
            metavar=FLAG,
            help="Lines hold round brackets, which no constituent may cross: (the man) (saw it).",
        ),
    ] = False,
    max_words: MaxWordsOption = MAX_WORDS,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="FILE",
            help="Another place for the checkpoint.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", metavar=FLAG, help="Go on from the checkpoint.")
    ] = False,
    format: FormatOption = None,
    start: StartOption = None,
    add_duplicates: DuplicatesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a grammar on sentences by inside-outside: the likelihood rises at every step."""
    from inout.cli.progress import status

    count("--iterations", iterations, 0)
    check_seed(seed)
    count("--restarts", restarts, 0)
    count("--max-words", max_words, 1)
    if not tolerance >= 0:
        raise ArgumentError(f"--tolerance must be at least 0. Got {tolerance}")
    if prior is not None and alpha is not None:
        raise ArgumentError("--prior and --alpha both give a prior; expected one of the two")
    target: Any = None if to is None else choice("--to", to, FORMATS)
    with status() as line:
        from inout.cli.grammars import em as work
        from inout.cli.grammars.loading import load_grammar, read_sentences
        from inout.cli.grammars.output import check_output

        target = check_output(out, target)
        lines = read_sentences(corpus, [], grammar)
        line.say(f"reading {grammar}")
        loaded = load_grammar(grammar, format, start, add_duplicates)
        line.say("reading the corpus")
        data = work.read_corpus(
            lines, frequencies=frequencies, brackets=brackets, max_words=max_words
        )
    trained = work.train(
        loaded,
        data,
        out,
        target,
        checkpoint=checkpoint,
        resume=resume,
        restarts=restarts,
        seed=seed,
        prior=prior,
        alpha=alpha,
        tolerance=tolerance,
        max_iterations=iterations,
    )
    work.print_notes(data, trained)
    print(work.as_json(out, data, trained) if as_json else work.as_text(out, data, trained))
