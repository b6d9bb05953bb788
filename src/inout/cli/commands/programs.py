"""`inout programs`."""

from __future__ import annotations

from inout._core.errors import ArgumentError
from inout.cli.commands.options import argument, flag

EXAMPLES = """[bold]Examples[/bold]

  inout programs
  inout programs cnf_inside
  inout programs cnf_inside > mine.dyna
  inout programs lexicalised_cfg --folded
"""


def programs(
    name: str | None = argument("NAME", "Program to print.", None),
    folded: bool = flag("--folded", "Long rules in steps of fewer variables, which cost less."),
) -> None:
    """List the programs of the library, or print one of them."""
    from rich.text import Text

    from inout.cli.paper import Paper
    from inout.programs import library

    paper = Paper()
    if name is None:
        if folded:
            raise ArgumentError("--folded", "needs the NAME of a program")
        paper.pairs([(name, library.describe(name).split("\n")[0]) for name in library.names()])
        paper.line()
        paper.line("inout programs NAME prints one of them; inout solve NAME runs it", "dim")
        return
    text = library.text(name)
    if folded:
        from inout.deduction.fold import fold
        from inout.deduction.reading import parse_program

        text = fold(parse_program(text, name))
    for line in text.rstrip("\n").split("\n"):
        code, mark, comment = line.partition("%")  # comments are dimmed on a terminal
        paper.console.print(Text.assemble(code, (mark + comment, "dim")), soft_wrap=True)
