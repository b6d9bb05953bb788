"""Grammars written to a file or to standard output, and the treebanks they come from."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from inout._core.errors import ArgumentError
from inout.cli.files import check_inputs
from inout.cli.progress import Line
from inout.grammars.formats import format_of_path
from inout.grammars.grammar import Grammar
from inout.grammars.structure import useful_rules
from inout.grammars.treebank.reading import read_trees
from inout.io.files import check_writable, write_text


def output_format(out: str | None, format: Any, default: str | None = None) -> Any:
    """The output format: the one given, or that of the file name; checked before any work."""
    if out is None:
        if format is None and default is None:
            raise ArgumentError("--to", "is required without -o FILE")
        return format or default
    check_writable(out)
    if out.endswith(".xz"):
        raise ArgumentError("-o", f"must not end in .xz: files are not compressed. Got {out}")
    return format_of_path(out) if format is None else format


def put_grammar(out: str | None, text: str, grammar: Grammar) -> None:
    """Write the text; to a file, with a note."""
    if out is None:
        sys.stdout.write(text)
        return
    write_text(out, text)
    print(f"wrote {out}: {len(grammar):,} rules", file=sys.stderr)


def trimmed(grammar: Grammar) -> Grammar:
    """The grammar without useless rules.

    `Grammar.trimmed` also maps results back, which needs torch.
    """
    kept = np.flatnonzero(useful_rules(grammar.rules))
    return Grammar(grammar.start, grammar.rules.select(kept), grammar.numpy_log_weights[kept])


def read_treebanks(paths: Sequence[str], line: Line) -> Iterator[Any]:
    """All trees in turn; missing files are reported immediately."""
    check_inputs(paths)
    return _trees(paths, line)


def _trees(paths: Sequence[str], line: Line) -> Iterator[Any]:
    done = 0
    for path in paths:
        for tree in read_trees("/dev/stdin" if path == "-" else path, plain=True):
            yield tree
            done += 1
            if done % 500 == 0:
                line.say(f"{done:,} trees read")
    line.say(f"counting the rules of {done:,} trees")
