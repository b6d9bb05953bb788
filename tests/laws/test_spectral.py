"""Laws of spectral learning: consistency, total mass, features that keep to their side."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nltk.tree import Tree

from inout.latent.spectral.bound import ErrorBound
from inout.latent.spectral.estimation import fit_spectral
from inout.latent.spectral.features import DEFAULT
from inout.latent.spectral.options import Shrinkage
from inout.latent.trees import SkeletalTrees
from tests.oracle.spectral_cases import SIZES, all_trees, named, probability, random_grammar, spans
from tests.oracle.test_spectral_features import random_trees
from tests.support import assert_close

TREES = all_trees()
ARRAYS = SkeletalTrees.of(TREES)
DRAWS = 12
COUNTS = (1_000, 10_000, 100_000)


def constituents():
    """A matrix [constituents of sentences, trees]: which trees have which (x, a, i, j)."""
    numbers = defaultdict(lambda: len(numbers))
    places = [
        (numbers[tuple(tree.leaves()), item], t)
        for t, tree in enumerate(TREES)
        for item in spans(tree)
    ]
    matrix = np.zeros((len(numbers), len(TREES)))
    matrix[tuple(np.array(places).T)] = 1
    return matrix


def values(model):
    """p(tree) of every tree."""
    grammar = named(model)
    return np.array([probability(grammar, tree) for tree in TREES])


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [{}, {"centred": False}, {"scaling": None}], ids=str)
def test_consistency(options):
    """The errors of p(tree) and of μ(a, i, j) fall like 1/√M."""
    random = np.random.default_rng(1)
    truth = random_grammar(random, dict.fromkeys(SIZES, 2), peak=0.3)
    probabilities = np.array([probability(truth, tree) for tree in TREES])
    contains = constituents()
    errors = np.zeros((2, len(COUNTS)))
    for k, count in enumerate(COUNTS):
        for _ in range(DRAWS):
            drawn = random.multinomial(count, probabilities).astype(float)
            found = fit_spectral(
                ARRAYS, 2, weights=drawn, fewest=0.0, support=0.0, shrinkage=None, **options
            )
            wrong = values(found.model) - probabilities
            errors[:, k] += np.abs(wrong).sum(), np.abs(contains @ wrong).sum()
    slopes = np.polyfit(np.log(COUNTS), np.log(errors.T), 1)[0]
    assert slopes == pytest.approx([-0.5, -0.5], abs=0.15)


def test_theorem_3():
    """p̂/p is within the bound of theorem 3, which falls at the rate of the error, 1/√M."""
    trees = SkeletalTrees.of([Tree.fromstring(f"(S (A {x}) (A {y}))") for x in "xy" for y in "xy"])
    truth = np.array([0.4, 0.15, 0.15, 0.3])
    bound = ErrorBound.of(fit_spectral(trees, 2, "paper", weights=truth))
    random = np.random.default_rng(0)
    counts = [10**6, 10**10, 10**15]
    errors = np.zeros(len(counts))
    for k, count in enumerate(counts):
        for _ in range(10):
            drawn = random.multinomial(count, truth).astype(float)
            model = fit_spectral(trees, 2, "paper", weights=drawn).model
            errors[k] = max(errors[k], np.abs(model.tree_probabilities(trees) / truth - 1).max())
    bounds = np.array([bound.error(count, nodes=3) for count in counts])
    assert (errors < bounds).all()
    assert np.polyfit(np.log(counts), np.log(errors), 1)[0] == pytest.approx(-0.5, abs=0.1)
    small = [bound.error(count, nodes=3) for count in (1e24, 1e26)]
    assert small[0] / small[1] == pytest.approx(10, rel=1e-3)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.tuples(*[st.sampled_from([0.0, 1.0, 30.0, 1e6])] * 3, st.sampled_from([0.0, 0.3, 1.0])),
    st.sampled_from([0.0, 20.0]),
)
def test_total_probability(seed, latent, constants, support):
    """With the constant apart, all trees have probability 1 together, whatever is shrunk.

    The grammar has no recursion, so that the trees can be listed.
    """
    random = np.random.default_rng(seed)
    drawn = random.integers(0, 4, len(TREES)).astype(float)
    found = fit_spectral(
        ARRAYS, latent, weights=drawn, support=support, shrinkage=Shrinkage(*constants)
    )
    assert_close(values(found.model).sum(), 1.0, rtol=1e-7)


def test_weights_are_repetitions():
    random = np.random.default_rng(0)
    counts = random.integers(0, 3, len(TREES))
    weighted = fit_spectral(ARRAYS, 3, weights=counts.astype(float))
    repeated = fit_spectral(ARRAYS.select(np.repeat(np.arange(len(TREES)), counts)), 3)
    assert (weighted.sizes == repeated.sizes).all()
    assert_close(values(weighted.model), values(repeated.model), atol=1e-9)


def test_the_generator_decides():
    def run(seed):
        generator = torch.Generator().manual_seed(seed)
        return fit_spectral(ARRAYS, 2, solver="randomised", generator=generator).model.parameters

    assert (run(0) == run(0)).all()
    default = [fit_spectral(ARRAYS, 2, solver="randomised").model.parameters for _ in range(2)]
    assert (default[0] == default[1]).all()


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_features_keep_to_their_side(seed, choice):
    """Other outside trees change no inside feature of a node, other inside trees no outside one.

    Two trees exchange subtrees of the same label. Numbers are compared in one set of trees.
    """
    random = np.random.default_rng(choice)
    trees = random_trees(seed, 12)
    nodes = [(t, place) for t, tree in enumerate(trees) for place in tree.treepositions()]
    nodes = [(t, place) for t, place in nodes if place and isinstance(trees[t][place], Tree)]
    first = nodes[random.integers(len(nodes))]
    label = trees[first[0]][first[1]].label()
    others = [(t, p) for t, p in nodes if trees[t][p].label() == label and t != first[0]]
    if not others:
        return
    second = others[random.integers(len(others))]
    before = [trees[first[0]].copy(deep=True), trees[second[0]].copy(deep=True)]
    after = [tree.copy(deep=True) for tree in before]
    after[0][first[1]], after[1][second[1]] = before[1][second[1]], before[0][first[1]]
    arrays = SkeletalTrees.of([*before, *after])
    a, b, c, d = (
        arrays.offsets[i] + preorder(tree, place)
        for i, (tree, place) in enumerate(
            zip([*before, *after], [first[1], second[1]] * 2, strict=True)
        )
    )
    for function in DEFAULT.inside.values():
        keys = function(arrays)
        assert keys[a] == keys[d]
        assert keys[b] == keys[c]
    for function in DEFAULT.outside.values():
        keys = function(arrays)
        assert keys[a] == keys[c]
        assert keys[b] == keys[d]


def preorder(tree, place):
    """The number of a node in preorder."""
    positions = [p for p in tree.treepositions() if isinstance(tree[p], Tree)]
    return positions.index(place)
