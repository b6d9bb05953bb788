"""Parsing with latent-variable grammars: pruning, fallbacks, the refined grammar; enumerated."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from nltk.tree import Tree

import inout
from inout._core.errors import ArgumentError
from inout.grammars.words import Vocabulary
from inout.latent import LPCFG, LatentGrammar, LatentParser, Layout, TrainingSet, refined_grammar
from inout.latent.decoding.parser import MOST_WORDS_UNPRUNED, WIDER
from inout.latent.graphs import chart_of_sentence
from tests.oracle.latent_cases import Case, log_of, nodes, random_case
from tests.oracle.latent_parsing_cases import (
    METHODS,
    Truth,
    as_node,
    grammar_of,
    parser_of,
    skeletal_case,
    treebank_case,
)
from tests.seeds import seeds
from tests.support import assert_close

# Pruning ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [1e-3, 0.05, 0.3])
@pytest.mark.parametrize("seed", seeds(8))
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


@pytest.mark.parametrize("seed", seeds(4))
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


@pytest.mark.parametrize("seed", seeds(24))
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


@pytest.mark.few(1)
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


@pytest.mark.parametrize("seed", seeds(8))
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
