"""Samples without replacement against all events: which, how likely, in what order."""

from __future__ import annotations

import math
import operator
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import grad

from inout import ArgumentError, Forest, ForestBuilder, LinearChain
from inout.kernels.arborescences.cpu import without_replacement as arborescence_kernel
from inout.kernels.chain.cpu import without_replacement as chain_kernel
from inout.kernels.forest.cpu import without_replacement as forest_kernel
from inout.kernels.math.without_replacement import Leaves, sample_leaves
from tests.contract.event_enumeration import seeded
from tests.contract.frequencies import surprise
from tests.oracle.arborescences import arborescences
from tests.oracle.enumeration import EnumeratedForest
from tests.oracle.plackett_luce import ordered_subsets
from tests.oracle.random_forests import random_forest
from tests.seeds import seeds
from tests.support import assert_close

Scores = dict[tuple[int, ...], float]


def log_sum(values: Any) -> float:
    top = max(values, default=-math.inf)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(v - top) for v in values))


def check_leaves(kernel: Any, problem: Any, width: int, scores: Scores, seed: int) -> None:
    """All events of finite score, each once with its log-probability; fewer are a prefix."""
    possible = {event: score for event, score in scores.items() if score > -math.inf}
    log_z, scale = log_sum(possible.values()), max(map(abs, possible.values()), default=0.0)

    def drawn(k: int) -> tuple[Leaves, list[tuple[int, ...]]]:
        leaves = sample_leaves(kernel, problem, width, k, seed, 3)
        return leaves, [tuple(leaves.choices[i:j].tolist()) for i, j in pairwise(leaves.offsets)]

    whole, events = drawn(len(possible) + 2)
    assert whole.threshold == -math.inf
    assert len(events) == len(set(events))
    assert set(events) == set(possible)
    expected = np.array([possible[event] - log_z for event in events])
    assert_close(whole.log_probs, expected, atol=1e-10 * max(scale, 1))
    assert bool((np.diff(whole.keys) <= 0).all())
    for k in {1, len(possible) // 2} - {0}:
        leaves, fewer = drawn(k)
        assert fewer == events[:k]
        assert np.array_equal(leaves.keys, whole.keys[:k])
        assert leaves.threshold == (whole.keys[k] if k < len(events) else -math.inf)


@pytest.mark.parametrize("seed", seeds(40))
def test_derivations_of_random_forests(seed: int) -> None:
    forest = random_forest(seed, min_derivations=20 * (seed % 3))
    arrays = (a if isinstance(a, int) else a.tolist() for a in forest.arrays)
    oracle = EnumeratedForest(*arrays, forest.item_weights.tolist(), times=operator.add, one=0.0)
    trees = [oracle.derivations(item) for item in range(forest.num_items)]
    inside = np.array([log_sum([tree.weight for tree in own]) for own in trees])
    width = int(np.diff(forest.edge_offsets).max())
    for root in {forest.num_items - 1, forest.num_items // 2, 0}:
        scores = {tuple(tree.edges): tree.weight for tree in trees[root]}
        if inside[root] > -math.inf and len(scores) < 3000:
            problem = forest_kernel.ForestChoices(forest.arrays, inside, root)
            check_leaves(forest_kernel.search, problem, width, scores, seed)


def awkward(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    """Random scores, of the order of 1, far apart, or with many that are impossible."""
    x = rng.normal(size=shape)
    if kind == "huge":
        return 1e4 * x
    return np.where(rng.random(shape) < 0.4, -np.inf, x) if kind == "sparse" else x


@pytest.mark.parametrize("kind", ["mild", "huge", "sparse"])
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("seed", seeds(20))
def test_arborescences_with_labels(seed: int, single: bool, kind: str) -> None:
    rng = np.random.default_rng(seed)
    n, labels = (3, 2) if seed % 2 else (4, 1)
    potentials = awkward(rng, kind, n + 1, n, labels)
    scores = np.logaddexp.reduce(potentials, axis=2)
    events = {}
    for heads in arborescences(n, single):
        for own in product(range(labels), repeat=n):
            arcs = list(zip(heads, range(n), own, strict=True))
            codes = tuple(h * labels + label for h, _, label in reversed(arcs))
            events[codes] = float(sum(potentials[arc] for arc in arcs))
    room = np.empty((n + 1, n)), np.empty(n + 1)
    problem = arborescence_kernel.ArborescenceChoices(potentials, scores, n, single, *room)
    check_leaves(arborescence_kernel.search, problem, (n + 1) * labels, events, seed)


@pytest.mark.parametrize("kind", ["mild", "huge", "sparse"])
@pytest.mark.parametrize("seed", seeds(20))
def test_labellings(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    n, s = 4, 3
    emissions, pairs = awkward(rng, kind, n, s), awkward(rng, kind, 2, n - 1, s, s)
    alphas = emissions.copy()
    for t in range(1, n):
        alphas[t] += np.logaddexp.reduce(alphas[t - 1][:, None] + pairs[1, t - 1], axis=0)
    events = {}
    for labels in product(range(s), repeat=n):
        steps = sum(pairs[1, t, labels[t], labels[t + 1]] for t in range(n - 1))
        nodes = sum(emissions[t, label] for t, label in enumerate(labels))
        events[labels[::-1]] = float(steps + nodes)
    problem = chain_kernel.ChainChoices(alphas, pairs, 1)
    check_leaves(chain_kernel.search, problem, s, events, seed)


def small_forest() -> Forest:
    """One item of three edges, used once or twice: 3 + 9 derivations."""
    builder = ForestBuilder()
    words = [builder.axiom(w, log_weight=x) for w, x in (("a", 0.3), ("b", -0.5), ("c", -2.0))]
    twice = builder.axiom("twice", log_weight=-1.0)
    for word in words:
        builder.edge("X", [word])
    builder.edge("S", ["X"])
    builder.edge("S", ["X", twice, "X"])
    return builder.build(goal="S")


def test_derivations_come_in_the_order_of_sequential_sampling() -> None:
    """Each copy in a batch is a sample; one false alarm in a million, if no seed were fixed."""
    forest, many = small_forest(), 1000
    trees = list(forest.derivations())
    places = {tuple(tree.items): i for i, tree in enumerate(trees)}
    chances = torch.stack([forest.log_prob(tree) for tree in trees]).exp()
    expected = ordered_subsets(chances, 2)
    observed = dict.fromkeys(expected, 0)
    results = Forest.batch([forest] * many).sample_without_replacement(2, generator=seeded(1))
    assert isinstance(results, list)
    estimates = []
    for found in results:
        labels = [[label.item for label in tree.items] for tree in found.events]
        chosen = tuple(places[tuple(own)] for own in labels)
        observed[chosen] += 1
        estimates.append(float(found.weights() @ torch.tensor(chosen).double()))
    counts = torch.tensor(list(observed.values()), dtype=torch.float64)
    assert surprise(counts, many * torch.tensor(list(expected.values()))) > 1e-6
    mean, error = np.mean(estimates), np.std(estimates) / many**0.5
    assert abs(mean - float(chances @ torch.arange(12.0).double())) < 5 * error


def test_log_probabilities_of_derivations_are_differentiable() -> None:
    weights = small_forest().log_weights.clone().requires_grad_()
    forest = small_forest()
    (name,) = forest.relations
    forest = forest.with_weights(**{name: weights})
    found = forest.sample_without_replacement(20, generator=seeded(2))
    assert not isinstance(found, list)
    assert len(found.events) == 12
    assert_close(found.log_probs.logsumexp(0), 0.0)
    again = torch.stack([forest.log_prob(tree) for tree in found.events])
    assert_close(found.log_probs, again)
    probe = torch.linspace(-1, 1, 12, dtype=torch.float64)
    assert_close(grad(found.log_probs @ probe, weights)[0], grad(again @ probe, weights)[0])


def test_each_goal_of_a_batch_has_its_own_samples() -> None:
    forest = Forest.batch([small_forest(), small_forest(), small_forest()])
    results = forest.sample_without_replacement(3, generator=seeded(3))
    assert isinstance(results, list)
    assert len({tuple(found.keys.tolist()) for found in results}) == 3
    for found, goal in zip(results, forest.arrays.goals.tolist(), strict=True):
        assert [tree.root for tree in found.events] == [goal] * 3
        again = torch.stack([forest.log_prob(tree) for tree in found.events])
        assert_close(found.log_probs, again)
    none = small_forest().sample_without_replacement(0, generator=seeded(4))
    assert not isinstance(none, list)
    assert len(none.events) == len(none.keys) == len(none.weights()) == 0
    with pytest.raises(ArgumentError, match="k must be"):
        forest.sample_without_replacement(-1)


def test_a_search_that_needs_more_room() -> None:
    """All labellings of a long chain, one by one."""
    chain = LinearChain(torch.zeros(12, 2, dtype=torch.float64), torch.zeros(2, 2))
    found = chain.sample_without_replacement(5000, generator=seeded(5))
    assert len({tuple(event) for event in found.events[:4096].tolist()}) == 4096
    assert_close(
        found.log_probs[:4096], torch.full((4096,), -12 * math.log(2), dtype=torch.float64)
    )
    assert bool((found.log_probs[4096:] == -torch.inf).all())
    assert_close(found.weights().sum(), 1.0)
    # The keys are those of 4096 Gumbel variables: exp(-key) are exponential, each of mean 4096.
    total = float((-found.keys[:4096]).exp().sum()) / 4096
    assert abs(total - 4096) < 5 * 64


def test_weights_of_rare_events_and_of_few() -> None:
    chain = LinearChain(torch.tensor([[0.0, -60.0]], dtype=torch.float64), torch.zeros(2, 2))
    found = chain.sample_without_replacement(1, generator=seeded(6))
    # An event far below the threshold: the chance is p / exp(threshold), not rounded to 0.
    low = found._replace(log_probs=found.threshold[None] - 50.0)
    assert_close(low.log_inclusion(), torch.tensor([-50.0]), rtol=1e-14, atol=0)
    both = chain.sample_without_replacement(2, generator=seeded(6))
    assert both.threshold == -torch.inf
    assert torch.equal(both.log_inclusion(), torch.zeros(2))
    assert_close(both.weights(normalised=True).sum(), 1.0)
    # Weighted sums have the gradient of p alone: the chance of being drawn counts as a constant.
    emissions = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    moving = LinearChain(emissions, torch.zeros(3, 3)).sample_without_replacement(
        2, generator=seeded(7)
    )
    f = torch.tensor([1.0, -2.0], dtype=torch.float64)
    ours = grad((moving.weights() * f).sum(), emissions, retain_graph=True)[0]
    chances = moving.log_inclusion().exp().detach()
    theirs = grad((moving.log_probs.exp() / chances * f).sum(), emissions)[0]
    assert_close(ours, theirs)
