"""The grammars and sentences of the workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nltk
import numpy as np

from benchmarks.data import data_file
from inout import Grammar, Parser
from inout.grammars import library

# Forty words that the WSJ grammars have, with attachments to argue about.
WSJ_SENTENCE = (
    "the company said it expects to report a loss for the third quarter , mainly because of lower "
    "sales , and that its president will leave the board in april because the bank has not agreed "
    "to extend loans ."
)


def wsj(name: str) -> Parser:
    """A parser with the grammar R0 or R2."""
    return Parser(Grammar.load(data_file(f"grammars/wsj.eng.{name}.gr.xz")))


@dataclass(frozen=True, eq=False)
class Sample:
    """A grammar and sentences that NLTK can handle as well."""

    name: str
    parser: Parser
    peer: Any  # the same grammar, as an `nltk.PCFG`
    sentences: list[list[str]]


def english(shortest: int, longest: int, limit: int | None) -> Sample:
    """The shipped grammar of English, and its first sentences of some lengths."""
    sentences = [s for s in library.sentences("corpus") if shortest <= len(s) <= longest]
    name = f"English, {shortest} to {longest} words"
    return _sample(name, library.load("english"), sentences[:limit])


@dataclass(frozen=True, eq=False)
class Atis:
    """The ATIS grammar, and its sentences with the numbers of their trees."""

    grammar: Grammar
    counts: list[tuple[int, list[str]]]

    def sample(self, shortest: int, longest: int, limit: int) -> Sample:
        """The first sentences of some lengths that have trees; all rules of a symbol alike."""
        sizes = np.bincount(self.grammar.distributions)
        weighted = self.grammar.with_log_weights(-np.log(sizes[self.grammar.distributions]))
        fitting = [s for count, s in self.counts if count and shortest <= len(s) <= longest]
        return _sample(f"ATIS, {shortest} to {longest} words", weighted, fitting[:limit])


def atis() -> Atis:
    """5,517 rules, 98 sentences."""
    text = data_file("grammars/atis_sentences.txt").read_text(encoding="utf-8")
    rows = [line.split(":", 1) for line in text.splitlines() if line[:1].isdigit()]
    counts = [(int(count), words.split()) for count, words in rows]
    return Atis(Grammar.load(data_file("grammars/atis.cfg")), counts)


def _sample(name: str, grammar: Grammar, sentences: list[list[str]]) -> Sample:
    peer = nltk.PCFG.fromstring(grammar.to_text("nltk"))
    return Sample(name, Parser(grammar), peer, sentences)
