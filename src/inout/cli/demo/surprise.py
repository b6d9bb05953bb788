"""How unexpected each word of a sentence is, given the words before it."""

from __future__ import annotations

import math

from inout.cli.paper import Paper, bar_text
from inout.grammars.parser.parser import Parser

SENTENCE = "the astronomer saw the star with a telescope"
FULL_BAR = 10.0  # bits


def surprisals(parser: Parser) -> list[tuple[str, float]]:
    """Each word of the sentence with its surprisal in bits."""
    words = SENTENCE.split()
    bits = parser.surprisals(words) / math.log(2)
    return list(zip(words, bits.tolist(), strict=True))


def print_surprisals(paper: Paper, found: list[tuple[str, float]]) -> None:
    """Print one word per line, with a bar."""
    paper.heading("Surprisal", "how unexpected each word is, in bits")
    rows = [(word, f"{bits:.1f}", bar_text(bits, FULL_BAR)) for word, bits in found]
    paper.table(["word", "bits", ""], rows, "lrl", indent=3)
