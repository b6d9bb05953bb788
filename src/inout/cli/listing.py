"""The library of programs as a list, and one of them as text."""

from __future__ import annotations

from rich.text import Text

from inout import programs
from inout.cli.paper import Paper


def print_names() -> None:
    """All programs with the first sentence of their descriptions."""
    paper = Paper()
    paper.pairs([(name, programs.describe(name).split("\n")[0]) for name in programs.names()])
    paper.line()
    paper.line("inout programs NAME prints one of them; inout solve NAME runs it", "dim")


def print_program(name: str) -> None:
    """A program as it stands in its file, comments dimmed on a terminal."""
    paper = Paper()
    for line in programs.text(name).rstrip("\n").split("\n"):
        code, mark, comment = line.partition("%")
        paper.console.print(Text.assemble(code, (mark + comment, "dim")), soft_wrap=True)
