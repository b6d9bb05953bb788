"""Surprisals of the words of sentences, as tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from rich.text import Text

from inout._core.pipeline import in_order
from inout.cli.formats import json_line, number
from inout.cli.grammars.answers import refusal
from inout.cli.grammars.loading import Line
from inout.cli.paper import Paper, bar_text
from inout.grammars.parser.parser import Parser
from inout.viz.labels import clean

FORMAT = "inout surprisal 1"
FULL_BAR = 20.0  # bits
END = "(end)"


@dataclass(frozen=True)
class Answer:
    """The surprisals of one sentence in bits, inf from the first impossible word on.

    With --end there is one more than there are words.
    """

    line: Line
    words: Sequence[str]
    bits: Sequence[float]
    reason: str | None = None

    @property
    def total(self) -> float:
        """The sum over all words."""
        return math.fsum(self.bits)


@dataclass
class Totals:
    """Sums over the sentences whose surprisals are finite."""

    sentences: int = 0
    left_out: int = 0
    words: int = 0
    bits: float = 0.0

    def add(self, answer: Answer) -> None:
        self.sentences += 1
        if answer.reason is None and math.isfinite(answer.total):
            self.words += len(answer.words)
            self.bits += answer.total
        else:
            self.left_out += 1


def answers(parser: Parser, lines: Iterable[Line], max_words: int, end: bool) -> Iterator[Answer]:
    """The surprisals of each line, in order, as soon as they are known."""
    ask = partial(_answer, parser, max_words, end)
    return in_order(ask, lines, torch.get_num_threads())


def _answer(parser: Parser, max_words: int, end: bool, line: Line) -> Answer:
    words = line.words
    refused = refusal(len(parser.form.table.nonterminals), len(words), max_words)
    if refused is None and not words and not end:
        refused = "no words"
    if refused is not None:
        return Answer(line, words, (), refused)
    bits = (parser.surprisals(words, end=end) / math.log(2)).tolist()
    return Answer(line, words, bits)


def print_answer(paper: Paper, answer: Answer) -> None:
    """Print one word per line, with a bar."""
    title = " ".join(answer.words) if len(answer.words) <= 100 else f"{answer.line.place}"
    paper.line(Text(clean(title) or "(no words)", style="bold"))
    if answer.reason is not None:
        paper.sentence(f"skipped: {answer.reason}", "yellow")
        paper.line()
        return
    rows: list[list[str | Text]] = [
        [clean(word), _bits(value), bar_text(min(value, FULL_BAR), FULL_BAR)]
        for word, value in zip([*answer.words, END], answer.bits, strict=False)
    ]
    rows.append([Text("total", style="dim"), _bits(answer.total), ""])
    paper.table(["word", "bits", ""], rows, "lrl")
    if math.isinf(answer.total):
        size = 1 + next(i for i, value in enumerate(answer.bits) if math.isinf(value))
        if size > len(answer.words):
            paper.sentence("no sentence of the grammar ends here", "yellow")
            paper.line()
            return
        those = "this word" if size == 1 else f"these {size:,} words"
        paper.sentence(f"no sentence of the grammar begins with {those}", "yellow")
    paper.line()


def print_totals(paper: Paper, totals: Totals) -> None:
    """Print the sums over all sentences."""
    mean = totals.bits / totals.words if totals.words else 0.0
    paper.pairs(
        [
            ("sentences", f"{totals.sentences - totals.left_out:,}"),
            ("words", f"{totals.words:,}"),
            ("bits", f"{totals.bits:.4f}, {mean:.4f} per word"),
            ("perplexity", f"{2**mean:.4f} per word"),
        ]
    )


def as_json(answer: Answer) -> str:
    """One line of JSON; an infinite surprisal is the string "inf"."""
    document = {
        "format": FORMAT,
        "source": answer.line.source,
        "line": answer.line.number,
        "words": list(answer.words),
        "surprisals": [number(value) for value in answer.bits[: len(answer.words)]],
        "end": next((number(value) for value in answer.bits[len(answer.words) :]), None),
        "total": None if answer.reason is not None else number(answer.total),
        "unit": "bits",
        "reason": answer.reason,
    }
    return json_line(document)


def _bits(value: float) -> str:
    return "inf" if math.isinf(value) else f"{value:.4f}"
