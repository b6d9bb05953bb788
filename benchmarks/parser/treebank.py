"""GENIA: a Markovised PCFG of the training part on the short sentences of the dev part."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from nltk.tree import Tree

from benchmarks import genia
from benchmarks.report import Figure
from inout import Markovisation, Parser
from inout.grammars.treebank import Scores, leaves, original_label, restore, score

# Best on the dev part among the few settings tried.
ORDERS = Markovisation(horizontal=1, vertical=2, tags=True)
METHODS = {"viterbi": "Viterbi", "min_risk": "minimum risk", "max_rule": "max-rule"}
MINUTES = 10
QUICK = 100  # sentences


@dataclass(frozen=True, eq=False)
class Treebank:
    """A parser and trees to find again."""

    parser: Parser
    gold: list[Tree]
    seconds: float  # to read the grammar off the treebank and compile it

    def parse(self, method: str) -> tuple[Scores, float]:
        """The scores of a method of decoding, and the seconds of parsing on all cores."""
        sentences = [leaves(tree) for tree in self.gold]
        label = original_label if method == "min_risk" else None
        start = time.perf_counter()
        found = self.parser.parse_all(sentences, method, label=label)
        seconds = time.perf_counter() - start
        # The labels of minimum risk are the treebank's already.
        trees = [p.tree if p.tree is None or label else restore(p.tree) for p in found]
        return score(self.gold, trees), seconds


def load(quick: bool) -> Treebank:
    """The grammar of the training part, the short dev trees (quick: the first)."""
    start = time.perf_counter()
    parser = Parser(genia.grammar(ORDERS))
    seconds = time.perf_counter() - start
    gold = genia.trees("dev", genia.LONGEST, QUICK if quick else None)
    return Treebank(parser, gold, seconds)


def figures(treebank: Treebank) -> Iterator[Figure]:
    """Accuracy and speed of each method."""
    grammar, count = treebank.parser.grammar, len(treebank.gold)
    yield Figure("GENIA: rules of the grammar", len(grammar), "")
    yield Figure("GENIA: grammar from the training part", treebank.seconds, "s")
    yield Figure(f"GENIA: dev sentences up to {genia.LONGEST} words", count, "")
    short = [leaves(tree)[:3] for tree in treebank.gold[:1]]
    found: dict[str, float] = {}
    for method, name in METHODS.items():
        treebank.parser.parse_all(short, method)  # compiles
        scores, seconds = treebank.parse(method)
        found[method] = 100 * scores.f1
        yield Figure(f"GENIA, {name}: F1", 100 * scores.f1, "%")
        yield Figure(f"GENIA, {name}: precision", 100 * scores.precision, "%")
        yield Figure(f"GENIA, {name}: recall", 100 * scores.recall, "%")
        yield Figure(f"GENIA, {name}: exact match", 100 * scores.exact_match, "%")
        yield Figure(f"GENIA, {name}: right tags", 100 * scores.tag_accuracy, "%")
        yield Figure(f"GENIA, {name}: sentences without a tree", scores.num_failed, "")
        yield Figure(f"GENIA, {name}: speed on all cores", count / seconds, "sentences/s")
        yield Figure(f"GENIA, {name}: parsing", seconds / 60, "min", at_most=MINUTES)
    gain = found["min_risk"] - found["viterbi"]
    yield Figure("GENIA: F1 of minimum risk above that of Viterbi", gain, "points", at_least=0.01)
