"""Errors of the library as messages of the command, all in one place."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches

from inout._core.errors import FileError, InoutError, ProgramError, Remedy

# Arguments of the library and the options they come from.
OPTIONS = {
    "checkpoint": "--checkpoint",
    "format": "--to",
    "groups": "--group",
    "latent": "--latent",
    "max_edges": "--max-edges",
    "max_iterations": "--iterations",
    "max_rounds": "--max-rounds",
    "name": "NAME",
    "start": "--start",
}
REMEDIES = {
    Remedy.ADD_DUPLICATES: "--add-duplicates adds up their weights",
    Remedy.DIAGNOSE: "`inout check` shows why",
    Remedy.FEWER_DERIVATIONS: "a smaller --best needs fewer",
    Remedy.LARGER_MAX_EDGES: "raise --max-edges, or make the problem smaller",
    Remedy.LARGER_MAX_ROUNDS: "raise --max-rounds if it should",
    Remedy.NORMALISE: "--normalise turns weights into probabilities",
    Remedy.READ_COLUMNS: "--from conll reads words in columns",
    Remedy.RESUME: "use --resume to continue from it, or delete it to start afresh",
}
OUT_OF_MEMORY = "out of memory; try a smaller --latent, --size, --max-words or --max-edges"


def message(error: InoutError) -> str:
    """The message of an error; one about a place in a file begins with that place."""
    argument = error.argument
    text = error.text(
        None if argument is None else OPTIONS.get(argument, argument),
        None if error.remedy is None else REMEDIES[error.remedy],
    )
    of_file = isinstance(error, FileError | ProgramError) and error.place is not None
    return text if of_file else from_command(text)


def note(text: str) -> None:
    """Print a note on stderr."""
    print(f"note: {text}", file=sys.stderr)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A clause to append to a message: the nearest known names, or nothing.

    >>> did_you_mean("goall", ["goal", "beta"])
    '; did you mean goal?'
    >>> did_you_mean("cnf", ["cnf_inside"]), did_you_mean("x", ["goal"])
    ('; did you mean cnf_inside?', '')
    """
    names = sorted(known)
    close = get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    close = close or [other for other in names if name and other.startswith(name.lower())][:3]
    return f"; did you mean {' or '.join(close)}?" if close else ""


def from_command(text: str) -> str:
    """A message prefixed with the command's name."""
    return f"inout: {text}"
