"""The library of programs as a list, and one of them as text."""

from __future__ import annotations

from rich.text import Text

from inout.cli.paper import Paper
from inout.programs import library


def print_names() -> None:
    """Print all programs with the first lines of their descriptions."""
    paper = Paper()
    paper.pairs([(name, library.describe(name).split("\n")[0]) for name in library.names()])
    paper.line()
    paper.line("inout programs NAME prints one of them; inout solve NAME runs it", "dim")


def print_program(name: str) -> None:
    """Print a program's file, with dimmed comments on a terminal."""
    paper = Paper()
    for line in library.text(name).rstrip("\n").split("\n"):
        code, mark, comment = line.partition("%")
        paper.console.print(Text.assemble(code, (mark + comment, "dim")), soft_wrap=True)
