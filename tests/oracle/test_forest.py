"""log Z of a forest, its derivatives and its expectations, against all derivations enumerated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inout import Forest
from tests.oracle.forest_cases import SEEDS, Case, Distribution, case, random_values, with_gradient
from tests.support import assert_close

GOALS = [1, 3]
TIERS = ["cpu", "gpu", "reference"]


def per_goal(case: Case, values: list[Any]) -> Any:
    """What a query returns: the value itself for one goal, else one for each goal."""
    return np.array(values[0] if case.forest.single_goal else values)


def total_counts(case: Case) -> np.ndarray:
    return sum(goal.mean(goal.counts) for goal in case.goals)  # type: ignore[return-value]


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_log_partition_is_the_log_of_the_sum_over_derivations(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    expected = per_goal(this, [goal.log_partition for goal in this.goals])
    assert_close(this.forest.log_partition(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_expected_counts_are_means_over_derivations(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    expected = total_counts(this)
    assert_close(this.forest.expected_counts(), expected, rtol=1e-12, atol=1e-12)
    for name in this.forest.relations:
        rows = this.relation_counts(name, expected)
        assert_close(this.forest.expected_counts(name), rows, rtol=1e-12, atol=1e-12)
    marginals = this.forest.marginals()
    assert dict(marginals) == pytest.approx(
        dict(zip(this.forest.labels, expected, strict=True)), rel=1e-12, abs=1e-12
    )
    assert marginals[this.forest.labels[0]] == pytest.approx(expected[0], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_are_expected_counts(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    forest, leaves = with_gradient(this.forest)
    scales = torch.from_numpy(this.rng(1).normal(size=num_goals))
    total = (forest.log_partition() * scales).sum()
    # The gradient of a goal that has no derivation is 0, although its log Z is -inf.
    expected = np.zeros(this.num_items)
    for scale, goal in zip(scales.tolist(), this.goals, strict=True):
        expected += scale * goal.mean(goal.counts)
    gradients = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
    for name, gradient in zip(leaves, gradients, strict=True):
        assert_close(gradient, this.relation_counts(name, expected))


@pytest.mark.parametrize("seed", SEEDS)
def test_hessian_is_the_covariance_matrix_of_the_counts(seed: int) -> None:
    this = case(seed)
    (goal,) = this.goals
    deviations = goal.counts - goal.mean(goal.counts)
    covariance = goal.mean(deviations[:, :, None] * deviations[:, None, :])

    def log_partition(weights: Tensor) -> Tensor:
        return _with_axioms(this.forest, weights).log_partition()

    hessian = torch.autograd.functional.hessian(log_partition, this.forest.log_weights.clone())
    num_axioms = this.random.num_axioms
    assert_close(hessian, covariance[:num_axioms, :num_axioms])


def _with_axioms(forest: Forest, weights: Tensor) -> Forest:
    """The forest under these log-weights of its axioms, by number."""
    sizes = [len(w) for w in forest.relations.values()]
    rows = weights.new_zeros(sum(sizes)).index_copy(0, forest.axiom_rows, weights)
    return forest.with_weights(**dict(zip(forest.relations, rows.split(sizes), strict=True)))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_directional_derivatives_are_cumulants(seed: int, tier: Any) -> None:
    # log Z(θ + t·d) is the cumulant generating function of d·counts: its derivatives at t = 0
    # are the mean, the variance, the third and the fourth cumulant.
    this = case(seed)
    (goal,) = this.goals
    direction = random_values(this, 2)[: this.random.num_axioms]
    step = torch.zeros((), dtype=torch.float64, requires_grad=True)
    weights = this.forest.log_weights
    weights = torch.where(weights == -torch.inf, weights, weights + step * direction)
    derivative = _with_axioms(this.forest.with_tier(tier), weights).log_partition()
    x = goal.counts[:, : this.random.num_axioms] @ direction.numpy()
    variance = goal.central(x, x)
    expected = [
        goal.mean(x),
        variance,
        goal.central(x, x, x),
        goal.central(x, x, x, x) - 3 * variance**2,
    ]
    for cumulant in expected:
        (derivative,) = torch.autograd.grad(
            derivative, step, create_graph=True, materialize_grads=True
        )
        assert_close(derivative, cumulant, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("seed", [s for s in SEEDS if s % 3])
def test_derivatives_of_derivatives_that_depend_on_the_weights(seed: int, tier: Any) -> None:
    # The directions of the inner derivatives are functions of the weights themselves.
    this = case(seed)
    results = []
    for chosen in (tier, "reference"):
        weights = this.forest.log_weights.clone().requires_grad_()
        forest = _with_axioms(this.forest.with_tier(chosen), weights)
        value = forest.log_partition() ** 2
        for _ in range(3):
            (gradient,) = torch.autograd.grad(
                value, weights, create_graph=True, materialize_grads=True
            )
            value = (gradient**2).sum()
            results.append(gradient)
    for actual, expected in zip(results[:3], results[3:], strict=True):
        assert_close(actual, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", [s for s in SEEDS if s % 3])
def test_gradcheck_and_gradgradcheck(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    # torch's finite differences have no meaning at -inf.
    finite = torch.from_numpy(np.flatnonzero(this.finite))

    def log_partition(moved: Tensor) -> Tensor:
        weights = this.forest.log_weights.index_copy(0, finite, moved)
        values = _with_axioms(this.forest, weights).log_partition()
        return torch.where(values == -torch.inf, 0.0, values)

    start = this.forest.log_weights[finite].clone().requires_grad_()
    assert torch.autograd.gradcheck(log_partition, start)
    assert torch.autograd.gradgradcheck(log_partition, start)


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_entropy_and_its_gradient(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    forest, leaves = with_gradient(this.forest)
    entropies = [
        -goal.mean(np.log(goal.probabilities)) if goal.trees else -np.inf for goal in this.goals
    ]
    actual = forest.entropy()
    assert_close(actual, per_goal(this, entropies))
    # dH/dθ = -Cov[log weight, counts]
    expected = np.zeros(this.num_items)
    for goal in this.goals:
        energy = goal.log_weights - goal.mean(goal.log_weights) if goal.trees else np.zeros(0)
        expected -= goal.mean(energy[:, None] * goal.counts)
    gradients = torch.autograd.grad(actual.sum(), list(leaves.values()), materialize_grads=True)
    for name, gradient in zip(leaves, gradients, strict=True):
        assert_close(gradient, this.relation_counts(name, expected))


def functions(this: Case, purpose: int) -> list[tuple[Any, np.ndarray]]:
    """An additive function in each of its three forms, and its value at every item."""
    values = random_values(this, purpose)
    names = dict(zip(this.forest.labels, values.tolist(), strict=True))
    rng, forest = this.rng(purpose + 1), this.forest
    rows = {n: torch.from_numpy(rng.normal(size=len(w))) for n, w in forest.relations.items()}
    at_axioms = torch.cat(list(rows.values()))[forest.axiom_rows].numpy()
    at_items = np.pad(at_axioms, (0, this.num_items - len(at_axioms)))
    some = {"right": rows["right"].tolist()}  # a list, and a relation left out
    zeros = torch.zeros_like(rows["left"])
    at_some = torch.cat([zeros, rows["right"]])[forest.axiom_rows].numpy()
    at_some = np.pad(at_some, (0, this.num_items - len(at_some)))
    return [
        (values, values.numpy()),
        (rows, at_items),
        (some, at_some),
        (lambda label: names[label], values.numpy()),
    ]


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_expectations_of_additive_functions(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    for f, values in functions(this, 10):
        expected = per_goal(this, [goal.mean(goal.counts @ values) for goal in this.goals])
        assert_close(this.forest.expectation(f), expected)


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_covariances_and_expected_products(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    pairs = zip(functions(this, 20), reversed(functions(this, 30)), strict=True)
    for (f, f_values), (g, g_values) in pairs:
        sums = [(goal, goal.counts @ f_values, goal.counts @ g_values) for goal in this.goals]
        covariances = [goal.central(x, y) for goal, x, y in sums]
        products = [goal.mean(x * y) for goal, x, y in sums]
        assert_close(this.forest.covariance(f, g), per_goal(this, covariances))
        assert_close(this.forest.expected_product(f, g), per_goal(this, products))


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_expectation_and_covariance(seed: int) -> None:
    this = case(seed)
    (goal,) = this.goals
    forest, leaves = with_gradient(this.forest)
    f, g = random_values(this, 40).requires_grad_(), random_values(this, 41).requires_grad_()
    x, y = (goal.counts @ values.detach().numpy() for values in (f, g))
    columns = goal.counts.T if goal.trees else np.zeros((this.num_items, 0))
    inputs = [*leaves.values(), f, g]
    queries = [
        (
            forest.expectation(f),
            [goal.central(x, column) for column in columns],
            goal.mean(goal.counts),
            np.zeros(this.num_items),
        ),
        (
            forest.covariance(f, g),
            [goal.central(x, y, column) for column in columns],
            [goal.central(y, column) for column in columns],
            [goal.central(x, column) for column in columns],
        ),
    ]
    for value, to_weights, to_f, to_g in queries:
        gradients = torch.autograd.grad(value, inputs, materialize_grads=True)
        for name, gradient in zip(leaves, gradients[:-2], strict=True):
            assert_close(gradient, this.relation_counts(name, np.array(to_weights)))
        assert_close(gradients[-2], np.array(to_f))
        assert_close(gradients[-1], np.array(to_g))


@pytest.mark.parametrize("seed", SEEDS)
def test_functions_may_be_infinite_where_nothing_is_used(seed: int) -> None:
    # The log-weight itself is such a function where axioms have weight zero.
    this = case(seed)
    (goal,) = this.goals
    weights, other = this.forest.item_weights, random_values(this, 50)
    y = goal.counts @ other.numpy()
    assert_close(this.forest.expectation(weights), goal.mean(goal.log_weights))
    for covariance in (
        this.forest.covariance(weights, other),
        this.forest.covariance(other, weights),
    ):
        assert_close(covariance, goal.central(goal.log_weights, y))


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_queries_ask_for_no_gradient_where_nothing_needs_one(seed: int) -> None:
    this = case(seed)
    f = random_values(this, 60)
    for tier in TIERS:
        forest = this.forest.with_tier(tier)  # type: ignore[arg-type]
        answers = [
            forest.log_partition(),
            forest.expected_counts(),
            forest.entropy(),
            forest.expectation(f),
            forest.covariance(f, f),
            forest.local_probabilities(),
            forest.edge_counts(),
        ]
        assert not any(answer.requires_grad for answer in answers)
        learned, _ = with_gradient(forest)
        with torch.no_grad():
            assert not learned.covariance(f, f).requires_grad
            assert not learned.expected_counts().requires_grad
            assert_close(learned.covariance(f, f), forest.covariance(f, f))


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_local_probabilities_and_edge_counts(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    arrays = this.forest.arrays
    shares = np.zeros(arrays.num_edges)
    for item in range(this.num_items):
        trees = [t for t in this.oracle.derivations(item) if t.weight > -np.inf and t.edges]
        below = Distribution(trees, this.num_items, arrays.num_edges)
        for tree, probability in zip(trees, below.probabilities, strict=True):
            shares[tree.edges[0]] += probability
        if trees:
            edges = this.oracle.edges[item]
            assert shares[list(edges)].sum() == pytest.approx(1)
    actual = this.forest.local_probabilities()
    assert_close(actual, shares)
    hits = sum(goal.mean(goal.edge_counts) for goal in this.goals)
    assert_close(this.forest.edge_counts(), hits)
    # Equations 19 and 20 of Eisner 2016: the posteriors are those of the PCFG.
    counts = this.forest.expected_counts()[torch.from_numpy(arrays.heads).long()]
    assert_close(actual * counts, hits)


@pytest.mark.parametrize("seed", [s for s in SEEDS if s % 3])
def test_gradient_of_the_local_probabilities(seed: int) -> None:
    this = case(seed)
    finite = torch.from_numpy(np.flatnonzero(this.finite))

    def shares(moved: Tensor) -> Tensor:
        weights = this.forest.log_weights.index_copy(0, finite, moved)
        forest = _with_axioms(this.forest, weights)
        return torch.cat([forest.local_probabilities(), forest.edge_counts()])

    start = this.forest.log_weights[finite].clone().requires_grad_()
    assert torch.autograd.gradcheck(shares, start)


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_log_prob_of_all_derivations(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    found = this.forest.kbest(400)
    for trees, goal in zip([found] if num_goals == 1 else found, this.goals, strict=True):
        logs = torch.stack([this.forest.log_prob(tree) for tree in trees]) if len(trees) else []
        assert len(logs) == len(goal.trees)
        if len(trees):
            assert_close(torch.logsumexp(logs, 0), 0.0)
            assert_close(logs.sort().values, np.sort(np.log(goal.probabilities)))


@pytest.mark.parametrize("seed", [s for s in SEEDS if s % 3])
def test_gradient_of_log_prob_is_observed_minus_expected(seed: int) -> None:
    this = case(seed)
    (goal,) = this.goals
    forest, leaves = with_gradient(this.forest)
    tree = forest.argmax()
    if not goal.trees:
        assert tree is None
        return
    observed = np.bincount([item for item, _ in tree.walk()], minlength=this.num_items)
    forest.log_prob(tree).backward()
    for name, leaf in leaves.items():
        expected = this.relation_counts(name, observed - goal.mean(goal.counts))
        assert_close(leaf.grad, expected)


def test_the_same_forest_is_differentiated_again_and_again() -> None:
    this = case(1)
    forest, leaves = with_gradient(this.forest)
    expected = None
    for _ in range(3):
        gradients = []
        for value in (forest.log_partition(), forest.entropy(), forest.expected_counts().sum()):
            for leaf in leaves.values():
                leaf.grad = None
            value.backward()
            gradients += [leaf.grad.clone() for leaf in leaves.values() if leaf.grad is not None]
        if expected is not None:
            assert all(torch.equal(a, b) for a, b in zip(gradients, expected, strict=True))
        expected = gradients


def test_constant_weights_are_copied() -> None:
    this = case(1)
    weights = {n: w.clone() for n, w in this.forest.relations.items()}
    forest = this.forest.with_weights(**weights)
    before = forest.log_partition()
    for tensor in weights.values():
        tensor.fill_(3.0)
    assert_close(forest.log_partition(), before)
