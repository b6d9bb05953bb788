"""Parsing with latent-variable grammars against the enumeration of all trees and latent values."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from nltk.tree import Tree
from scipy.stats import chisquare

import inout
from inout._core.errors import ArgumentError
from inout.grammars.words import Vocabulary
from inout.latent import (
    LPCFG,
    LatentGrammar,
    LatentParser,
    Layout,
    TrainingSet,
    refined_grammar,
)
from inout.latent.graphs import chart_of_sentence
from inout.latent.parsing.labels import treebank_constituents
from inout.latent.parsing.parser import MOST_WORDS_UNPRUNED, WIDER
from tests.oracle.latent_cases import (
    Case,
    Node,
    log_of,
    nltk_tree,
    nodes,
    random_case,
    trees,
)
from tests.support import assert_close

NAMES = ("S", "S+VP", "VP", "NP", "NP|<>", "NP+NN", "NN", "NP+S+NP")
METHODS = ("goodman", "min_risk", "max_rule")
Constituents = Counter[tuple[str, int, int]]


def treebank_case(seed: int, *, negative: bool = False, zeros: float = 0.0) -> Case:
    """Random rules over symbols such as treebanks give; each may stand above words and others."""
    rng = random.Random(seed)

    def number() -> float:
        if rng.random() < zeros:
            return 0.0
        return rng.uniform(0.1, 1.0) ** 3 * (-1 if negative and rng.random() < 0.4 else 1)

    binary = rng.sample(list(product(NAMES, repeat=3)), 60)
    entries = [entry for entry in product(NAMES, "xy") if rng.random() < 0.6]
    entries = entries or [("NN", "x")]
    used = sorted({s for rule in binary for s in rule} | {a for a, _ in entries})
    m = {a: rng.choice([1, 1, 2]) for a in used}
    return Case(
        m,
        {(a, h): number() if rng.random() < 0.6 else 0.0 for a in used for h in range(m[a])},
        {(a, x, h): number() for a, x in entries for h in range(m[a])},
        {
            (a, b, c, *hs): number()
            for a, b, c in binary
            for hs in product(range(m[a]), range(m[b]), range(m[c]))
        },
    )


def skeletal_case(case: Case, seed: int) -> Case:
    """The rules of a case with one value each and weights of their own."""
    rng = random.Random(seed)
    return Case(
        dict.fromkeys(case.sizes, 1),
        {(a, 0): rng.uniform(0.1, 1.0) for a in case.sizes},
        {(a, x, 0): rng.uniform(0.1, 1.0) for a, x in case.lexical_rules},
        {(a, b, c, 0, 0, 0): rng.uniform(0.1, 1.0) for a, b, c in case.binary_rules},
    )


def grammar_of(case: Case, coarse: Case) -> LatentGrammar:
    skeleton = case.layout.skeleton
    model = LPCFG(case.layout, case.parameters)
    values: dict[tuple[Any, ...], float] = {**coarse.root, **coarse.lexical, **coarse.blocks}
    names, words = skeleton.nonterminals, skeleton.words
    keys: list[tuple[Any, ...]] = [(a, 0) for a in names]
    keys += [(names[a], words[x], 0) for a, x in skeleton.lexical.tolist()]
    keys += [(*(names[s] for s in rule), 0, 0, 0) for rule in skeleton.binary.tolist()]
    parameters = np.array([values[key] for key in keys])
    skeletal = LPCFG(Layout(skeleton, 1), parameters)
    return LatentGrammar(model, skeletal, Vocabulary.from_terminals(words))


def parser_of(case: Case, threshold: float | None = None, seed: int = 0) -> LatentParser:
    return LatentParser(grammar_of(case, skeletal_case(case, seed)), threshold=threshold)


class Truth:
    """All trees of a sentence with their shares of the mass, some of them perhaps negative."""

    def __init__(self, case: Case, words: Sequence[str], found: list[Node] | None = None) -> None:
        self.trees = trees(case, words) if found is None else found
        self._vectors: dict[int, list[Fraction]] = {}
        self.weights = [self._weight(case, tree) for tree in self.trees]
        self.total = sum(self.weights, Fraction(0))
        self.items: dict[tuple[str, int, int], Fraction] = defaultdict(Fraction)
        self.rules: dict[tuple[Any, ...], Fraction] = defaultdict(Fraction)
        self.at_least: dict[tuple[str, int, int, int], Fraction] = defaultdict(Fraction)
        for tree, weight in zip(self.trees, self.weights, strict=True):
            for node in nodes(tree):
                self.items[node[:3]] += weight
                self.rules[rule_of(node)] += weight
            for constituent, count in constituents_of(tree).items():
                for k in range(count):
                    self.at_least[(*constituent, k)] += weight

    def _weight(self, case: Case, tree: Node) -> Fraction:
        vector, a = self._vector(case, tree), tree[0]
        return sum((x * case.exact[a, h] for h, x in enumerate(vector)), Fraction(0))

    def _vector(self, case: Case, node: Node) -> list[Fraction]:
        """The sum over all latent values below a node, for each of its own; trees share nodes."""
        if id(node) not in self._vectors:
            a, values = node[0], range(case.sizes[node[0]])
            if len(node) == 4:
                made = [case.exact[a, node[3], h] for h in values]
            else:
                (left, right), made = node[3:], [Fraction(0) for _ in values]
                ones, others = self._vector(case, left), self._vector(case, right)
                for h in values:
                    for (i, p), (j, q) in product(enumerate(ones), enumerate(others)):
                        made[h] += case.exact[a, left[0], right[0], h, i, j] * p * q
            self._vectors[id(node)] = made
        return self._vectors[id(node)]

    def score(self, tree: Node, method: str) -> float:
        """What the method wants to be large; -inf where it excludes the tree."""

        def share(mass: Fraction) -> float:
            return float(mass / self.total)

        if not share(self.items[tree[:3]]) > 0:
            return -math.inf
        if method == "goodman":
            return sum(share(self.items[node[:3]]) for node in nodes(tree))
        if method == "min_risk":
            return sum(
                share(self.at_least[(*constituent, k)]) - 0.5
                for constituent, count in constituents_of(tree).items()
                for k in range(count)
            )
        posteriors = [share(self.rules[rule_of(node)]) for node in nodes(tree)]
        return sum(map(math.log, posteriors)) if min(posteriors) > 0 else -math.inf

    def best(self, method: str) -> float:
        return max((self.score(tree, method) for tree in self.trees), default=-math.inf)


def rule_of(node: Node) -> tuple[Any, ...]:
    if len(node) == 4:
        return node
    left, right = node[3:]
    return (*node[:3], left[0], right[0], right[1])


def constituents_of(tree: Node) -> Constituents:
    found: Constituents = Counter()
    for label, i, j, *below in nodes(tree):
        if "|<" not in label:
            parts = label.split("+")
            found.update((part, i, j) for part in (parts[:-1] if len(below) == 1 else parts))
    return found


def as_node(tree: Tree, start: int = 0) -> Node:
    if isinstance(tree[0], str):
        return (tree.label(), start, start + 1, tree[0])
    left = as_node(tree[0], start)
    right = as_node(tree[1], left[2])
    return (tree.label(), start, right[2], left, right)


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_posteriors_and_marginals(seed: int, negative: bool):
    case = random_case(seed, negative=negative, zeros=0.1)
    words = ["xyx", "yxxy", "x", "yy"][seed % 4]
    truth = Truth(case, words)
    analyses = parser_of(case).given(list(words))
    assert analyses.sign == (truth.total > 0) - (truth.total < 0)
    assert_close(analyses.log_partition, log_of(truth.total), rtol=1e-9)
    assert all(a in case.sizes and 0 <= i < j <= len(words) for a, i, j in analyses.posteriors)
    for place in set(truth.items) | set(analyses.marginals):
        expected = float(truth.items[place])
        assert_close(analyses.marginals.get(place, 0.0), expected, rtol=1e-9)
        if truth.total:
            share = float(truth.items[place] / truth.total)
            assert_close(analyses.posteriors.get(place, 0.0), share, rtol=1e-7)


SENTENCES = ["xyx", "xyxy", "yxxx", "yx"]


@cache
def treebank_truth(seed: int, negative: bool) -> Truth:
    case = treebank_case(seed, negative=negative, zeros=0.1 * (seed % 3))
    return Truth(case, SENTENCES[seed % 4])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("seed", range(16))
def test_the_best_tree_is_the_best_of_all(seed: int, negative: bool, method: Any):
    case = treebank_case(seed, negative=negative, zeros=0.1 * (seed % 3))
    words = SENTENCES[seed % 4]
    truth = treebank_truth(seed, negative)
    found = parser_of(case).given(list(words)).best_tree(method)
    if truth.total == 0 or truth.best(method) == -math.inf:
        assert found is None
        return
    assert found is not None
    assert found.leaves() == list(words)
    tree = as_node(found)
    assert tree in truth.trees
    assert_close(truth.score(tree, method), truth.best(method), rtol=1e-8)


def test_cases_have_what_they_are_there_for():
    """Otherwise the test above would show little."""
    seen: Counter[str] = Counter()
    for seed in range(16):
        truth = treebank_truth(seed, False)
        if not truth.total:
            continue
        bests = {
            method: max(truth.trees, key=lambda tree, method=method: truth.score(tree, method))
            for method in METHODS
        }
        seen["apart"] += len(set(bests.values())) > 1
        seen["shared"] += any(
            treebank_constituents(a, False) and i == j and a != b
            for a, *i in truth.items
            for b, *j in truth.items
            if set(treebank_constituents(a, False)) & set(treebank_constituents(b, False))
        )
        seen["twice"] += any(
            count > 1 for t in truth.trees for count in constituents_of(t).values()
        )
        seen["many"] += len(truth.trees) > 20
    assert min(seen[name] for name in ("apart", "shared", "twice", "many")) >= 5, seen


@pytest.mark.parametrize("seed", range(10))
def test_what_is_no_constituent_is_the_likeliest_among_the_least_risky(seed: int):
    case = treebank_case(seed)
    words = "xyx"
    truth = Truth(case, words)
    found = parser_of(case).given(list(words)).best_tree("min_risk")
    if found is None:
        return
    tree, best = as_node(found), truth.best("min_risk")
    # Rounding may part two that are equally good: those with other brackets are left out.
    spans = sorted(node[1:3] for node in nodes(tree))
    alike = [
        other
        for other in truth.trees
        if truth.score(other, "min_risk") > best - 1e-9
        and sorted(node[1:3] for node in nodes(other)) == spans
    ]
    most = max(truth.score(other, "goodman") for other in alike)
    assert_close(truth.score(tree, "goodman"), most)


def test_a_symbol_above_words_and_above_others_holds_other_constituents():
    # NP over both words is a constituent; NP over one word is the word's tag.
    sizes = {"NP": 1, "NN": 1}
    case = Case(
        sizes,
        {("NP", 0): 1.0, ("NN", 0): 0.0},
        {("NP", "x", 0): 1.0, ("NN", "x", 0): 1.5},
        {("NP", "NP", "NN", 0, 0, 0): 1.0, ("NP", "NN", "NN", 0, 0, 0): 1.0},
    )
    analyses = parser_of(case).given(["x", "x"])
    gains = analyses.table.gains(
        analyses.chart.graph.symbols, analyses.chart.spans, 2, analyses.passes.expected_items
    )
    widths = analyses.chart.spans[:, 1] - analyses.chart.spans[:, 0]
    assert_close(gains[widths == 2], [0.5])
    assert not gains[widths == 1].any()


def test_labels_of_ones_own():
    case = treebank_case(1)
    grammar = grammar_of(case, skeletal_case(case, 0))
    parser = LatentParser(grammar, threshold=None, label=lambda name, above_word: [])
    analyses = parser.given(list("xyx"))
    symbols, spans = analyses.chart.graph.symbols, analyses.chart.spans
    assert not analyses.table.gains(symbols, spans, 3, analyses.passes.expected_items).any()
    assert analyses.best_tree("min_risk") is not None


@pytest.mark.usefixtures("unchecked")
def test_unknown_methods():
    analyses = parser_of(treebank_case(1)).given(["x", "y"])
    with pytest.raises(ArgumentError, match="goodman, min_risk, max_rule"):
        analyses.best_tree("best")  # type: ignore[arg-type]


# Pruning ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [1e-3, 0.05, 0.3])
@pytest.mark.parametrize("seed", range(8))
def test_pruning_keeps_what_the_skeletal_rules_expect(seed: int, threshold: float):
    case = random_case(seed, symbols=4)
    coarse = skeletal_case(case, seed)
    words = list("xyxx"[: 3 + seed % 2])
    expected = Truth(coarse, words)
    assert expected.total > 0
    allowed = {
        place: float(mass / expected.total) >= threshold for place, mass in expected.items.items()
    }
    kept = [tree for tree in expected.trees if all(allowed[node[:3]] for node in nodes(tree))]
    truth, rest = Truth(case, words, kept), Truth(coarse, words, kept)
    analyses = LatentParser(grammar_of(case, coarse), threshold=threshold).given(words)
    assert_close(analyses.log_partition, log_of(truth.total))
    assert_close(analyses.lost_mass(), float(1 - rest.total / expected.total), atol=1e-12)
    assert {place for place in analyses.posteriors if not allowed.get(place)} == set()
    for place, mass in truth.items.items():
        assert_close(analyses.posteriors[place], float(mass / truth.total))
    if threshold == 0.3:
        assert len(kept) < len(expected.trees)


@pytest.mark.parametrize("seed", range(4))
def test_the_mask_is_that_of_the_parser(seed: int):
    case = random_case(seed)
    coarse, words = skeletal_case(case, seed), list("xyxy")
    parser = LatentParser(grammar_of(case, coarse), threshold=0.1)
    found = parser.coarse.expected(words)
    assert found is not None
    names = case.layout.skeleton.nonterminals
    marginals = inout.Parser(refined_grammar(parser.grammar.skeletal)).marginals(words)
    truth = Truth(coarse, words)
    for a, name in enumerate(names):
        for i in range(len(words)):
            for j in range(i + 1, len(words) + 1):
                theirs = marginals.constituents.get((name, i, j), 0.0)
                assert_close(found[i, j, a], theirs)
                assert_close(found[i, j, a], float(truth.items[name, i, j] / truth.total))


def test_without_pruning_nothing_is_lost():
    case = random_case(2)
    analyses = parser_of(case, None).given(list("xyx"))
    assert analyses.lost_mass() < 1e-12
    assert_close(analyses.log_partition, log_of(Truth(case, "xyx").total))


def test_a_start_symbol_that_is_taken():
    case = random_case(1)
    renamed = Case(
        {("TOP" if a == "A" else a): m for a, m in case.sizes.items()},
        {("TOP" if a == "A" else a, h): p for (a, h), p in case.root.items()},
        {("TOP" if a == "A" else a, x, h): p for (a, x, h), p in case.lexical.items()},
        {
            (*("TOP" if s == "A" else s for s in key[:3]), *key[3:]): p  # type: ignore[misc]
            for key, p in case.blocks.items()
        },
    )
    with pytest.raises(ArgumentError, match="'TOP'"):
        refined_grammar(LPCFG(renamed.layout, renamed.parameters))
    parsed = parser_of(renamed, 1e-5).parse(list("xyx"))
    assert parsed.source == "latent"


@pytest.mark.parametrize("threshold", [0.0, 1.0, -1e-3, math.nan])
def test_bad_thresholds(threshold: float):
    case = random_case(1)
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        parser_of(case, threshold)


# Sentences --------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [None, 1e-4])
@pytest.mark.parametrize("method", METHODS)
def test_one_word(threshold: float | None, method: Any):
    case = random_case(5)
    truth = Truth(case, "x")
    parsed = parser_of(case, threshold).parse(["x"], method)
    assert parsed.source == "latent"
    assert parsed.skeletal_tree is not None
    assert_close(truth.score(as_node(parsed.skeletal_tree), method), truth.best(method), rtol=1e-9)


@pytest.mark.parametrize("threshold", [None, 1e-4])
def test_sentences_without_words_or_trees(threshold: float | None):
    parser = parser_of(random_case(5), threshold)
    for words in ([], ["?"], ["x", "?", "x"]):
        analyses = parser.given(words)
        assert analyses.log_partition == -math.inf
        assert analyses.sign == 0
        assert analyses.lost_mass() == 0
        assert not any(analyses.posteriors.values())
        assert not any(analyses.marginals.values())
        assert analyses.best_tree() is None
        assert analyses.sample(3, torch.Generator().manual_seed(0)) == []
        parsed = parser.parse(words)
        assert (parsed.source, parsed.skeletal_tree, parsed.tree) == ("none", None, None)
        assert parsed.unknown == tuple(word for word in words if word == "?")
        assert parsed.words == tuple(words)
    # Words that are known, and no rule to put them together.
    case = Case(
        {"S": 1, "A": 2},
        {("S", 0): 1.0, ("A", 0): 0.0, ("A", 1): 0.0},
        {("A", "x", 0): 1.0, ("A", "x", 1): 1.0},
        {("S", "A", "A", 0, *hs): 1.0 for hs in product(range(2), repeat=2)},
    )
    # One x is an A, which is no root.
    assert parser_of(case, threshold).parse(["x"] * 3).source == "none"
    assert parser_of(case, threshold).given(["x"]).best_tree() is None


@pytest.mark.usefixtures("unchecked")
def test_text_in_place_of_words():
    parser = parser_of(random_case(5))
    for question in (parser.parse, parser.given):
        with pytest.raises(ArgumentError, match="split it first"):
            question("x y")


def test_unknown_words_stand_for_their_class():
    lines = [
        "(TOP (S (NP (DT the) (NN cat)) (VP (VBD walked))))",
        "(TOP (S (NP (DT the) (NN dog)) (VP (VBD talked))))",
    ]
    data = TrainingSet.of(map(Tree.fromstring, lines))
    for threshold in (None, 1e-5):
        parser = LatentParser(data.grammar(data.skeletal), threshold=threshold)
        parsed = parser.parse(["the", "parrot", "squawked"])
        assert parsed.unknown == ("parrot", "squawked")
        assert str(parsed.tree) == "(TOP (S (NP (DT the) (NN parrot)) (VP (VBD squawked))))"
        assert parsed.skeletal_tree is not None
        assert parsed.skeletal_tree.leaves() == ["the", "parrot", "squawked"]
        assert parser.given(["the", "parrot", "squawked"]).known == ["the", "UNK-LC", "UNK-LC-ed"]
        nothing = LPCFG(data.skeletal.layout, np.zeros(data.skeletal.layout.size))
        by_rules = LatentParser(data.grammar(nothing), threshold=threshold)
        found = by_rules.parse(["the", "parrot", "squawked"])
        assert (found.source, found.tree) == ("skeletal", parsed.tree)


# Negative mass, no mass, and what is done then --------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_negative_parameters_never_crash(seed: int):
    case = random_case(seed, negative=True, zeros=0.2 * (seed % 2), spread=2.0 * (seed % 3))
    parser = parser_of(case, [None, 1e-4, 0.2][seed % 3], seed)
    for words in ("x", "xy", "yxy", "xxyx"):
        if parser.threshold is None:
            truth = Truth(case, words)
            assert (truth.total < 0) == (parser.given(list(words)).sign < 0)
        for method in METHODS:
            parsed = parser.parse(list(words), method)  # type: ignore[arg-type]
            sign = parser.given(list(words)).sign
            assert parsed.skeletal_tree is not None
            assert (parsed.source == "negative") == (
                sign < 0 and parser.given(list(words)).best_tree(method) is not None  # type: ignore[arg-type]
            )


def two_ways(latent_rare: float) -> Case:
    """S → A S | B S | …: in the latent model the word z is a B, if anything."""
    return Case(
        {"S": 2, "A": 2, "B": 1},
        {("S", 0): 0.5, ("S", 1): 0.5, ("A", 0): 0.0, ("A", 1): 0.0, ("B", 0): 0.0},
        {("A", "x", h): 0.5 for h in range(2)}
        | {("A", "z", h): 0.0 for h in range(2)}
        | {("B", "z", 0): latent_rare, ("S", "x", 0): 0.5, ("S", "x", 1): 0.2},
        {("S", "A", "S", *hs): 0.1 for hs in product(range(2), repeat=3)}
        | {("S", "B", "S", h, 0, k): 0.1 for h in range(2) for k in range(2)},
    )


def two_ways_parser(rare: float, *, latent_rare: float = 1.0) -> LatentParser:
    """By the skeletal rules z is an A, and rarely a B."""
    case = two_ways(latent_rare)
    coarse = Case(
        dict.fromkeys(case.sizes, 1),
        {("S", 0): 1.0, ("A", 0): 0.0, ("B", 0): 0.0},
        {("A", "x", 0): 0.5, ("A", "z", 0): 1 - rare, ("B", "z", 0): rare, ("S", "x", 0): 0.4},
        {("S", "A", "S", 0, 0, 0): 0.3, ("S", "B", "S", 0, 0, 0): 0.3},
    )
    return LatentParser(grammar_of(case, coarse), threshold=1e-2)


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_fallbacks(method: Any):
    words = ["x", "z", "x"]
    by_b = "(S (A x) (S (B z) (S x)))"
    for rare, source in ((0.5, "latent"), (1e-2 * WIDER * 10, "wider"), (1e-9, "unpruned")):
        parsed = two_ways_parser(rare).parse(words, method)
        assert (parsed.source, str(parsed.skeletal_tree)) == (source, by_b)
    # No mass at all in the latent model.
    parsed = two_ways_parser(1e-9, latent_rare=0.0).parse(words, method)
    assert (parsed.source, str(parsed.skeletal_tree)) == ("skeletal", by_b.replace("B", "A"))
    assert parsed.words == ("x", "z", "x")
    # A negative mass is as good as any other.
    parsed = two_ways_parser(0.5, latent_rare=-1.0).parse(words, method)
    assert (parsed.source, str(parsed.skeletal_tree)) == ("negative", by_b)
    assert two_ways_parser(0.5).parse(["z"], method).source == "none"


def test_long_sentences_are_not_parsed_without_pruning():
    parser = two_ways_parser(1e-9)
    for length, source in ((MOST_WORDS_UNPRUNED, "unpruned"), (61, "skeletal")):
        words = ["x", "z", *["x"] * (length - 2)]
        parsed = parser.parse(words)
        assert parsed.source == source
        assert parsed.skeletal_tree is not None
        assert parsed.skeletal_tree.leaves() == words


def weighted(weights: Sequence[float]) -> LatentParser:
    """Four trees of x x with these weights."""
    pairs = list(product("AB", repeat=2))
    case = Case(
        {"S": 1, "A": 1, "B": 1},
        {("S", 0): 1.0, ("A", 0): 0.0, ("B", 0): 0.0},
        {("A", "x", 0): 1.0, ("B", "x", 0): 1.0},
        {("S", b, c, 0, 0, 0): w for (b, c), w in zip(pairs, weights, strict=True)},
    )
    return LatentParser(grammar_of(case, skeletal_case(case, 0)))


def test_no_tree_with_positive_parts_alone():
    # A over the first word and B over the second have the posterior -1, as have two of the rules.
    parser = weighted([3.0, -4.0, -1.0, 3.0])
    analyses = parser.given(["x", "x"])
    assert analyses.sign == 1
    assert analyses.best_tree("max_rule") is None
    assert parser.parse(["x", "x"], "max_rule").source == "skeletal"
    assert parser.parse(["x", "x"], "goodman").source == "latent"
    assert str(analyses.best_tree("goodman")) == "(S (B x) (A x))"


def test_weights_that_cancel():
    parser = weighted([1.0, -1.0, 0.5, -0.5])
    analyses = parser.given(["x", "x"])
    assert (analyses.sign, analyses.log_partition) == (0, -math.inf)
    assert all(value == 0 for value in analyses.posteriors.values())
    for method in METHODS:
        assert parser.parse(["x", "x"], method).source == "skeletal"  # type: ignore[arg-type]


def test_marginals_out_of_range():
    case = weighted([1e300, 1e300, 1e300, 1e300]).grammar.model
    huge = LPCFG(case.layout, np.where(case.parameters == 1, 1e300, case.parameters))
    skeletal = LPCFG(Layout(case.skeleton, 1), np.ones(case.layout.size))
    words = Vocabulary.from_terminals(["x"])
    analyses = LatentParser(LatentGrammar(huge, skeletal, words)).given(["x", "x"])
    assert_close(analyses.posteriors["A", 0, 1], 0.5)
    assert analyses.marginals["A", 0, 1] == math.inf
    tiny = LPCFG(case.layout, np.where(case.parameters > 0, 1e-300, 0.0))
    analyses = LatentParser(LatentGrammar(tiny, skeletal, words)).given(["x", "x"])
    assert analyses.marginals["A", 0, 1] == 0
    assert_close(analyses.log_partition, 4 * math.log(1e-300) + math.log(4))


@pytest.mark.parametrize("method", METHODS)
def test_threads_change_nothing(method: Any, monkeypatch: pytest.MonkeyPatch):
    case = treebank_case(3)
    rng = random.Random(0)
    sentences = [rng.choices("xy?", [9, 9, 1], k=rng.randrange(6)) for _ in range(40)]
    one_by_one = [parser_of(case, 1e-3).parse(words, method) for words in sentences]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    parser = parser_of(case, 1e-3)
    assert parser.parse_all(sentences, method) == one_by_one
    assert list(parser.parse_each(iter(sentences), method)) == one_by_one
    assert len({parsed.source for parsed in one_by_one}) > 1


# The refined grammar ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_refined_grammar_is_the_same_model(seed: int):
    case = random_case(seed, zeros=0.2)
    model = LPCFG(case.layout, case.parameters)
    words = list("xyxy"[: 1 + seed % 4])
    parser = inout.Parser(refined_grammar(model))
    truth = Truth(case, words)
    assert_close(float(parser.log_partition(words)), log_of(truth.total))
    if not truth.total:
        return
    sums: dict[tuple[str, int, int], float] = defaultdict(float)
    for (name, i, j), value in parser.marginals(words).constituents.items():
        sums[name.partition("_")[0], i, j] += value
    sums = {place: value for place, value in sums.items() if place[0] != "TOP"}
    for place in set(truth.items) | set(sums):
        assert_close(sums.get(place, 0.0), float(truth.items[place] / truth.total))


def test_refined_symbols_must_differ():
    skeleton = inout.latent.Skeleton.of([("A", "A_1", "A_1")], [("A_1", "x")])
    model = LPCFG(Layout(skeleton, [2, 1]), np.full(Layout(skeleton, [2, 1]).size, 0.5))
    with pytest.raises(ArgumentError, match="A_1 twice"):
        refined_grammar(model)


def test_no_refined_grammar_of_negative_numbers():
    case = random_case(1, negative=True)
    with pytest.raises(ArgumentError, match="negative"):
        refined_grammar(LPCFG(case.layout, case.parameters))


# Samples ----------------------------------------------------------------------------------------


def frequencies(found: Sequence[Tree], truth: Truth) -> list[int]:
    """How often each tree was drawn; fails where one was drawn that should not be."""
    shown = [str(nltk_tree(tree)) for tree in truth.trees]
    counts = Counter(map(str, found))
    assert set(counts) <= {s for s, w in zip(shown, truth.weights, strict=True) if w > 0}
    return [counts[tree] for tree in shown]


def check_frequencies(found: Sequence[Tree], truth: Truth) -> None:
    """Pearson's test, trees with few draws to expect taken together."""
    counts = frequencies(found, truth)
    expected = [len(found) * float(w / truth.total) for w in truth.weights]
    order = np.argsort(expected)
    seen, hoped = np.array(counts)[order], np.array(expected)[order]
    rare = int(np.searchsorted(np.cumsum(hoped), 10)) + 1
    seen = np.concatenate([[seen[:rare].sum()], seen[rare:]])
    hoped = np.concatenate([[hoped[:rare].sum()], hoped[rare:]])
    if len(seen) > 1:
        assert chisquare(seen, hoped * seen.sum() / hoped.sum()).pvalue > 1e-3


