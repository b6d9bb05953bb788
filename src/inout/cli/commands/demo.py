"""`inout demo`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from inout._core.errors import FileError
from inout.cli.commands.options import option
from inout.cli.files import check_output
from inout.cli.progress import status

PAGE = "inout-demo.html"

EXAMPLES = """[bold]Examples[/bold]

  inout demo
  inout demo --html demo.html
"""

NEXT = [
    ("inout parse english", "parse sentences of your own, one per line"),
    ("inout em --help", "train a grammar of your own"),
    ("inout programs", "inside algorithms as equations"),
    ("inout --help", "all commands"),
    ("docs/tutorial.md", "the same from Python, and much more"),
]


def demo(
    html: str | None = option(
        "--html",
        "FILE",
        f"Where to write the page with drawings. Default: {PAGE} here, or in a temporary "
        "directory if this one is not writable.",
    ),
) -> None:
    """Parse ambiguous sentences, then train a grammar; takes about ten seconds."""
    with status() as line:
        from rich.text import Text

        from inout.io.files import write_text

        check_output("--html", html)
        line.prepare("demo")  # before torch is imported, which goes on meanwhile
        from inout.cli.demo import ambiguity, learning, page
        from inout.cli.paper import Paper
        from inout.grammars import library
        from inout.grammars.parser.parser import Parser

        line.say("parsing")
        english = library.load("english")
        parser = Parser(english)
        found = ambiguity.parsed(parser)
        surprisals = ambiguity.surprisals(parser)
    paper = Paper()
    paper.sentence(
        f"A small grammar of English ({len(english):,} rules) parses ambiguous sentences."
    )
    ambiguity.print_ambiguity(paper, found)
    ambiguity.print_surprisals(paper, surprisals)
    learning.print_task(paper)
    lesson = learning.learn(english)
    learning.print_lesson(paper, lesson)
    where = html or _default_page()
    write_text(where, page.as_html(found, surprisals, lesson))
    paper.heading("Where to go next")
    paper.pairs(NEXT, indent=3)
    paper.line()
    # The file name is never cut off, however narrow the terminal.
    paper.console.print(Text(f"wrote {where}: open it in a browser"), soft_wrap=True)


def _default_page() -> str:
    """The page's file: here, or in a temporary directory."""
    try:
        check_output("--html", PAGE)
    except FileError:
        return str(Path(tempfile.mkdtemp(prefix="inout-")) / PAGE)
    return PAGE
