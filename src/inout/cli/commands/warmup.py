"""`inout warmup`."""

from __future__ import annotations

from typing import Annotated

import typer

from inout._core.errors import ArgumentError

EXAMPLES = """[bold]Examples[/bold]

  inout warmup
  inout warmup sparse forest
"""
# As in `inout.cli.warmup.problems`, which only the work needs.
FAMILIES = ("sparse", "forest", "chain", "segments", "spans", "pcfg", "latent", "lattice")


def warmup(
    families: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FAMILY]...",
            help=f"Families of kernels: {', '.join(FAMILIES)}. All by default.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Compile kernels now, on all cores, instead of when they are first used."""
    chosen = families or list(FAMILIES)
    for name in chosen:
        if name not in FAMILIES:
            expected = ", ".join(FAMILIES)
            raise ArgumentError(f"FAMILY must be one of {expected}. Got {name!r}")
    from inout.cli.progress import steps
    from inout.cli.warmup import problems
    from inout.cli.warmup.workers import solve_all

    wanted = [problem for name in dict.fromkeys(chosen) for problem in problems.FAMILIES[name]]
    with steps("compiling kernels", len(wanted)) as done:
        solve_all(wanted, lambda number, _: done(number))
    print(f"compiled: {', '.join(dict.fromkeys(chosen))}")
