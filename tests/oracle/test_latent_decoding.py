"""Posteriors and best trees of latent-variable grammars against all trees and latent values."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any

import pytest

from inout._core.errors import ArgumentError
from inout.latent import LatentParser
from inout.latent.decoding.best_trees import treebank_constituents
from tests.oracle.latent_cases import Case, log_of, nodes, random_case
from tests.oracle.latent_parsing_cases import (
    METHODS,
    Truth,
    as_node,
    constituents_of,
    grammar_of,
    parser_of,
    skeletal_case,
    treebank_case,
)
from tests.seeds import seeds
from tests.support import assert_close


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("seed", seeds(12))
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
@pytest.mark.parametrize("seed", seeds(16))
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


@pytest.mark.exhaustive
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


@pytest.mark.parametrize("seed", seeds(10))
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
