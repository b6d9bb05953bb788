"""A line on the terminal that says what goes on, when it takes longer than a moment."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status

PATIENCE = 1.0  # seconds without a word
COMPILING = "compiling, which only the first run does"
# A function that every use of a kernel compiles, if it is not `inside` in `scaled`.
_FIRST = {"lattice": ("selection", "select"), "latent": ("blocks", "inside")}


class Line:
    """What the line says; does nothing where there is no terminal."""

    def __init__(self, status: Status | None) -> None:
        self._status = status
        self._prefix = ""

    def say(self, text: str) -> None:
        """Show another text."""
        if self._status is not None:
            self._status.update(self._prefix + text)

    def grown(self, items: int, edges: int) -> None:
        """Show how far grounding is."""
        self.say(f"grounding: {items:,} items, {edges:,} edges")

    def warn_of_compilation(self, *kernels: str) -> None:
        """Say so from now on if the kernels were never compiled, which takes some ten seconds."""
        if self._status is not None and never_compiled(*kernels):
            self._prefix = f"{COMPILING} · "


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


def never_compiled(*kernels: str) -> bool:
    """Whether one of these kernels (forest unless told) has no compiled code on this machine."""
    return any(_is_missing(kernel) for kernel in kernels or ("forest",))


def _is_missing(kernel: str) -> bool:
    module, name = _FIRST.get(kernel, ("scaled", "inside"))
    first = getattr(import_module(f"inout.kernels.{kernel}.cpu.{module}"), name)
    folder = first.stats.cache_path
    return folder is None or not any(Path(folder).glob("*.nbi"))


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
