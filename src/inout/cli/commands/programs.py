"""`inout programs`."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """[bold]Examples[/bold]

  inout programs
  inout programs cnf_inside
  inout programs cnf_inside > mine.dyna
"""


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
