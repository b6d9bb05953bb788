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
    from inout.cli.equations.listing import print_names, print_program

    if name is None:
        print_names()
    else:
        print_program(name)
