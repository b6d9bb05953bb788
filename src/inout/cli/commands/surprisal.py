"""`inout surprisal`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from inout.cli.commands.options import (
    FLAG,
    MAX_WORDS,
    DuplicatesOption,
    FormatOption,
    GrammarArgument,
    JsonOption,
    MaxWordsOption,
    SentenceOption,
    SentencesArgument,
    StartOption,
    count,
)

EXAMPLES = """The surprisal of a word is -log2 of its probability given the words before it, in \
bits.

[bold]Examples[/bold]

  inout surprisal english --sentence "time flies like an arrow"
  inout surprisal english.cfg sentences.txt
  inout surprisal english.cfg --json < sentences.txt
"""


def surprisal(
    grammar: GrammarArgument,
    files: SentencesArgument = None,
    sentence: SentenceOption = None,
    end: Annotated[
        bool,
        typer.Option(
            "--end",
            metavar=FLAG,
            help="Of the end of the sentence as well: the total is then -log2 of its probability.",
        ),
    ] = False,
    max_words: MaxWordsOption = MAX_WORDS,
    format: FormatOption = None,
    start: StartOption = None,
    add_duplicates: DuplicatesOption = False,
    as_json: JsonOption = False,
) -> None:
    """How unexpected each word of a sentence is, in bits, by the prefix probabilities."""
    from inout.cli.progress import counter, status

    count("--max-words", max_words, 1)
    with status() as line:
        from inout._core.pipeline import begun
        from inout.cli.grammars import surprisal as report
        from inout.cli.grammars.loading import load_grammar, read_sentences
        from inout.cli.paper import Paper
        from inout.grammars.parser.parser import Parser

        lines = read_sentences(files or [], sentence or [], grammar)
        line.say(f"reading {grammar}")
        parser = Parser(load_grammar(grammar, format, start, add_duplicates))
        line.say("looking at prefixes")
        found = begun(report.answers(parser, lines, max_words, end), lines)
    paper = Paper()
    totals = report.Totals()
    with counter("sentences", len(lines) if isinstance(lines, list) else None) as step:
        for answer in found:
            totals.add(answer)
            if as_json:
                print(report.as_json(answer), flush=True)
            else:
                report.print_answer(paper, answer)
            step(totals.sentences)
    if not as_json and totals.sentences > 1:
        report.print_totals(paper, totals)
    if totals.left_out and totals.sentences > 1:
        note = f"note: {totals.left_out:,} of {totals.sentences:,} sentences left out of the total"
        print(note, file=sys.stderr)
