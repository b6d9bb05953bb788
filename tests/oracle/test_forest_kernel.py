"""The passes over a forest's arrays where derived items, too, have weights of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inout.kernels.forest import op
from inout.kernels.forest.arrays import ForestArrays
from tests.oracle.forest_cases import Distribution, enumerate_forest
from tests.oracle.random_forests import random_forest
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(12)
TIERS = ["cpu", "gpu", "reference"]


def arrays_and_goals(
    seed: int, scale: float = 1.0
) -> tuple[ForestArrays, np.ndarray, list[Distribution]]:
    random = random_forest(
        seed, num_goals=4, min_derivations=20 * (seed % 3), max_derivations=300, zeros=0.15
    )
    random.item_weights[:] *= scale
    oracle = enumerate_forest(random)
    num_edges = len(random.tail_offsets) - 1
    goals = [
        Distribution(
            [t for t in oracle.derivations(int(g)) if t.weight > -np.inf],
            random.num_items,
            num_edges,
        )
        for g in random.goals
    ]
    arrays = ForestArrays(*random.arrays, random.level_offsets, random.goals)
    return arrays, random.item_weights, goals


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("scale", [1.0, 200.0, 1e4])
@pytest.mark.parametrize("seed", SEEDS)
def test_derived_items_with_weights(seed: int, scale: float, tier: Any) -> None:
    arrays, item_weights, goals = arrays_and_goals(seed, scale)
    weights = torch.from_numpy(item_weights.copy()).requires_grad_()
    roots = torch.from_numpy(arrays.goals)
    values = op.log_values(arrays, weights, roots, tier)
    assert_close(values, np.array([goal.log_partition for goal in goals]))
    signs = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    expected = sum(
        float(sign) * goal.mean(goal.counts) for sign, goal in zip(signs, goals, strict=True)
    )
    tolerance = {"rtol": 1e-10, "atol": 1e-10 * max(1.0, scale / 1e2)}
    assert_close(op.item_counts(arrays, weights, roots, signs, tier), expected, **tolerance)
    # The Hessian along a direction, of a sum over goals of either sign.
    direction = torch.from_numpy(np.random.default_rng(seed).normal(size=len(item_weights)))
    product = sum(
        float(sign)
        * goal.mean(
            (goal.counts - goal.mean(goal.counts))
            * (goal.counts @ direction.numpy() - goal.mean(goal.counts @ direction.numpy()))[
                :, None
            ]
        )
        for sign, goal in zip(signs, goals, strict=True)
    )
    counts = op.item_counts(arrays, weights, roots, signs, tier)
    if counts.requires_grad:
        (hessian,) = torch.autograd.grad(counts @ direction, weights, materialize_grads=True)
        assert_close(hessian, product, rtol=1e-9, atol=1e-9 * max(1.0, scale / 1e2))
    else:
        assert_close(product, np.zeros(len(item_weights)))


@pytest.mark.parametrize("tier", ["cpu", "gpu"])
@pytest.mark.parametrize("seed", SEEDS)
def test_edge_probabilities(seed: int, tier: Any) -> None:
    arrays, item_weights, _ = arrays_and_goals(seed)
    weights = torch.from_numpy(item_weights.copy())
    shares = op.edge_probabilities(arrays, weights, tier)
    every = torch.arange(arrays.num_items)
    logs = op.log_values(arrays, weights, every, tier).numpy()
    for item in range(arrays.num_axioms, arrays.num_items):
        for edge in range(arrays.edge_offsets[item], arrays.edge_offsets[item + 1]):
            tails = arrays.tails[arrays.tail_offsets[edge] : arrays.tail_offsets[edge + 1]]
            product = logs[tails].sum() + item_weights[item]
            expected = np.exp(product - logs[item]) if logs[item] > -np.inf else 0.0
            assert_close(shares[edge], expected)


@pytest.mark.parametrize("tier", TIERS)
def test_a_root_asked_for_twice(tier: Any) -> None:
    arrays, item_weights, goals = arrays_and_goals(2)
    weights = torch.from_numpy(item_weights.copy())
    roots = torch.from_numpy(np.repeat(arrays.goals[:1], 3))
    expected = 3 * goals[0].mean(goals[0].counts)
    assert_close(op.item_counts(arrays, weights, roots, torch.ones(3).double(), tier), expected)


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_gradient_with_respect_to_the_seeds(seed: int) -> None:
    # The counts are linear in the numbers the goals are weighed by.
    arrays, item_weights, goals = arrays_and_goals(seed)
    weights = torch.from_numpy(item_weights.copy())
    roots = torch.from_numpy(arrays.goals)

    def counts(signs: Tensor) -> Tensor:
        return op.item_counts(arrays, weights, roots, signs, "cpu")

    signs = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(counts, signs)
    expected = np.stack([goal.mean(goal.counts) for goal in goals], axis=1)
    assert_close(jacobian, expected)
