"""Grammars that commands write: to a file whole, or to standard output."""

from __future__ import annotations

import sys
from typing import Any

from inout._core.errors import ArgumentError
from inout.grammars import Grammar
from inout.grammars.formats import format_of_path
from inout.io import check_writable, write_text


def check_output(out: str | None, format: Any, default: str | None = None) -> Any:
    """The format to write: the one given, or that of the name; asked before any work is done."""
    if out is None:
        if format is None and default is None:
            raise ArgumentError("--to must say the format where there is no -o FILE")
        return format or default
    check_writable(out)
    if out.endswith(".xz"):
        raise ArgumentError(f"-o must not end in .xz: files are written plain. Got {out}")
    if format is not None:
        return format
    try:
        return format_of_path(out)
    except ArgumentError as error:
        raise ArgumentError(str(error).replace("format must", "--to must", 1)) from None


def put_grammar(out: str | None, text: str, grammar: Grammar) -> None:
    """Write the text, and say so where it went into a file."""
    if out is None:
        sys.stdout.write(text)
        return
    write_text(out, text)
    print(f"wrote {out}: {len(grammar):,} rules", file=sys.stderr)
