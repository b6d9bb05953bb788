"""`inout solve`."""

from __future__ import annotations

from inout._core.checks import expect
from inout.cli.commands.options import (
    GOAL,
    HTML,
    MAX_EDGES,
    MAX_ROUNDS,
    PROBABILITIES,
    PROGRAM,
    UNWEIGHTED,
    WEIGHTED,
    count,
    flag,
    option,
)
from inout.cli.files import check_output
from inout.cli.messages import note
from inout.cli.progress import status

EXAMPLES = """[bold]Facts[/bold]

A file of facts has one row per line, with fields separated by tabs. A field that looks like an \
integer is one; a field in double quotes is a string. Empty lines and lines that begin with # are \
ignored. A row may end with its log-weight (its weight with --probabilities); the default weight \
is one.

[bold]Examples[/bold]

  inout solve cnf_inside --facts rule=grammar.tsv --fact start=S \\
              --probabilities --sentence "she sleeps"
  inout solve mine.dyna --facts edge=graph.tsv --goal path --best 5
  inout solve mine.dyna --facts edge=graph.tsv --json > answer.json
  inout solve mine.dyna --facts edge=graph.tsv --html answer.html
  inout solve mine.dyna --facts edge=graph.tsv --grammar derivations.json
"""


def solve(
    program: str = PROGRAM,
    facts: list[str] | None = option(
        "--facts", "NAME=FILE", "Facts of a relation, from a file. Repeatable."
    ),
    fact: list[str] | None = option(
        "--fact",
        "NAME=VALUES",
        'A fact of weight one, values separated by spaces: "rule=S NP VP". Repeatable.',
    ),
    sentence: str | None = option(
        "--sentence", "WORDS", "Sentence, as facts word(W,I,K) and length(N)."
    ),
    goal: str = GOAL,
    best: int = option("--best", "K", "Number of derivations to show.", 3),
    probabilities: bool = PROBABILITIES,
    weighted: list[str] | None = WEIGHTED,
    unweighted: list[str] | None = UNWEIGHTED,
    beam: list[str] | None = option(
        "--beam",
        "NAME=WIDTH",
        "Keep only the WIDTH heaviest new items of a relation in each round. Repeatable.",
    ),
    max_edges: int | None = MAX_EDGES,
    max_rounds: int | None = MAX_ROUNDS,
    as_json: bool = flag("--json", "Print JSON, with all rows and items."),
    html: str | None = HTML,
    grammar: str | None = option(
        "--grammar", "FILE", "Write the derivations of the goal as a probabilistic grammar (JSON)."
    ),
) -> None:
    """Solve a program on facts: log Z, the best derivations, the expected count of every fact."""
    count("--best", best, 0)
    with status() as line:
        from inout.cli.equations.program import Request, read_program
        from inout.io.files import write_text

        check_output("--html", html)
        check_output("--grammar", grammar)
        request = Request(
            program=program,
            files=[pair("--facts", text, "FILE") for text in facts or []],
            single=[(name, values) for name, _, values in (t.partition("=") for t in fact or [])],
            sentence=sentence,
            goal=goal,
            best=best,
            weighted=weighted or [],
            unweighted=unweighted or [],
            probabilities=probabilities,
            beam=dict(_width(text) for text in beam or []),
            max_edges=max_edges,
            max_rounds=max_rounds,
        )
        source = read_program(request)
        line.prepare("solve")  # before torch is imported, which goes on meanwhile
        from inout.cli.equations.solve import solve as run

        answer = run(source, request, line.grown)
        line.say("drawing")
        if html is not None:
            from inout.cli.equations.html import as_html

            write_text(html, as_html(answer))
        if grammar is not None:
            from inout.grammars.grammar import Grammar

            write_text(grammar, Grammar.from_forest(answer.forest).to_text("json"))
    for text in answer.notes:
        note(text)
    if as_json:
        from inout.cli.equations.json import as_json as to_json

        print(to_json(answer))
        return
    from inout.cli.equations.text import print_answer
    from inout.cli.paper import Paper

    paper = Paper()
    print_answer(paper, answer)
    for path in (html, grammar):
        if path is not None:
            paper.note_file(path)


def pair(name: str, text: str, what: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE."""
    relation, equals, value = text.partition("=")
    expect(relation and equals and value, name, f"must look like NAME={what}", text)
    return relation, value


def _width(text: str) -> tuple[str, int]:
    relation, width = pair("--beam", text, "WIDTH")
    fine = width.isascii() and width.isdigit() and int(width) >= 1
    expect(fine, "--beam", "must have a width of at least 1", width)
    return relation, int(width)
