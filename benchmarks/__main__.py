"""`python -m benchmarks list`, `python -m benchmarks run NAME [--quick] [--save] [--seed N] …`.

`python -m benchmarks compare CHECKOUT NAME …` runs them in another checkout and in this one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.compare import compare
from benchmarks.data import DataMissingError
from benchmarks.machine import describe_machine, is_busy, load
from benchmarks.registry import WORKLOADS, Workload
from benchmarks.report import Agreement, Report, say


def main() -> int:
    """The exit status: 1 when numbers disagree or a bound is missed, 2 when it cannot run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name the workloads")
    run = commands.add_parser("run", help="check a workload's numbers, then time it")
    run.add_argument("name", choices=sorted(WORKLOADS))
    run.add_argument("--quick", action="store_true", help="less of everything; nothing is saved")
    run.add_argument("--save", action="store_true", help="save the results of a quick run too")
    run.add_argument("--seed", type=int, default=0, help="of experiments that draw numbers")
    about = "keep the trainings that ended when a run of the same code was cut off"
    run.add_argument("--resume", action="store_true", help=about)
    both = commands.add_parser("compare", help="quick runs here and in another checkout, in turn")
    both.add_argument("checkout", type=Path, help="folder of the other one, which comes first")
    both.add_argument("names", nargs="+", choices=sorted(WORKLOADS), metavar="NAME")
    both.add_argument("--rounds", type=int, default=3, help="how often both run")
    both.add_argument("--whole", action="store_true", help="no quick runs; saves their results")
    given = parser.parse_args()
    if given.command == "list":
        width = max(map(len, WORKLOADS))
        for workload in WORKLOADS.values():
            print(f"{workload.name.ljust(width)}  {workload.summary}")
        return 0
    if given.command == "compare":
        return compare(given.checkout.resolve(), given.names, given.rounds, not given.whole)
    try:
        report = _run(WORKLOADS[given.name], given.quick, given.seed, given.resume)
    except DataMissingError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    if report is None:
        return 1
    if given.save or not given.quick:
        report.save()
    print(report.markdown())
    print(report.last_line())
    return 0 if report.holds else 1


def _run(workload: Workload, quick: bool, seed: int, resume: bool) -> Report | None:
    """The report, None if the numbers disagree: then nothing is timed."""
    if is_busy():
        say(f"{workload.name}: the machine is BUSY (load {load():.1f}): do not trust the times")
    machine = describe_machine(workload.single_thread)
    if workload.trains:
        machine["seed"] = seed
    stages = workload.load(seed, resume)
    say(f"{workload.name}: preparing")
    state = stages.prepare(quick)
    say(f"{workload.name}: checking")
    agreements = list(_told(stages.check(state)))
    if not all(agreement.holds for agreement in agreements):
        say(f"{workload.name}: the results disagree, so nothing is timed")
        return None
    say(f"{workload.name}: timing")
    figures = []
    for figure in stages.measure(state):
        say(f"  {figure}")
        figures.append(figure)
    return Report(workload.name, quick, machine, agreements, figures)


def _told(agreements: Iterable[Agreement]) -> Iterable[Agreement]:
    for agreement in agreements:
        word = "agrees" if agreement.holds else "DISAGREES"
        say(f"  {word}: {agreement.name} ({agreement.difference:.2g})")
        yield agreement


if __name__ == "__main__":
    sys.exit(main())
