"""Laws of EM for latent-variable grammars, on random trees."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given, settings

from inout import em
from inout.latent.clustering import clustered_model
from inout.latent.model import LPCFG
from inout.latent.starts import latent_sizes, random_model, smoothed, split, treebank_model
from inout.latent.trees import SkeletalTrees
from inout.learning import Additive
from tests.oracle.latent_trees import random_trees, seeded
from tests.seeds import examples
from tests.support import assert_close

EXAMPLES = settings(max_examples=examples(15), deadline=None)
SEEDS = st.integers(0, 2**31)
STARTS = st.sampled_from(["random", "split", "clustered", "smoothed"])


def start(kind: str, trees: SkeletalTrees, seed: int) -> LPCFG:
    rng = np.random.default_rng(seed)
    sizes = latent_sizes(trees, 3, support=3)
    if kind == "clustered":
        return clustered_model(trees, rng.integers(0, sizes[trees.labels]), sizes)
    if kind == "split":
        return split(treebank_model(trees), seeded(seed), sizes=sizes)
    model = random_model(trees, sizes, seeded(seed))
    return smoothed(model) if kind == "smoothed" else model


def assert_never_falls(objectives: tuple[float, ...]) -> None:
    for k, (before, after) in enumerate(pairwise(objectives), 1):
        assert after >= before - 1e-11 * (1 + abs(before)), f"iteration {k}"


@EXAMPLES
@given(STARTS, SEEDS, st.integers(1, 30), st.floats(0.1, 10.0))
def test_the_likelihood_never_falls_at_any_step(kind: str, seed: int, count: int, frequency: float):
    trees = random_trees(np.random.default_rng(seed), count, words=7)
    model = start(kind, trees, seed)
    frequencies = np.linspace(frequency, 1.0, count)
    result = em(model, trees, frequencies=frequencies, max_iterations=20, tolerance=0.0)
    assert_never_falls(result.log_likelihoods)
    assert result.left_out == ()
    sums = np.bincount(model.distributions, result.model.parameters)
    assert_close(sums, np.ones(len(sums)))
    # Reported is what the model says, and roots and nodes are counted once each.
    logs, signs = result.model.tree_log_probs(trees)
    assert_close(float(frequencies @ logs), result.log_likelihood)
    assert (signs == 1).all()
    nodes = np.diff(trees.offsets)
    assert_close(float(result.expected_counts.sum()), float(frequencies @ (nodes + 1)))


@EXAMPLES
@given(STARTS, SEEDS, st.integers(1, 30), st.floats(0.001, 2.0))
def test_the_posterior_never_falls_with_a_prior(kind: str, seed: int, count: int, amount: float):
    trees = random_trees(np.random.default_rng(seed), count, words=7)
    model = start(kind, trees, seed)
    result = em(model, trees, prior=Additive(amount), max_iterations=20, tolerance=0.0)
    assert_never_falls(result.objectives)


@EXAMPLES
@given(SEEDS, st.integers(1, 20))
def test_latent_values_only_ever_help(seed: int, count: int):
    trees = random_trees(np.random.default_rng(seed), count, words=7)
    flat = treebank_model(trees)
    before = flat.tree_log_probs(trees)[0].sum()
    assert_close(em(flat, trees).log_likelihood, before)
    refined = split(flat, seeded(seed), noise=0.0)
    assert_close(refined.tree_log_probs(trees)[0].sum(), before)
    # Values that are alike stay alike: without noise nothing is won.
    assert_close(em(refined, trees, max_iterations=3).log_likelihood, before)


@EXAMPLES
@given(SEEDS, st.integers(1, 20))
def test_a_change_of_basis_changes_no_probability(seed: int, count: int):
    """Theorem 1: parameters may be transformed by any invertible matrix of each nonterminal."""
    rng = np.random.default_rng(seed)
    trees = random_trees(rng, count, words=5)
    model = random_model(trees, 3, seeded(seed))
    layout, found = model.layout, model.parameters.copy()
    names = range(len(layout.sizes))
    bases = [np.eye(3) + 0.3 * rng.normal(size=(3, 3)) for _ in names]
    inverses = [np.linalg.inv(basis) for basis in bases]
    for a in names:
        layout.root(found, a)[:] = layout.root(found, a) @ inverses[a]
    for rule, (a, _) in enumerate(layout.skeleton.lexical.tolist()):
        layout.lexical(found, rule)[:] = bases[a] @ layout.lexical(found, rule)
    for rule, (a, b, c) in enumerate(layout.skeleton.binary.tolist()):
        block = layout.block(found, rule)
        block[:] = np.einsum("hijk,hx,iy,jz->xyzk", block[..., None], bases[a].T, inverses[b],
                             inverses[c])[..., 0]  # fmt: skip
    logs, signs = LPCFG(layout, found).tree_log_probs(trees)
    assert (signs == 1).all()
    assert_close(logs, model.tree_log_probs(trees)[0], rtol=1e-7, atol=1e-7)


@EXAMPLES
@given(SEEDS)
def test_the_order_of_the_trees_does_not_matter(seed: int):
    rng = np.random.default_rng(seed)
    trees = random_trees(rng, 30, words=7)
    model = random_model(trees, 2, seeded(seed))
    order = rng.permutation(30)
    found = model.likelihood(trees.select(order))(model.log_weights)
    assert_close(found, model.likelihood(trees)(model.log_weights)[torch.from_numpy(order)])
