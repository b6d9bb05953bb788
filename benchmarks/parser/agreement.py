"""What the parser finds, beside NLTK, the forest of a deduction program, and known counts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from nltk.parse import InsideChartParser, ViterbiParser
from nltk.tree import Tree

from benchmarks.data import data_file
from benchmarks.deduction import grammar as deduction
from benchmarks.parser.grammars import Atis, Sample
from benchmarks.report import Agreement
from inout import Grammar, Parser, Program
from inout.grammars import library


def with_nltk(sample: Sample) -> Iterator[Agreement]:
    """log Z as the sum over all trees, and the best tree, of ambiguous sentences."""
    trees_of, best_of = InsideChartParser(sample.peer), ViterbiParser(sample.peer)
    off, number, other, weight = 0.0, 0, 0, 0.0
    for words in library.sentences("ambiguous"):
        trees = list(trees_of.parse(words))
        log_z = math.log(math.fsum(tree.prob() for tree in trees))
        off = max(off, abs(log_z - float(sample.parser.log_partition(words))))
        number += abs(len(trees) - int(sample.parser.count(words)))
        best, ours = next(iter(best_of.parse(words))), sample.parser.parse(words)
        weight = max(weight, abs(math.log(best.prob()) - ours.log_weight))
        # Of trees that are equally good each may give its own.
        ties = sum(tree.prob() > best.prob() * (1 - 1e-12) for tree in trees)
        other += ties == 1 and str(ours.tree) != str(Tree.convert(best))
    yield Agreement("number of trees, ambiguous English: NLTK", number, 0)
    yield Agreement("log Z, ambiguous English: sum of NLTK's trees", off, 1e-12)
    yield Agreement("weight of the best tree, ambiguous English: NLTK", weight, 1e-12)
    yield Agreement("best trees that are not NLTK's, ambiguous English", other, 0)


def best_weights(sample: Sample) -> Iterator[Agreement]:
    """The weights of the best trees that will be timed."""
    peer = ViterbiParser(sample.peer)
    off = max(
        abs(math.log(next(iter(peer.parse(s))).prob()) - sample.parser.parse(s).log_weight)
        for s in sample.sentences
    )
    yield Agreement(f"weight of the best tree, {sample.name}: NLTK", off, 1e-12)


def parse_counts(atis: Atis) -> Iterator[Agreement]:
    """The numbers of trees that come with the sentences."""
    parser = Parser(atis.grammar)
    wrong = sum(parser.count(words) != count for count, words in atis.counts)
    yield Agreement(f"wrong numbers of trees of {len(atis.counts)} ATIS sentences", wrong, 0)


def with_deduction() -> Iterator[Agreement]:
    """log Z beside that of the deduction program's forest, whose unary rules are closed by hand."""
    _, closed = deduction.wsj()
    grammar = Grammar.load(data_file(deduction.WSJ), start="S")
    forest = Program(deduction.PROGRAM).ground(closed.facts())
    ours = Parser(grammar).log_partition(list(closed.words))
    off = abs(float(forest.log_partition()) - float(ours))
    yield Agreement(f"log Z, WSJ R0, {len(closed.words)} words: deduction", off, 1e-10)
