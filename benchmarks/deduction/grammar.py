"""The grammars and sentences of the workload, and their facts."""

from __future__ import annotations

import lzma
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.data import data_file
from inout import Facts

WSJ = "grammars/wsj.eng.R0.gr.xz"
SENTENCE = (
    "the company said it expects to report a loss for the third quarter , "
    "mainly because of lower sales ."
)

PROGRAM = """
goal        += beta("S", 0, N) * length(N).
beta(X,I,K) += rule(X,Y,Z) * beta(Y,I,J) * beta(Z,J,K).
beta(X,I,K) += rule(X,W) * word(W,I,K).
"""

# Clauses within clauses, so that a parse is as high as it is long; "with her" can go with four
# things.
TOY_SENTENCE = "I know she said he saw a man with her"
TOY_BINARY = {
    ("S", "NP", "VP"): 1.0,
    ("VP", "V", "NP"): 0.4,
    ("VP", "V", "S"): 0.4,
    ("VP", "VP", "PP"): 0.2,
    ("NP", "NP", "PP"): 0.1,
    ("NP", "D", "N"): 0.5,
    ("N", "N", "PP"): 0.1,
    ("PP", "P", "NP"): 1.0,
}
TOY_LEXICAL = {
    ("NP", "I"): 0.1,
    ("NP", "she"): 0.1,
    ("NP", "he"): 0.1,
    ("NP", "her"): 0.1,
    ("V", "know"): 0.3,
    ("V", "said"): 0.3,
    ("V", "saw"): 0.4,
    ("D", "a"): 0.7,
    ("D", "her"): 0.3,
    ("N", "man"): 0.6,
    ("N", "saw"): 0.3,
    ("P", "with"): 1.0,
}


Binary = Mapping[tuple[str, str, str], float]
Pairs = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Parsing:
    """A grammar in Chomsky normal form with log-weights, and a sentence."""

    binary: Binary
    lexical: Pairs
    words: Sequence[str]

    @property
    def rules(self) -> dict[tuple[str, ...], float]:
        """All rules."""
        return dict(chain(self.binary.items(), self.lexical.items()))

    def facts(self) -> dict[str, Facts]:
        """The facts of `PROGRAM`."""
        return {
            "rule": Facts(list(self.rules), list(self.rules.values())),
            "word": Facts([(word, i, i + 1) for i, word in enumerate(self.words)]),
            "length": Facts([(len(self.words),)]),
        }


def toy() -> Parsing:
    """The ten-word sentence with a grammar of twenty rules."""
    return Parsing(
        {rule: math.log(p) for rule, p in TOY_BINARY.items()},
        {rule: math.log(p) for rule, p in TOY_LEXICAL.items()},
        TOY_SENTENCE.split(),
    )


def wsj() -> tuple[Parsing, Parsing]:
    """The twenty-word sentence with the WSJ grammar: unary rules left out, and closed."""
    binary, unary, lexicon = _read(data_file(WSJ))
    words = SENTENCE.split()
    lexical = {rule: weight for rule, weight in lexicon.items() if rule[1] in words}
    return Parsing(binary, lexical, words), _closed(Parsing(binary, lexical, words), unary)


def _read(path: Path) -> tuple[Binary, Pairs, Pairs]:
    """(binary rules, unary rules, lexical rules) with their log-probabilities."""
    binary: dict[tuple[str, str, str], float] = {}
    unary: dict[tuple[str, str], float] = {}
    lexical: dict[tuple[str, str], float] = {}
    part = unary
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        next(lines)  # about the file
        for line in lines:
            match line.split():
                case ["=====", "LEXICON", "====="]:
                    part = lexical
                case [head, "->", left, right, weight]:
                    binary[head, left, right] = float(weight)
                case [head, "->", child, weight]:
                    part[head, child] = float(weight)
    return binary, unary, lexical


def _closed(parsing: Parsing, unary: Pairs) -> Parsing:
    """The same with each chain of unary rules folded into the rule below it."""
    symbols = sorted({s for rule in (*parsing.binary, *unary) for s in rule})
    number = {symbol: i for i, symbol in enumerate(symbols)}
    steps = np.zeros((len(symbols), len(symbols)))
    for (head, child), weight in unary.items():
        steps[number[head], number[child]] = math.exp(weight)
    chains = np.linalg.inv(np.eye(len(symbols)) - steps)  # the sum of all powers
    linked = np.eye(len(symbols), dtype=bool)
    for _ in symbols:
        linked |= steps @ linked > 0
    binary: dict[tuple[str, str, str], float] = defaultdict(float)
    lexical: dict[tuple[str, str], float] = defaultdict(float)
    for (low, left, right), weight in parsing.binary.items():
        for top in np.flatnonzero(linked[:, number[low]]):
            binary[symbols[top], left, right] += chains[top, number[low]] * math.exp(weight)
    for (low, word), weight in parsing.lexical.items():
        for top in np.flatnonzero(linked[:, number[low]]):
            lexical[symbols[top], word] += chains[top, number[low]] * math.exp(weight)
    return Parsing(
        {rule: math.log(p) for rule, p in binary.items()},
        {rule: math.log(p) for rule, p in lexical.items()},
        parsing.words,
    )
