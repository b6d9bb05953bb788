"""Show that the default tier finds every recorded fault: `python -m tests.mutations`."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.mutations.fault import Fault
from tests.mutations.faults import FAULTS
from tests.mutations.run import PASSED, ROOT, Verdict, judge, run_tests


def main() -> int:
    options = _options()
    faults = [fault for fault in FAULTS if not options.only or fault.name in options.only]
    console = Console(width=None if sys.stdout.isatty() else 160)
    if options.list:
        console.print(_listing(faults))
        return 0
    verdicts = _judged(faults, options.jobs, baseline=not options.no_baseline)
    console.print(_table(verdicts))
    missed = [verdict for verdict in verdicts if not verdict.caught]
    console.print(f"{len(verdicts)} faults, {len(missed)} survivors")
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show the faults and run nothing")
    parser.add_argument("--only", action="append", metavar="NAME", help="this fault (repeatable)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time")
    parser.add_argument(
        "--no-baseline", action="store_true", help="do not check first that all tests pass"
    )
    options = parser.parse_args()
    known = {fault.name for fault in FAULTS}
    for name in options.only or ():
        if name not in known:
            parser.error(f"there is no fault {name!r}; --list shows them")
    return options


def _judged(faults: list[Fault], jobs: int, baseline: bool) -> list[Verdict]:
    """The verdicts in the order of `faults`, with a bar on the way."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    shown = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))
    with shown, ThreadPoolExecutor(jobs) as pool:
        if baseline:
            # A test that fails without a fault would "find" all of them.
            task = shown.add_task("without faults", total=1)
            # This also compiles the kernels, which the copies then have.
            files = {test for fault in faults for test in fault.tests if test.startswith("tests/")}
            code, output = run_tests(ROOT, tuple(sorted(files)))
            if code != PASSED:
                shown.stop()
                sys.exit(f"{output}\nthe tests must pass without a fault")
            shown.advance(task)
        task = shown.add_task("faults", total=len(faults))
        waiting = [pool.submit(judge, fault) for fault in faults]
        for done in as_completed(waiting):
            verdict = done.result()
            shown.advance(task)
            if not (verdict.caught and shown.console.is_terminal):
                shown.console.print(f"{verdict.outcome} {verdict.fault}: {verdict.by}")
        return [future.result() for future in waiting]


def _listing(faults: list[Fault]) -> Table:
    table = Table("fault", "where", "tests", box=None)
    for fault in faults:
        table.add_row(fault.name, f"{fault.file} {fault.function}", "\n".join(fault.tests))
    return table


def _table(verdicts: list[Verdict]) -> Table:
    table = Table("fault", "", "by", "seconds", box=None)
    for verdict in verdicts:
        table.add_row(verdict.fault, verdict.outcome, verdict.by, f"{verdict.seconds:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
