"""`inout programs`."""

from __future__ import annotations

from inout.cli.commands.options import argument

EXAMPLES = """[bold]Examples[/bold]

  inout programs
  inout programs cnf_inside
  inout programs cnf_inside > mine.dyna
"""


def programs(name: str | None = argument("NAME", "Program to print.", None)) -> None:
    """List the programs of the library, or print one of them."""
    from rich.text import Text

    from inout.cli.paper import Paper
    from inout.programs import library

    paper = Paper()
    if name is None:
        paper.pairs([(name, library.describe(name).split("\n")[0]) for name in library.names()])
        paper.line()
        paper.line("inout programs NAME prints one of them; inout solve NAME runs it", "dim")
        return
    for line in library.text(name).rstrip("\n").split("\n"):
        code, mark, comment = line.partition("%")  # comments are dimmed on a terminal
        paper.console.print(Text.assemble(code, (mark + comment, "dim")), soft_wrap=True)
