"""`inout surprisal`."""

from __future__ import annotations

from inout.cli.commands import options as opt
from inout.cli.messages import note
from inout.cli.progress import counter, status

EXAMPLES = """The surprisal of a word is -log2 of its probability given the words before it.

[bold]Examples[/bold]

  inout surprisal english --sentence "time flies like an arrow"
  inout surprisal english.cfg sentences.txt
  inout surprisal english.cfg --json < sentences.txt
"""


@opt.reads_a_grammar
def surprisal(
    grammar: str = opt.GRAMMAR,
    files: list[str] | None = opt.SENTENCES,
    sentence: list[str] | None = opt.SENTENCE,
    end: bool = opt.flag(
        "--end", "Include the end of the sentence: the total is then -log2 p(sentence)."
    ),
    max_words: int = opt.MAX_WORDS,
    reading: opt.Reading = opt.DETECTED,
    as_json: bool = opt.JSON,
) -> None:
    """Show how unexpected each word is after the words before it, in bits."""
    opt.count("--max-words", max_words, 1)
    with status() as line:
        from inout.cli.grammars.loading import load_grammar, read_sentences

        lines = read_sentences(files or [], sentence or [], grammar)
        line.say(f"reading {grammar}")
        loaded = load_grammar(grammar, reading)
        from inout._core.pipeline import begun
        from inout.cli.grammars import surprisal as report
        from inout.cli.paper import Paper
        from inout.grammars.parser.parser import Parser

        parser = Parser(loaded)
        line.say("computing prefix probabilities")
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
        note(f"{totals.left_out:,} of {totals.sentences:,} sentences not in the total")
