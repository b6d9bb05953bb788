"""Answers about sentences printed, with notes at the end; and as JSON, one per line."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch

from inout._core.pipeline import in_order
from inout.cli.formats import exact, json_line, number
from inout.cli.grammars.answers import Answer, Found
from inout.cli.grammars.loading import Line
from inout.cli.grammars.parse_html import Pages
from inout.cli.grammars.parse_text import fallback_notes, print_brackets, print_drawings
from inout.cli.messages import note
from inout.cli.paper import Paper
from inout.cli.progress import counter
from inout.grammars.treebank import format_tree
from inout.io.files import write_text

FORMAT = "inout parse 1"
MOST = 700.0  # exp of more overflows
Shape = Literal["tree", "bracketed", "json"]


def seeded_answers(
    answer: Callable[[Line, int], Answer], lines: Iterable[Line], seed: int
) -> Iterator[Answer]:
    """The answer to each line, in order, as soon as it is there.

    Each has a seed of its own, so that threads do not mix up what is drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    given = ((line, int(torch.randint(2**62, (1,), generator=generator))) for line in lines)
    return in_order(lambda pair: answer(*pair), given, torch.get_num_threads())


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
    for text in fallback_notes(found_by, done) if done > 1 or shape != "tree" else []:
        note(text)
    if failed and done > 1:
        note(f"{failed:,} of {done:,} sentences have no tree")
    if pages is not None and html is not None and done:
        write_text(html, pages.html())
        print(f"wrote {html}", file=sys.stderr)
    if closed is not None:
        raise closed


def as_json(answer: Answer) -> str:
    """One line of JSON; infinities and counts beyond 2**53 are strings."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "source": answer.line.source,
        "line": answer.line.number,
        "words": list(answer.words),
        "log_partition": number(answer.log_partition),
        "reason": answer.reason,
        "unknown": list(answer.unknown),
        "trees": [_tree(found) for found in answer.trees],
    }
    if answer.found_by is not None:
        document |= {"sign": answer.sign, "found_by": answer.found_by}
    if answer.samples:
        document["samples"] = [_tree(found) for found in answer.samples]
    if answer.count is not None:
        document["count"] = "inf" if answer.count == math.inf else exact(int(answer.count))
    if answer.constituents is not None:
        logs = answer.log_values or {}
        document["constituents"] = [
            {"label": label, "start": i, "end": j, "expected_count": value}
            | dict(zip(("log_inside", "log_outside"), logs.get((label, i, j), ()), strict=False))
            for (label, i, j), value in sorted(
                answer.constituents.items(), key=lambda item: (item[0][1], -item[0][2], -item[1])
            )
        ]
    return json_line(document)


def _tree(found: Found) -> dict[str, Any]:
    return {
        "tree": format_tree(found.tree),
        "log_weight": number(found.log_weight),
        "probability": found.sign * math.exp(min(found.log_probability, MOST)),
    }
