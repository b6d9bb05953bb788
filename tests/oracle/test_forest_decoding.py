"""Single derivations of a forest, counts, and values in every semiring, against enumeration."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from inout import Derivation, Derivations, Forest, ForestBuilder
from inout.semirings import (
    Boolean,
    Counting,
    Expectation,
    Log,
    Max,
    Polynomial,
    Real,
    Scaled,
    SecondOrderExpectation,
)
from tests.oracle.forest_cases import SEEDS, Case, Distribution, case, random_values
from tests.support import assert_close

GOALS = [1, 3]


def answers(this: Case, result: Any) -> list[Any]:
    """One answer for each goal, also where there is only one."""
    return [result] if this.forest.single_goal else result


def edges_of(tree: Derivation) -> tuple[int, ...]:
    return tuple(tree.edges.tolist())


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_argmax(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    for tree, goal in zip(answers(this, this.forest.argmax()), this.goals, strict=True):
        if not goal.trees:
            assert tree is None
            continue
        weights = {t.edges: t.weight for t in goal.trees}
        assert_close(tree.log_weight, max(weights.values()))
        assert_close(weights[edges_of(tree)], max(weights.values()))


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_kbest_has_the_documented_order_and_nothing_is_missing(seed: int, num_goals: int) -> None:
    # Integer weights: sums are exact and many derivations tie.
    this = case(seed, num_goals, integer_weights=True)
    for k in (0, 1, 2, 7, 1000):
        found = answers(this, this.forest.kbest(k))
        for trees, item in zip(found, this.random.goals, strict=True):
            expected = [t for t in this.oracle.ordered(int(item)) if t.weight > -np.inf][:k]
            assert isinstance(trees, Derivations)
            assert [edges_of(t) for t in trees] == [t.edges for t in expected]
            assert [t.log_weight for t in trees] == [t.weight for t in expected]
            assert [[i for i, _ in t.walk()] for t in trees] == [list(t.items) for t in expected]
            assert len(set(trees)) == len(trees)


@pytest.mark.parametrize("seed", SEEDS)
def test_kbest_with_real_weights(seed: int) -> None:
    this = case(seed)
    (goal,) = this.goals
    trees = this.forest.kbest(1000)
    weights = [tree.log_weight for tree in trees]
    assert all(a >= b for a, b in pairwise(weights))
    assert_close(np.array(weights), np.sort(goal.log_weights)[::-1].copy())
    assert Counter(map(edges_of, trees)) == Counter(t.edges for t in goal.trees)


@pytest.mark.parametrize("seed", SEEDS)
def test_derivations_iterates_over_everything_in_order(seed: int) -> None:
    this = case(seed, integer_weights=True)
    expected = [t.edges for t in this.oracle.ordered(int(this.random.goals[0])) if t.weight > -9e9]
    assert list(map(edges_of, this.forest.derivations())) == expected
    # Lazily: a part of it may be asked for.
    assert list(map(edges_of, islice(this.forest.derivations(), 3))) == expected[:3]


@pytest.mark.parametrize("seed", SEEDS)
def test_derivations_as_trees(seed: int) -> None:
    this = case(seed)
    (goal,) = this.goals
    by_edges = {t.edges: t for t in goal.trees}
    for tree in this.forest.kbest(20):
        truth = by_edges[edges_of(tree)]
        assert tree.items == [this.forest.labels[i] for i in truth.items]
        leaves = [i for i in truth.items if i < this.random.num_axioms]
        assert tree.axioms == [this.forest.labels[i] for i in leaves]
        nodes, stack = [], [tree.tree()]
        while stack:
            node = stack.pop()
            nodes.append(node.label)
            stack.extend(reversed(node.children))
        assert nodes == tree.items
        assert len(str(tree).splitlines()) == len(nodes)
        assert tree == tree
        assert hash(tree) == hash(this.forest.kbest(20)[0]) or tree != this.forest.kbest(1)[0]


def chi_square(observed: Counter[Any], goal: Distribution, n: int) -> float:
    """The chance of a deviation at least as large as the observed one."""
    expected = {t.edges: p * n for t, p in zip(goal.trees, goal.probabilities, strict=True)}
    assert set(observed) <= set(expected)
    # Rare derivations are pooled, as the approximation needs five expected of each.
    rare = [key for key, number in expected.items() if number < 5]
    bins = [(observed[key], number) for key, number in expected.items() if number >= 5]
    pooled = sum(expected[key] for key in rare)
    if pooled >= 5:
        bins.append((sum(observed[key] for key in rare), pooled))
    if len(bins) < 2:
        return 1.0
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in bins)
    freedom = len(bins) - (1 if not rare or pooled >= 5 else 0)
    return float(chi2.sf(statistic, freedom))


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_sampling_frequencies(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    n = 4000
    generator = torch.Generator().manual_seed(seed)
    if any(not goal.trees for goal in this.goals):
        with pytest.raises(ValueError, match="has no derivation to sample"):
            this.forest.sample(1, generator=generator)
        return
    samples = answers(this, this.forest.sample(n, generator=generator))
    for trees, goal in zip(samples, this.goals, strict=True):
        assert len(trees) == n
        # 50 tests or so: one in ten million is what chance may do.
        assert chi_square(Counter(map(edges_of, trees)), goal, n) > 1e-7
        weights = {t.edges: t.weight for t in goal.trees}
        expected = [weights[edges_of(t)] for t in trees]
        assert_close(trees.log_weights, np.array(expected))


def test_the_chi_square_test_notices_a_wrong_distribution() -> None:
    this = case(2)
    (goal,) = this.goals
    trees = this.forest.sample(4000, generator=torch.Generator().manual_seed(1))
    observed = Counter(map(edges_of, trees))
    assert chi_square(observed, goal, 4000) > 1e-7
    flat = Distribution(goal.trees, goal.num_items, goal.num_edges)
    flat.__dict__["probabilities"] = goal.probabilities**0.7 / (goal.probabilities**0.7).sum()
    assert chi_square(observed, flat, 4000) < 1e-7


def test_samples_follow_the_generator() -> None:
    this = case(2)

    def draw(seed: int) -> list[tuple[int, ...]]:
        generator = torch.Generator().manual_seed(seed)
        twice = [this.forest.sample(50, generator=generator) for _ in range(2)]
        return [edges_of(t) for trees in twice for t in trees]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)
    first = draw(3)
    assert first[:50] != first[50:]


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_count(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    counts = this.forest.count()
    assert answers(this, counts) == [len(goal.trees) for goal in this.goals]
    assert all(type(count) is int for count in answers(this, counts))


def test_counts_beyond_64_bits_are_exact() -> None:
    builder = ForestBuilder()
    one = builder.axiom("one", -3.5)
    builder.edge(0, [one])
    builder.edge(0, [one])
    builder.edge(0, [one])
    for level in range(8):
        builder.edge(level + 1, [level, level])  # squares the count
    for n in range(5, 9):
        forest = builder.build(goals=[0, n, one])
        assert forest.count() == [3, 3 ** (2**n), 1]
    chain = ForestBuilder()
    chain.axiom("one")
    chain.edge(0)
    for level in range(1, 64):
        chain.edge(level, [level - 1])
        chain.edge(level, [level - 1, "one"])
    assert [chain.build(goal=n).count() for n in (61, 62, 63)] == [2**61, 2**62, 2**63]


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_min_risk_maximises_the_expected_gain(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    derived = np.arange(this.num_items) >= this.random.num_axioms
    values = random_values(this, 70)
    names = dict(zip(this.forest.labels, values.tolist(), strict=True))
    rng, rows = this.rng(71), this.forest.relations
    mapping = {n: torch.from_numpy(rng.normal(size=len(w))) for n, w in rows.items()}
    at_axioms = torch.cat(list(mapping.values()))[this.forest.axiom_rows].numpy()
    gains = [
        (None, derived.astype(float)),
        (values, values.numpy()),
        (-values.abs(), -values.abs().numpy()),
        (mapping, np.pad(at_axioms, (0, this.num_items - len(at_axioms)))),
        (lambda label: names[label], values.numpy()),
    ]
    for gain, gain_of in gains:
        found = answers(this, this.forest.min_risk(gain))
        for tree, goal in zip(found, this.goals, strict=True):
            if not goal.trees:
                assert tree is None
                continue
            # The gain of T when T' is right, averaged over T'.
            gain_matrix = (goal.counts * gain_of) @ goal.counts.T
            expected_gain = gain_matrix @ goal.probabilities
            place = [t.edges for t in goal.trees].index(edges_of(tree))
            assert_close(expected_gain[place], expected_gain.max())
            assert_close(tree.log_weight, goal.log_weights[place])


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_semirings_of_numbers(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    forest = this.forest
    totals = [np.exp(goal.log_weights).sum() for goal in this.goals]
    counts = [len(goal.trees) for goal in this.goals]
    best = [max(goal.log_weights, default=-np.inf) for goal in this.goals]
    assert_close(forest.evaluate(Log()), np.array([g.log_partition for g in this.goals]))
    assert_close(forest.evaluate(Real()), np.array(totals))
    assert_close(forest.evaluate(Max()), np.array(best))
    assert_close(forest.evaluate(Counting(exact=False)), np.array(counts))
    assert np.array_equal(forest.evaluate(Counting(exact=True)), np.array(counts))
    assert_close(forest.evaluate(Boolean()), np.array(counts) > 0)
    scaled = Scaled(Real())
    assert_close(scaled.value(forest.evaluate(scaled)), np.array(totals))


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scaled", [False, True])
def test_semirings_of_functions(seed: int, num_goals: int, scaled: bool) -> None:
    this = case(seed, num_goals)
    num_axioms = this.random.num_axioms
    values = torch.from_numpy(this.rng(80).normal(size=(num_axioms, 3)))
    of_trees = [goal.counts[:, :num_axioms] @ values.numpy() for goal in this.goals]
    weights = [np.exp(goal.log_weights) for goal in this.goals]

    def evaluate(algebra: Any, chosen: torch.Tensor) -> Any:
        semiring = Scaled(algebra) if scaled else algebra
        result = this.forest.evaluate(semiring, chosen)
        return semiring.value(result) if scaled else result

    first = evaluate(Expectation(3), values)
    for row, w, f in zip(first, weights, of_trees, strict=True):
        assert_close(row, np.concatenate([[w.sum()], w @ f]))
    second = evaluate(SecondOrderExpectation(1, 2), values)
    for row, w, f in zip(second, weights, of_trees, strict=True):
        left, right = f[:, :1], f[:, 1:]
        expected = np.block(
            [[np.array([[w.sum()]]), w[None] @ right], [left.T @ w[:, None], left.T * w @ right]]
        )
        assert_close(row, expected)
    polynomial = Polynomial((3, 0, 2))
    moments = polynomial.moments(evaluate(polynomial, values))
    for row, w, f in zip(moments, weights, of_trees, strict=True):
        expected = np.zeros((4, 1, 3))
        for a in range(4):
            for b in range(3):
                expected[a, 0, b] = (w * f[:, 0] ** a * f[:, 2] ** b).sum()
        assert_close(row, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_every_item_in_a_semiring(seed: int) -> None:
    this = case(seed)
    counts = this.forest.evaluate(Counting(), every_item=True)
    logs = this.forest.evaluate(Log(), every_item=True)
    for item in range(this.num_items):
        trees = [t for t in this.oracle.derivations(item) if t.weight > -np.inf]
        assert counts[item] == len(trees)
        below = Distribution(trees, this.num_items, 0)
        assert_close(logs[item], below.log_partition)


def test_evaluate_is_differentiable() -> None:
    this = case(1)
    weights = [w.clone().requires_grad_() for w in this.forest.relations.values()]
    forest = this.forest.with_weights(**dict(zip(this.forest.relations, weights, strict=True)))
    expected = torch.autograd.grad(forest.log_partition(), weights, materialize_grads=True)
    actual = torch.autograd.grad(forest.evaluate(Log())[0], weights, materialize_grads=True)
    for a, b in zip(actual, expected, strict=True):
        assert_close(a, b)


def test_scaled_semirings_take_any_magnitude() -> None:
    builder = ForestBuilder()
    for name, weight in [("a", 1e4), ("b", 1e4 + math.log(3)), ("c", -1e4)]:
        builder.axiom(name, weight)
    builder.edge("S", ["a", "a"])
    builder.edge("S", ["a", "b"])
    builder.edge("S", ["c", "c", "c"])
    forest: Forest = builder.build(goal="S")
    scaled = Scaled(Expectation(1))
    values = {"a": 1.0, "b": 5.0, "c": 1e9}
    at_axioms = torch.tensor([[values[str(label)]] for label in forest.labels[:3]])
    result = forest.evaluate(scaled, at_axioms)
    assert_close(scaled.log_abs(result), [2e4 + math.log(4)])
    assert_close(scaled.ratio(result)[:, 1], [(2 + 3 * 6) / 4])


def test_samples_follow_weights_that_an_optimizer_changes():
    weights = torch.tensor([0.0, -torch.inf], dtype=torch.float64, requires_grad=True)
    builder = ForestBuilder()
    for name in ("a", "b"):
        builder.axiom(name)
        builder.edge("S", [name])
    forest = builder.build(goal="S", log_weights={"axioms": weights})
    generator = torch.Generator().manual_seed(0)
    assert {d.axioms[0] for d in forest.sample(20, generator=generator)} == {"a"}
    with torch.no_grad():
        weights.copy_(torch.tensor([-torch.inf, 0.0]))
    assert {d.axioms[0] for d in forest.sample(20, generator=generator)} == {"b"}
