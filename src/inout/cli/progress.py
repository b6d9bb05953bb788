"""Progress on stderr: a status line for slow work, bars, notes about compilation; Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inout._core.compilation import tell, watching

if TYPE_CHECKING:
    from rich.status import Status

PATIENCE = 1.0  # seconds before the line appears
COMPILING = "compiling kernels, on the first run only"


class Line:
    """The status line; does nothing without a terminal."""

    def __init__(self, status: Status | None) -> None:
        self._status = status

    def say(self, text: str) -> None:
        """Show this text."""
        if self._status is not None:
            self._status.update(text)

    def grown(self, items: int, edges: int) -> None:
        """Show the progress of grounding."""
        self.say(f"grounding: {items:,} items, {edges:,} edges")

    def prepare(self, command: str) -> None:
        """Compile the kernels that the command needs and that are not cached, on all cores."""
        from inout.cli.warmup.workers import prepare

        prepare(command, self._compiled)

    def _compiled(self, number: int, total: int) -> None:
        if number == 0:
            tell("all that is missing")
        self.say(f"{COMPILING} {'█' * number}{'░' * (total - number)}")


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C for a moment: a second one must not lose the file."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def announcing() -> Iterator[None]:
    """Announce on stderr, once, when kernels are compiled in this context."""
    said = threading.Event()

    def announce(name: str) -> None:
        if not said.is_set():
            said.set()
            print(f"inout: {COMPILING} (ten seconds to a minute) …", file=sys.stderr, flush=True)

    with watching(announce):
        yield


@contextmanager
def status() -> Iterator[Line]:
    """A status line on stderr that appears after a second, on a terminal only."""
    from rich.console import Console
    from rich.status import Status

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Line(None)
        return
    shown = Status("starting", console=console)
    timer = threading.Timer(PATIENCE, shown.start)
    timer.daemon = True
    timer.start()
    try:
        yield Line(shown)
    finally:
        timer.cancel()
        timer.join()
        shown.stop()


@contextmanager
def counter(
    what: str, total: int | None = None, *, prints: bool = True
) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if only stderr is a terminal.

    If stdout is a terminal too, the output itself shows the progress, and a bar would get in
    between; unless nothing is printed meanwhile (`prints`).
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal or (prints and sys.stdout.isatty()):
        yield lambda done: None
        return
    columns = (TextColumn(what), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
    # By default rich would redirect stdout to the bar's console, which is stderr.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def steps(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr for a number of steps; plain lines if stderr is not a terminal."""

    def say(done: int) -> None:
        print(f"inout: {what} {done}/{total}", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield say
        return
    with counter(what, total, prints=False) as show:
        yield show
