"""Trees drawn from a latent-variable grammar, given a sentence, against enumeration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import torch
from nltk.tree import Tree
from scipy.stats import chisquare

from inout._core.errors import ArgumentError
from inout.latent import LatentParser
from tests.oracle.latent_cases import Case, nltk_tree, nodes, random_case
from tests.oracle.latent_parsing_cases import Truth, grammar_of, parser_of, skeletal_case
from tests.seeds import seeds


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


@pytest.mark.parametrize("seed", seeds(8))
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
    from inout.kernels.latent import decode

    case = random_case(3, symbols=4)
    analyses = parser_of(case).given(list("xyxyxyxyxyxy"))
    expected = analyses.sample(30, torch.Generator().manual_seed(1))
    monkeypatch.setattr(decode, "LATENT_MOST_KEPT", 64)
    assert analyses.sample(30, torch.Generator().manual_seed(1)) == expected


def test_nothing_is_drawn_from_negative_numbers():
    analyses = parser_of(random_case(1, negative=True)).given(["x", "y"])
    with pytest.raises(ArgumentError, match="no negative parameters"):
        analyses.sample(1, torch.Generator())
    analyses = parser_of(random_case(1)).given(["x", "y"])
    with pytest.raises(ArgumentError, match="n must be"):
        analyses.sample(-1, torch.Generator())