@pytest.mark.parametrize("seed", range(8))
def test_samples_have_their_probabilities(seed: int):
    case = random_case(seed, zeros=0.1)
    words = ["xyx", "yxxy", "xyxyx", "x"][seed % 4]
    truth = Truth(case, words)
    analyses = parser_of(case).given(list(words))
    found = analyses.sample(5000, torch.Generator().manual_seed(seed))
    assert len(found) == (5000 if truth.total else 0)
    if truth.total:
        check_frequencies(found, truth)


def test_latent_values_are_drawn_together():
    # A over two words is B C with value 0 and C B with value 1; both A are not of any values.
    sizes = {"S": 1, "A": 2, "B": 1, "C": 1}
    pairs = {(0, 0): 0.2, (0, 1): 0.5, (1, 0): 0.3, (1, 1): 0.0}
    case = Case(
        sizes,
        {("S", 0): 1.0, ("A", 0): 0.0, ("A", 1): 0.0, ("B", 0): 0.0, ("C", 0): 0.0},
        {("B", "x", 0): 0.3, ("C", "x", 0): 1.0, ("B", "y", 0): 0.4, ("C", "y", 0): 0.1},
        {("S", "A", "A", 0, *hs): p for hs, p in pairs.items()}
        | {("A", "B", "C", 0, 0, 0): 1.0, ("A", "B", "C", 1, 0, 0): 0.0}
        | {("A", "C", "B", 0, 0, 0): 0.0, ("A", "C", "B", 1, 0, 0): 0.8},
    )
    for words in ("xxxx", "xyxy", "yxxy"):
        truth = Truth(case, words)
        assert [weight > 0 for weight in truth.weights].count(True) == 3
        found = parser_of(case).given(list(words)).sample(4000, torch.Generator().manual_seed(5))
        check_frequencies(found, truth)


