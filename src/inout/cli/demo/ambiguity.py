"""Ambiguous sentences: their trees and probabilities; surprisals of the words of another."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from inout.cli.grammars.answers import Answer, Found, Request
from inout.cli.grammars.forests import tree_node
from inout.cli.grammars.loading import Line
from inout.cli.grammars.parse_by_grammar import answer as answer_line
from inout.cli.grammars.parse_text import trees
from inout.cli.paper import BAR_WIDTH, Paper, bar_text, draw
from inout.grammars import library
from inout.grammars.parser.parser import Parser
from inout.viz.branches import side_by_side
from inout.viz.text import bar

SENTENCE = "the astronomer saw the star with a telescope"
FULL_BAR = 10.0  # bits
DRAWN = ("fruit flies like a banana", "I saw her duck")
_ASKED = Request(k=2, count=True, constituents=True, picture=True)
_INDENT = 3


def parsed(parser: Parser) -> list[Answer]:
    """Answers for the ambiguous sentences of the library.

    Those that are drawn come first.
    """
    sentences = [" ".join(words) for words in library.sentences("ambiguous")]
    ordered = [*DRAWN, *(text for text in sentences if text not in DRAWN)]
    lines = [Line("ambiguous", number, text) for number, text in enumerate(ordered, 1)]
    return [answer_line(parser, _ASKED, line, seed=0) for line in lines]


def print_ambiguity(paper: Paper, found: Sequence[Answer]) -> None:
    """Print two sentences with their trees, and a line for each of the others."""
    for answer in found[: len(DRAWN)]:
        paper.heading(" ".join(answer.words), f"{trees(answer.count or 0)}, with probabilities")
        _print_trees(paper, answer.trees)
    paper.heading("More sentences", "number of trees, probability of the best")
    others = [(" ".join(answer.words), answer) for answer in found[len(DRAWN) :]]
    longest = max(len(text) for text, _ in others)
    # Better short bars, or none, than truncated sentences.
    room = min(BAR_WIDTH, paper.width - longest - 14)
    for text, answer in others:
        best = probability(answer.trees[0])
        line = Text(f"{'':{_INDENT}}{answer.count}  {best:.2f}  ")
        if room >= 5:
            line.append(f"{bar(best, room)}  ", style="blue")
        paper.line(line.append(text))


def probability(found: Found) -> float:
    """The probability of a tree given its sentence."""
    return math.exp(min(found.log_prob, 0.0))


def _print_trees(paper: Paper, found: Sequence[Found]) -> None:
    """The trees side by side if they fit, otherwise one below the other."""
    drawings = []
    for tree in found:
        share = probability(tree)
        drawn = draw(tree_node(tree.tree), paper.width - _INDENT)
        drawings.append(f"{share:.3f}  {bar(share, BAR_WIDTH)}\n{drawn}")
    together = side_by_side(drawings, paper.width - _INDENT)
    for number, block in enumerate(drawings if together is None else [together]):
        if number:
            paper.line()
        head, *rest = (" " * _INDENT + row for row in block.split("\n"))
        line = Text(head)
        line.highlight_regex(r"\d\.\d+", "bold")
        line.highlight_regex("[█-▏]+", "blue")
        paper.line(line)
        paper.line("\n".join(rest))


def surprisals(parser: Parser) -> list[tuple[str, float]]:
    """Each word of the sentence with its surprisal in bits."""
    words = SENTENCE.split()
    bits = parser.surprisals(words) / math.log(2)
    return list(zip(words, bits.tolist(), strict=True))


def print_surprisals(paper: Paper, found: list[tuple[str, float]]) -> None:
    """Print one word per line, with a bar."""
    paper.heading("Surprisal", "how unexpected each word is, in bits")
    rows = [(word, f"{bits:.1f}", bar_text(bits, FULL_BAR)) for word, bits in found]
    paper.table(["word", "bits", ""], rows, "lrl", indent=_INDENT)
