"""`inout demo`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

PAGE = "inout-demo.html"

EXAMPLES = """[bold]Examples[/bold]

  inout demo
  inout demo --html demo.html
"""

NEXT = [
    ("inout parse english", "sentences of your own, one a line"),
    ("inout em --help", "train a grammar of your own"),
    ("inout programs", "inside algorithms as equations"),
    ("inout --help", "all commands"),
    ("docs/tutorial.md", "the same from Python, and much more"),
]


def demo(
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help=f"Where to write the page with drawings. Otherwise it is {PAGE}, here or, where "
            "that may not be written, in a new temporary directory.",
        ),
    ] = None,
) -> None:
    """Parse sentences that mean several things, then train a grammar; takes some ten seconds."""
    from inout.cli.progress import status

    with status() as line:
        from rich.text import Text

        from inout.cli.demo import ambiguity, learning, lesson_text, page, surprise
        from inout.cli.paper import Paper
        from inout.grammars import library
        from inout.grammars.parser.parser import Parser
        from inout.io import check_writable, write_text

        if html is not None:
            check_writable(html)
        line.prepare("demo")
        line.say("parsing")
        english = library.load("english")
        parser = Parser(english)
        found = ambiguity.parsed(parser)
        surprisals = surprise.surprisals(parser)
    paper = Paper()
    paper.sentence(
        f"A small grammar of English ({len(english):,} rules) reads sentences that mean several "
        "things.",
    )
    ambiguity.print_ambiguity(paper, found)
    surprise.print_surprisals(paper, surprisals)
    lesson_text.print_task(paper)
    lesson = learning.learn(english)
    lesson_text.print_lesson(paper, lesson)
    where = html or _place()
    write_text(where, page.as_html(found, surprisals, lesson))
    paper.heading("Where to go next")
    paper.pairs(NEXT, indent=3)
    paper.line()
    # The name of the file is not cut off, however narrow the terminal is.
    paper.console.print(Text(f"wrote {where}: open it in a browser"), soft_wrap=True)


def _place() -> str:
    """Where the page goes if nobody says: here, or where everybody may write."""
    from inout._core.errors import FileError
    from inout.io import check_writable

    try:
        check_writable(PAGE)
    except FileError:
        return str(Path(tempfile.mkdtemp(prefix="inout-")) / PAGE)
    return PAGE
