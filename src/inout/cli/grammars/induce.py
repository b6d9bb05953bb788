"""The trees of several treebanks, for `inout induce`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from inout._core.errors import ArgumentError
from inout.cli.progress import Line
from inout.grammars.treebank.reading import read_trees
from inout.io.files import check_readable

_EVERY = 500


def read_treebanks(paths: Sequence[str], line: Line) -> Iterator[Any]:
    """All trees in turn; missing files are reported immediately."""
    for path in paths:
        if path != "-":
            check_readable(path)
    return _trees(paths, line)


def refuse_treebank_as_output(paths: Sequence[str], out: str | None) -> None:
    """Raise if the output file is one of the inputs."""
    if out is not None and Path(out).exists():
        for path in paths:
            if path != "-" and Path(path).exists() and Path(path).samefile(out):
                raise ArgumentError("-o", f"must not be the treebank. Got {out}")


def _trees(paths: Sequence[str], line: Line) -> Iterator[Any]:
    done = 0
    for path in paths:
        for tree in read_trees("/dev/stdin" if path == "-" else path, plain=True):
            yield tree
            done += 1
            if done % _EVERY == 0:
                line.say(f"{done:,} trees read")
    line.say(f"counting the rules of {done:,} trees")