def test_samples_of_a_pruned_chart_are_of_what_is_left():
    case = random_case(3, symbols=4)
    coarse, words = skeletal_case(case, 3), list("xyxy")
    expected = Truth(coarse, words)
    kept = [
        tree
        for tree in expected.trees
        if all(expected.items[node[:3]] / expected.total >= 0.1 for node in nodes(tree))
    ]
    assert 1 < len(kept) < len(expected.trees)
    analyses = LatentParser(grammar_of(case, coarse), threshold=0.1).given(words)
    found = analyses.sample(4000, torch.Generator().manual_seed(1))
    check_frequencies(found, Truth(case, words, kept))


@pytest.mark.parametrize("size", [1e-200, 1e-300, 1e200])
def test_samples_with_numbers_of_any_size(size: float):
    # Of the two values one has all the mass of leaves, the other all that of roots.
    block = {("A", "A", "A", *hs): float(len(set(hs)) == 1) for hs in product(range(2), repeat=3)}
    case = Case(
        {"A": 2},
        {("A", 0): 0.0, ("A", 1): 1.0},
        {("A", "x", 0): 1.0, ("A", "x", 1): size, ("A", "y", 0): 1.0, ("A", "y", 1): 1.0},
        block,
    )
    words = "xxyxx"
    analyses = parser_of(case).given(list(words))
    assert bool(analyses.passes.is_wide[0]) == (size < 1)
    found = analyses.sample(4000, torch.Generator().manual_seed(2))
    check_frequencies(found, Truth(case, words))


