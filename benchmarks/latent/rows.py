"""Rows of the table: a grammar of GENIA, how long it took to make, and how well it parses."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nltk.tree import Tree

from benchmarks import genia
from benchmarks.report import Figure
from inout import Parser
from inout.grammars import Grammar
from inout.grammars.treebank import leaves, original_label, restore, score
from inout.latent import LatentGrammar, LatentParser
from inout.latent.decoding.best_trees import Method

METHOD: Method = "goodman"  # the paper's
FALLBACKS = ("wider", "unpruned", "skeletal", "none")

Trees = Sequence[Tree | None]


@dataclass(frozen=True, eq=False)
class Row:
    """What one grammar did."""

    name: str
    training: float  # seconds
    f1: dict[str, float]  # of each part, in percent
    speed: float  # sentences a second
    sources: Counter[str] = field(default_factory=Counter)  # of trees of latent grammars

    def figures(self) -> Iterator[Figure]:
        """The row as cells of the table."""
        yield self._cell("training", self.training, "s")
        for part, value in self.f1.items():
            yield self._cell(f"F1 {part}", value, "%")
        yield self._cell("speed", self.speed, "sentences/s")
        if self.sources:
            everything = sum(self.sources.values())
            negative = 100 * self.sources["negative"] / everything
            yield self._cell("negative p(x)", negative, "%")
            fallen = 100 * sum(self.sources[name] for name in FALLBACKS) / everything
            yield self._cell("fallbacks", fallen, "%")

    def _cell(self, column: str, value: float, unit: str) -> Figure:
        return Figure(f"{self.name}: {column}", value, unit, cell=(self.name, f"{column}, {unit}"))


def evaluated(
    name: str,
    training: float,
    parse: Callable[[Sequence[list[str]]], tuple[Trees, Counter[str]]],
    parts: dict[str, list[Tree]],
) -> Row:
    """The row of a parser: F1 on each part, speed over all of them."""
    f1, sources, seconds, sentences = {}, Counter[str](), 0.0, 0
    for part, gold in parts.items():
        words = [leaves(tree) for tree in gold]
        start = time.perf_counter()
        trees, found = parse(words)
        seconds += time.perf_counter() - start
        sentences += len(words)
        sources += found
        f1[part] = 100 * score(gold, trees).f1
    return Row(name, training, f1, sentences / seconds, sources)


def latent_row(
    name: str,
    training: float,
    grammar: LatentGrammar,
    parts: dict[str, list[Tree]],
    threshold: float | None = 1e-5,
) -> Row:
    """The row of a latent grammar."""
    parser = LatentParser(grammar, threshold=threshold)
    parser.parse(leaves(next(iter(parts.values()))[0])[:5], METHOD)  # compiles

    def parse(sentences: Sequence[list[str]]) -> tuple[Trees, Counter[str]]:
        found = parser.parse_all(sentences, METHOD)
        return [parse.tree for parse in found], Counter(parse.source for parse in found)

    return evaluated(name, training, parse, parts)


def plain_row(
    name: str, training: float, grammar: Grammar, method: str, parts: dict[str, list[Tree]]
) -> Row:
    """The row of an ordinary grammar; the labels of minimum risk are the treebank's already."""
    parser = Parser(grammar)
    label = original_label if method == "min_risk" else None
    parser.parse(leaves(next(iter(parts.values()))[0])[:5], method, label=label)

    def parse(sentences: Sequence[list[str]]) -> tuple[Trees, Counter[str]]:
        found = [each.tree for each in parser.parse_all(sentences, method, label=label)]
        trees = [tree if tree is None or label else restore(tree) for tree in found]
        return trees, Counter()

    return evaluated(name, training, parse, parts)


def gold_parts(limit: int | None) -> dict[str, list[Tree]]:
    """The trees of up to 40 words to find again."""
    return {part: genia.trees(part, genia.LONGEST, limit) for part in ("dev", "test")}
