"""`inout parse`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from inout._core.errors import ArgumentError
from inout.cli.commands.options import (
    FLAG,
    MAX_WORDS,
    DuplicatesOption,
    FormatOption,
    GrammarArgument,
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
"""
METHODS = {
    "viterbi": "viterbi",
    "min-risk": "min_risk",
    "max-rule": "max_rule",
}
SHAPES = ("tree", "bracketed")


def parse(
    grammar: GrammarArgument,
    files: SentencesArgument = None,
    sentence: SentenceOption = None,
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
        str,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="Which tree is best: viterbi (most probable), min-risk (most expected "
            "constituents), max-rule (best product of the expected rules).",
        ),
    ] = "viterbi",
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
    max_words: MaxWordsOption = MAX_WORDS,
    format: FormatOption = None,
    start: StartOption = None,
    add_duplicates: DuplicatesOption = False,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """The best trees of sentences, with their probabilities; samples; counts; the chart."""
    from inout.cli.progress import counter, status

    count("--k", k, 1)
    count("--samples", samples, 0)
    check_seed(seed)
    count("--max-words", max_words, 1)
    choice("--method", method, METHODS)
    choice("--format", shape, SHAPES)
    if k > 1 and method != "viterbi":
        raise ArgumentError(f"--k {k} needs --method viterbi: the others have one best tree")
    with status() as line:
        from inout.cli.grammars.loading import load_grammar, read_sentences
        from inout.cli.grammars.parsing import Answer, Request, answers
        from inout.cli.grammars.pipeline import begun
        from inout.grammars.parsing.parser import Parser
        from inout.io import check_writable, write_text

        if html is not None:
            check_writable(html)
        lines = read_sentences(files or [], sentence or [], grammar)
        line.say(f"reading {grammar}")
        parser = Parser(load_grammar(grammar, format, start, add_duplicates))
        request = Request(
            k=k,
            samples=samples,
            seed=seed,
            method=METHODS[method],
            count=count_trees or html is not None,
            picture=html is not None,
            restore=restore,
            max_words=max_words,
        )
        line.warn_of_compilation("parsing")
        line.say("parsing")
        found = begun(answers(parser, lines, request), lines)
    from inout.cli.grammars.parse_html import Pages
    from inout.cli.grammars.parse_json import as_json as to_json
    from inout.cli.grammars.parse_text import print_brackets, print_drawings, reason
    from inout.cli.paper import Paper

    paper = Paper()
    pages = None if html is None else Pages(grammar)
    done = failed = 0
    closed: BaseException | None = None

    def show(answer: Answer) -> None:
        if as_json:
            print(to_json(answer), flush=True)
        elif shape == "bracketed":
            print_brackets(answer, several=k > 1 or samples > 0)
            if answer.reason is not None:
                print(f"{answer.line.place}: no tree: {reason(answer)}", file=sys.stderr)
        else:
            print_drawings(paper, answer)

    with counter("sentences", len(lines) if isinstance(lines, list) else None) as step:
        for answer in found:
            try:
                if closed is None:
                    show(answer)
            except (BrokenPipeError, SystemExit) as error:  # the latter is rich's way
                if pages is None:
                    raise
                closed = error  # nobody reads on, but the page was asked for
            if pages is not None:
                pages.add(answer)
            done, failed = done + 1, failed + (answer.reason is not None)
            step(done)
    if failed and done > 1:
        print(f"note: {failed:,} of {done:,} sentences have no tree", file=sys.stderr)
    if pages is not None and html is not None and done:
        write_text(html, pages.html())
        print(f"wrote {html}", file=sys.stderr)
    if closed is not None:
        raise closed