def test_samples_depend_on_the_generator_alone():
    analyses = parser_of(random_case(3)).given(list("xyxy"))
    few = analyses.sample(20, torch.Generator().manual_seed(7))
    again = parser_of(random_case(3)).given(list("xyxy"))
    generator = torch.Generator().manual_seed(7)
    assert again.sample(50, generator)[:20] == few
    assert again.sample(20, generator) != few
    assert again.sample(0, generator) == []


def test_samples_that_keep_more_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch):
    from inout.kernels.blocks.decoding import op

    case = random_case(3, symbols=4)
    analyses = parser_of(case).given(list("xyxyxyxyxyxy"))
    expected = analyses.sample(30, torch.Generator().manual_seed(1))
    monkeypatch.setattr(op, "MOST_KEPT", 64)
    assert analyses.sample(30, torch.Generator().manual_seed(1)) == expected


def test_nothing_is_drawn_from_negative_numbers():
    analyses = parser_of(random_case(1, negative=True)).given(["x", "y"])
    with pytest.raises(ArgumentError, match="no negative parameters"):
        analyses.sample(1, torch.Generator())
    analyses = parser_of(random_case(1)).given(["x", "y"])
    with pytest.raises(ArgumentError, match="n must be"):
        analyses.sample(-1, torch.Generator())


def test_charts_are_those_of_the_sentence():
    """`Truth` and the parser look at the same trees."""
    case = treebank_case(2)
    numbers = case.numbers("xyx")
    chart = chart_of_sentence(case.layout, numbers)
    names = case.layout.skeleton.nonterminals
    items = {
        (names[a], i, j)
        for a, (i, j) in zip(chart.graph.symbols.tolist(), chart.spans.tolist(), strict=True)
    }
    assert set(Truth(case, "xyx").items) <= items
