"""`inout warmup`."""

from __future__ import annotations

from inout.cli.commands.options import argument, choice

EXAMPLES = """[bold]Examples[/bold]

  inout warmup
  inout warmup sparse forest
"""
# As in `inout.cli.warmup.problems`, which is imported later.
FAMILIES = (
    *("sparse", "forest", "pcfg", "lowrank", "alignment", "chain", "dependencies", "lattice"),
    *("segments", "arborescences", "latent", "spans"),
)
_LISTED = ", ".join(FAMILIES)


def warmup(
    families: list[str] | None = argument(
        "FAMILY", f"Families of kernels: {_LISTED}. Default: all of them.", None
    ),
) -> None:
    """Compile kernels now, on all cores, instead of when they are first used."""
    chosen = families or list(FAMILIES)
    for name in chosen:
        choice("FAMILY", name, FAMILIES)
    from inout.cli.progress import steps
    from inout.cli.warmup import problems
    from inout.cli.warmup.workers import solve_all

    wanted = [problems.FAMILIES[name] for name in FAMILIES if name in chosen]
    with steps("compiling kernels", sum(map(len, wanted))) as done:
        solve_all(wanted, lambda number, _: done(number))
    print(f"compiled: {', '.join(dict.fromkeys(chosen))}")
