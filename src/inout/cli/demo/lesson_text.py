"""The result of learning as text: the rising likelihood, and the learned words."""

from __future__ import annotations

from rich.text import Text

from inout.cli import formats
from inout.cli.demo.learning import CLASSES, Lesson, likely_words
from inout.cli.paper import Paper
from inout.viz.text import columns

_INDENT = 3


def print_task(paper: Paper) -> None:
    """Say what is about to happen, before the work."""
    paper.heading("Learning", "the grammar forgets its dictionary")
    paper.sentence(
        "Every part of speech may now be any word, with random probabilities. Inside-outside "
        "reads a corpus of plain sentences, without trees. Each iteration takes the gradient of "
        "the log-likelihood, which is the expected count of each rule, and normalises it.",
        indent=_INDENT,
    )


def print_lesson(paper: Paper, lesson: Lesson) -> None:
    """Print the curve, numbers before and after, and the words of some parts of speech."""
    result = lesson.result
    paper.heading("The likelihood rises", "log-likelihood of the corpus")
    _print_curve(paper, result.log_likelihoods)
    paper.line()
    first, last = lesson.perplexities
    size = formats.plural(len(lesson.corpus), "sentence")
    paper.line(f"{'':{_INDENT}}{'corpus':<17}{size}, read {result.iterations} times")
    rows = [
        ("perplexity", f"{first:.1f}", f"{last:.1f}", "a word"),
        ("parts of speech", f"{lesson.right_before:.0%}", f"{lesson.right_after:.0%}", "right"),
    ]
    for name, before, after, unit in rows:
        numbers = Text.assemble(f"{before} → ", (after, "bold"), f" {unit}")
        paper.line(Text.assemble(" " * _INDENT, f"{name:<17}", numbers))
    paper.heading("What it learned", "the likeliest words of some parts of speech")
    room = paper.width - _INDENT - 12
    paper.table(
        ["", "at random", "learned"],
        [
            (
                name,
                Text(_fitting(likely_words(lesson.start, name, 9), room * 2 // 5), style="dim"),
                _fitting(likely_words(lesson.result.model, name, 9), room * 3 // 5),
            )
            for name in CLASSES
        ],
        "lll",
        indent=_INDENT,
    )


def _print_curve(paper: Paper, values: tuple[float, ...]) -> None:
    marks = [f"{value:,.0f}" for value in (values[-1], values[0])]
    margin = max(map(len, marks))
    drawn = columns(values, paper.width - _INDENT - margin - 2)
    for row, line in enumerate(drawn):
        mark = marks[0] if row == 0 else marks[1] if row == len(drawn) - 1 else ""
        paper.line(Text.assemble(" " * _INDENT, (f"{mark:>{margin}} │", "dim"), (line, "blue")))


def _fitting(words: list[str], room: int) -> str:
    """As many of the words as there is room for.

    >>> _fitting(["saw", "likes", "opened"], 10)
    'saw likes'
    """
    text = ""
    for word in words:
        if len(text) + 1 + len(word) > room and text:
            break
        text += f" {word}" if text else word
    return text
