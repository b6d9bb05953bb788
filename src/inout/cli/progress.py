"""A line on the terminal that says what goes on, when it takes longer than a moment."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inout._core.compilation import tell, watching

if TYPE_CHECKING:
    from rich.status import Status

PATIENCE = 1.0  # seconds without a word
COMPILING = "compiling kernels, which only the first run does"


class Line:
    """What the line says; does nothing where there is no terminal."""

    def __init__(self, status: Status | None) -> None:
        self._status = status

    def say(self, text: str) -> None:
        """Show another text."""
        if self._status is not None:
            self._status.update(text)

    def grown(self, items: int, edges: int) -> None:
        """Show how far grounding is."""
        self.say(f"grounding: {items:,} items, {edges:,} edges")

    def prepare(self, command: str) -> None:
        """Compile what the command needs and nobody has compiled before, on all cores."""
        from inout.cli.warmup.workers import prepare

        prepare(command, self._compiled)

    def _compiled(self, number: int, total: int) -> None:
        if number == 0:
            tell("all that is missing")
        self.say(f"{COMPILING} {'█' * number}{'░' * (total - number)}")


@contextmanager
def announcing() -> Iterator[None]:
    """Says on stderr, once, that kernels are compiled, when that happens inside."""
    said = threading.Event()

    def announce(name: str) -> None:
        if not said.is_set():
            said.set()
            print(f"inout: {COMPILING} (ten seconds to a minute) …", file=sys.stderr, flush=True)

    with watching(announce):
        yield


@contextmanager
def status() -> Iterator[Line]:
    """A line on stderr that appears after a second, on a terminal only."""
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
    """A bar on stderr for a number that grows, where only stderr is a terminal.

    Where stdout is one too, what is printed there shows how far things are, and a bar would get
    in between; unless nothing is printed meanwhile (`prints`).
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal or (prints and sys.stdout.isatty()):
        yield lambda done: None
        return
    columns = (TextColumn(what), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
    # Left alone, rich would send what is printed to stdout to the bar's console, which is stderr.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def steps(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr for a number of steps; plain lines where stderr is no terminal."""

    def say(done: int) -> None:
        print(f"inout: {what} {done}/{total}", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield say
        return
    with counter(what, total, prints=False) as show:
        yield show
