"""The commands and their options. Imports stay cheap here, so that help comes at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer

from inout._core.errors import ArgumentError, FileError, GroundingError, InoutError, ProgramError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
# Without it typer writes <bool> behind a flag, as if it took a value.
FLAG = " "

SOLVE_NOTES = """[bold]Facts[/bold]

A file of facts has a row a line, fields separated by tabs. A field that looks like an integer \
is one; a field in double quotes is a string. Empty lines and lines that begin with # are left \
out. A row may end with its log-weight (its weight with --probabilities); otherwise it weighs one.

[bold]Examples[/bold]

  inout solve cnf_inside --facts rule=grammar.tsv --fact start=S \\
              --probabilities --sentence "she sleeps"
  inout solve mine.dyna --facts edge=graph.tsv --goal path --best 5
  inout solve mine.dyna --facts edge=graph.tsv --json > answer.json
  inout solve mine.dyna --facts edge=graph.tsv --html answer.html
"""

app = typer.Typer(
    name="inout",
    help="Exact inference in structured models: write an inside algorithm as equations, give it "
    "facts with weights, and get log Z, the best derivations and expected counts.",
    epilog="""[bold]Examples[/bold]

  inout demo
  inout programs
  inout solve PROGRAM --facts NAME=FILE.tsv
""",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (None: those of the process); returns its exit code.

    0 if all went well, 2 if something given was wrong, which one message on stderr tells.
    """
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show must not end the program.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        given = None if arguments is None else list(arguments)
        return int(app(given, prog_name="inout", standalone_mode=False) or 0)
    except InoutError as error:
        return _complain(_message(error))
    except MemoryError:
        return _complain("inout: out of memory; a smaller --max-edges stops earlier")
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output stopped; Python would complain once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        # Which class a wrong option raises depends on the version of typer; all have this method.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()
        # Without arguments typer shows the help and then an error that says nothing.
        return _complain(f"inout: {message}") if message else 0


def _message(error: InoutError) -> str:
    """The error in the command's words; those about a place in a file begin with the place."""
    text = str(error)
    if isinstance(error, FileError | ProgramError):
        return text
    if isinstance(error, GroundingError | ArgumentError):
        text = text.replace("max_edges", "--max-edges").replace("max_rounds", "--max-rounds")
    return f"inout: {text}"


def _complain(message: str) -> int:
    print(message, file=sys.stderr)
    return EXIT_BAD_INPUT


def _show_version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"inout {version('inout')}")
        except PackageNotFoundError:
            print("inout (not installed)")
        raise typer.Exit
    return wanted


@app.callback()
def _inout(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar=FLAG,
            callback=_show_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    pass


HtmlOption = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write a page with drawings to FILE."),
]


@app.command(
    epilog="""[bold]Examples[/bold]

  inout demo
  inout demo --html demo.html
"""
)
def demo(html: HtmlOption = None) -> None:
    """A sentence with two readings: its trees, their probabilities, the expected counts."""
    from inout.cli.progress import status

    with status() as line:
        from inout.cli.demo import LEAD, SENTENCE, print_demo, solve_demo
        from inout.cli.html_report import as_html
        from inout.cli.paper import Paper
        from inout.io import check_writable, write_text

        if html is not None:
            check_writable(html)
        line.warn_of_compilation()
        answer = solve_demo()
    paper = Paper()
    print_demo(paper, answer)
    if html is not None:
        write_text(html, as_html(answer, SENTENCE, LEAD))
        paper.note_file(html)


@app.command(
    epilog="""[bold]Examples[/bold]

  inout programs
  inout programs cnf_inside
  inout programs cnf_inside > mine.dyna
"""
)
def programs(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The program to print.", show_default=False)
    ] = None,
) -> None:
    """The programs of the library, one line each; with NAME that program and its comments."""
    from inout.cli.listing import print_names, print_program

    if name is None:
        print_names()
    else:
        print_program(name)


@app.command(epilog=SOLVE_NOTES)
def solve(
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM", help="A file of equations, or a name from `inout programs`."
        ),
    ],
    facts: Annotated[
        list[str] | None,
        typer.Option(
            "--facts", metavar="NAME=FILE", help="Facts of a relation, from a file. Repeatable."
        ),
    ] = None,
    fact: Annotated[
        list[str] | None,
        typer.Option(
            "--fact",
            metavar="NAME=VALUES",
            help='One fact of weight one, values separated by spaces: "rule=S NP VP". Repeatable.',
        ),
    ] = None,
    sentence: Annotated[
        str | None,
        typer.Option(
            "--sentence", metavar="WORDS", help="Words, given as word(W,I,K) and length(N)."
        ),
    ] = None,
    goal: Annotated[
        str, typer.Option("--goal", metavar="NAME", help="The relation to derive.")
    ] = "goal",
    best: Annotated[
        int, typer.Option("--best", metavar="K", help="How many derivations to show.")
    ] = 3,
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            metavar=FLAG,
            help="Weights in files are weights, not their logarithms.",
        ),
    ] = False,
    weighted: Annotated[
        list[str] | None,
        typer.Option("--weighted", metavar="NAME", help="Every row of these facts has a weight."),
    ] = None,
    unweighted: Annotated[
        list[str] | None,
        typer.Option("--unweighted", metavar="NAME", help="No row of these facts has a weight."),
    ] = None,
    beam: Annotated[
        list[str] | None,
        typer.Option(
            "--beam",
            metavar="NAME=WIDTH",
            help="Let only the WIDTH heaviest new items of a relation go on in each round.",
        ),
    ] = None,
    max_edges: Annotated[
        int | None,
        typer.Option(
            "--max-edges",
            metavar="N",
            help="Stop beyond N edges (50,000,000 unless told).",
        ),
    ] = None,
    max_rounds: Annotated[
        int | None,
        typer.Option(
            "--max-rounds",
            metavar="N",
            help="Stop after N rounds of derivation (100,000 unless told).",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", metavar=FLAG, help="Print JSON for a machine, with all rows and items."
        ),
    ] = False,
    html: HtmlOption = None,
) -> None:
    """Solve a program on facts: log Z, the best derivations, the expected count of every fact."""
    from inout.cli.progress import status

    if best < 0:
        raise ArgumentError(f"--best must be at least 0. Got {best}")
    with status() as line:
        from inout.cli.solve import Request
        from inout.cli.solve import solve as run
        from inout.io import check_writable, write_text

        if html is not None:
            check_writable(html)
        request = Request(
            program=program,
            files=[_pair("--facts", text, "FILE") for text in facts or []],
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
        line.warn_of_compilation()
        answer = run(request, line.grown)
        line.say("drawing")
        if html is not None:
            from inout.cli.html_report import as_html

            write_text(html, as_html(answer))
    for note in answer.notes:
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        from inout.cli.json_report import as_json as to_json

        print(to_json(answer))
        return
    from inout.cli.paper import Paper
    from inout.cli.text_report import print_answer

    paper = Paper()
    print_answer(paper, answer)
    if html is not None:
        paper.note_file(html)


def _pair(option: str, text: str, what: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise ArgumentError(f"{option} must look like NAME={what}. Got {text!r}")
    return name, value


def _width(text: str) -> tuple[str, int]:
    name, width = _pair("--beam", text, "WIDTH")
    if not width.isascii() or not width.isdigit() or int(width) < 1:
        raise ArgumentError(f"--beam: the width must be an integer of at least 1. Got {width!r}")
    return name, int(width)
