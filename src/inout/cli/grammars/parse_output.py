"""Printing of answers about sentences, with notes at the end."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from inout.cli.grammars import fallbacks
from inout.cli.grammars.answers import Answer
from inout.cli.grammars.parse_html import Pages
from inout.cli.grammars.parse_json import as_json
from inout.cli.grammars.parse_text import print_brackets, print_drawings
from inout.cli.paper import Paper
from inout.cli.progress import counter
from inout.io.files import write_text

Shape = Literal["tree", "bracketed", "json"]


def print_answers(
    found: Iterator[Answer],
    total: int | None,
    *,
    shape: Shape,
    several: bool,
    html: str | None,
    name: str,
) -> None:
    """Print each answer, then notes on stderr; `html` is a file for a page about `name`."""
    paper = Paper()
    pages = None if html is None else Pages(name)
    done = failed = 0
    found_by: Counter[str | None] = Counter()
    closed: BaseException | None = None

    def show(answer: Answer) -> None:
        if shape == "json":
            print(as_json(answer), flush=True)
        elif shape == "bracketed":
            print_brackets(answer, several)
            if answer.reason is not None:
                print(f"{answer.line.place}: no tree: {answer.reason}", file=sys.stderr)
        else:
            print_drawings(paper, answer)

    with counter("sentences", total) as step:
        for answer in found:
            try:
                if closed is None:
                    show(answer)
            except (BrokenPipeError, SystemExit) as error:  # rich raises the latter
                if pages is None:
                    raise
                closed = error  # nobody reads on, but --html is still wanted
            if pages is not None:
                pages.add(answer)
            found_by[answer.found_by] += 1
            done, failed = done + 1, failed + (answer.reason is not None)
            step(done)
    # A drawing says itself how its tree was found.
    for note in fallbacks.notes(found_by, done) if done > 1 or shape != "tree" else []:
        print(f"note: {note}", file=sys.stderr)
    if failed and done > 1:
        print(f"note: {failed:,} of {done:,} sentences have no tree", file=sys.stderr)
    if pages is not None and html is not None and done:
        write_text(html, pages.html())
        print(f"wrote {html}", file=sys.stderr)
    if closed is not None:
        raise closed
