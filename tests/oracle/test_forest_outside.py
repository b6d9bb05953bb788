"""Inside and outside values of every item, against all derivations and contexts enumerated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from inout import ArgumentError, Forest, ForestBuilder, Program
from tests.oracle.forest_cases import SEEDS, Case, case, with_gradient
from tests.support import assert_close

TIERS = ["cpu", "gpu", "reference"]
Leaves = Counter[int]  # how often each axiom is used


def edges_of(this: Case, item: int) -> list[list[int]]:
    """The tails of each edge of an item."""
    arrays = this.random
    edges = range(arrays.edge_offsets[item], arrays.edge_offsets[item + 1])
    return [
        arrays.tails[arrays.tail_offsets[e] : arrays.tail_offsets[e + 1]].tolist() for e in edges
    ]


def derivations(this: Case, item: int) -> Iterator[Leaves]:
    if item < this.random.num_axioms:
        yield Counter([item])
    for tails in edges_of(this, item):
        for parts in product(*(list(derivations(this, tail)) for tail in tails)):
            yield sum(parts, Counter())


def contexts(this: Case, item: int, hole: int) -> Iterator[Leaves]:
    """Derivations of an item with one occurrence of another left out."""
    if item == hole:
        yield Counter()
    for tails in edges_of(this, item):
        for place, tail in enumerate(tails):
            others = [list(derivations(this, x)) for k, x in enumerate(tails) if k != place]
            for parts in product(list(contexts(this, tail, hole)), *others):
                yield sum(parts, Counter())


def log_total(this: Case, ways: list[Leaves]) -> float:
    logs = [sum(this.random.item_weights[a] * n for a, n in way.items()) for way in ways]
    return float(np.logaddexp.reduce(logs, initial=-np.inf))


def expected_leaves(this: Case, ways: list[Leaves]) -> np.ndarray:
    """The gradient of the log of the total: the mean number of uses of each axiom."""
    log_z, mean = log_total(this, ways), np.zeros(this.random.num_axioms)
    for way in ways:
        weight = log_total(this, [way])
        for axiom, n in way.items():
            if weight > -np.inf:
                mean[axiom] += n * np.exp(weight - log_z)
    return mean


def all_contexts(this: Case, hole: int) -> list[Leaves]:
    return [way for goal in this.random.goals for way in contexts(this, int(goal), hole)]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("num_goals", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_inside_and_outside_are_sums_over_derivations_and_contexts(seed, num_goals, tier):
    this = case(seed, num_goals)
    forest = this.forest.with_tier(tier)
    inside = [log_total(this, list(derivations(this, i))) for i in range(this.num_items)]
    outside = [log_total(this, all_contexts(this, i)) for i in range(this.num_items)]
    assert_close(forest.inside(), inside, rtol=1e-12, atol=1e-12)
    assert_close(forest.outside(), outside, rtol=1e-12, atol=1e-12)
    for name, weights in forest.relations.items():
        assert_close(forest.inside(name), weights)
        rows = this.relation_counts(name, np.exp(outside))
        assert_close(forest.outside(name).exp(), rows, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_their_gradients_are_mean_numbers_of_uses(seed):
    this = case(seed)
    scales = this.rng(3).normal(size=this.num_items)
    for name, ways in (("inside", derivations), ("outside", lambda c, i: all_contexts(c, i))):
        forest, leaves = with_gradient(this.forest)
        values = getattr(forest, name)()
        total = (values.where(values > -torch.inf, 0.0) * torch.from_numpy(scales)).sum()
        total.backward()
        rows = sum(
            scales[i] * expected_leaves(this, list(ways(this, i))) for i in range(this.num_items)
        )
        rows = np.where(this.finite, rows, 0.0)
        rows = np.pad(rows, (0, this.num_items - len(rows)))
        for relation, weights in leaves.items():
            found = torch.zeros_like(weights) if weights.grad is None else weights.grad
            assert_close(found, this.relation_counts(relation, rows), rtol=1e-10, atol=1e-10)


def test_they_can_be_differentiated_twice():
    this = next(case(s) for s in range(3, 50, 3) if case(s).finite.all())

    def values(*weights: torch.Tensor) -> torch.Tensor:
        forest = this.forest.with_weights(**dict(zip(this.forest.relations, weights, strict=True)))
        found = torch.cat([forest.inside(), forest.outside()])
        return found[found > -torch.inf]

    weights = [w.detach().clone().requires_grad_() for w in this.forest.relations.values()]
    assert torch.autograd.gradcheck(values, weights)
    assert torch.autograd.gradgradcheck(values, weights)


def test_their_product_is_the_expected_count_also_where_that_underflows():
    builder = ForestBuilder()
    rare, common = (
        builder.axiom("rare", log_weight=-5000.0),
        builder.axiom("common", log_weight=9.0),
    )
    builder.edge("S", [rare, rare, common])
    builder.edge("S", [common])
    forest = builder.build(goal="S")
    assert forest.expected_counts()[0] == 0.0
    at = forest.index
    assert forest.outside()[at["rare"]].item() == pytest.approx(-5000 + 9 + np.log(2), rel=1e-15)
    assert forest.outside()[at["common"]].item() == 0.0


def test_an_axiom_of_weight_zero_has_the_derivative_of_z_as_its_outside_value():
    def built(weight: float) -> Forest:
        builder = ForestBuilder()
        a = builder.axiom("a", log_weight=float(np.log(weight)) if weight else -np.inf)
        b = builder.axiom("b", log_weight=0.3)
        builder.edge("X", [a, b])
        builder.edge("X", [b])
        builder.edge("S", ["X", a])
        builder.edge("S", ["X", "X"])
        return builder.build(goal="S")

    step = 1e-6
    difference = (built(step).log_partition().exp() - built(0).log_partition().exp()) / step
    found = built(0).outside()[built(0).index["a"]].exp()
    # Z = (ab + b)(a + ab + b), so dZ/da at 0 is b(1 + b) + b².
    b = np.exp(0.3)
    assert found.item() == pytest.approx(b * (1 + b) + b * b, rel=1e-14)
    assert difference.item() == pytest.approx(found.item(), rel=1e-5)


def test_a_batch_has_the_values_of_its_forests():
    cases = [case(seed) for seed in SEEDS[:4]]
    batch = Forest.batch([this.forest for this in cases])
    for k, this in enumerate(cases):
        own = torch.tensor([label.element == k for label in batch.labels])
        assert_close(batch.inside()[own].sort().values, this.forest.inside().sort().values)
        assert_close(batch.outside()[own].sort().values, this.forest.outside().sort().values)


def test_axioms_of_the_same_fact_add_up():
    this = case(2)
    rows = torch.zeros_like(this.forest.axiom_rows)
    weight = torch.tensor([0.25], dtype=torch.float64, requires_grad=True)
    forest = replace(this.forest, relations={"all": weight}, axiom_rows=rows)
    total = forest.outside()[: this.random.num_axioms].exp().sum()
    assert_close(forest.outside("all").exp(), total[None], rtol=1e-12, atol=0.0)
    (slope,) = torch.autograd.grad(forest.log_partition().exp(), weight)
    assert_close(slope, (forest.outside("all") + weight).exp(), rtol=1e-12, atol=0.0)


def test_relations_without_facts_are_refused():
    for query in (case(0).forest.inside, case(0).forest.outside):
        with pytest.raises(ArgumentError, match="nothing"):
            query("nothing")


def test_facts_of_weight_zero_are_kept_on_request():
    """The outside value of an impossible rule: what its first use would add to Z."""
    program = Program(
        'goal += beta("S", 0, N) * length(N).\n'
        "beta(X,I,K) += rule(X,Y,Z) * beta(Y,I,J) * beta(Z,J,K).\n"
        "beta(X,I,K) += rule(X,W) * word(W,I,K)."
    )
    rules = {("S", "S", "S"): -np.inf, ("S", "a"): -1.0}
    facts = {"rule": rules, "word": [("a", i, i + 1) for i in range(2)], "length": [(2,)]}
    forest = program.ground(facts, keep_zeros=True)
    assert forest.log_partition() == -np.inf
    assert_close(forest.outside("rule"), [-2.0, -np.inf], rtol=1e-14, atol=0.0)
    assert_close(program.ground(facts).outside("rule"), [-np.inf, -np.inf])
