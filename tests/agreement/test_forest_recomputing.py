"""Forests that keep little memory and make the rest again: the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inout import HMM, ArgumentError
from inout.kernels.forest import op
from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.cpu.recomputed import Blocks, cut
from tests.oracle.random_forests import random_forest
from tests.seeds import seeds
from tests.support import assert_close


def draw(seed: int) -> tuple[ForestArrays, torch.Tensor]:
    """A forest with weights for all items, of any range and also zero."""
    random = random_forest(seed, num_goals=4, max_derivations=10**6, zeros=0.1)
    arrays = ForestArrays(*random.arrays, random.level_offsets, random.goals)
    weights = torch.from_numpy(random.item_weights) * [1.0, 100.0, 1e4][seed % 3]
    return arrays, weights


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10**6])
@pytest.mark.parametrize("seed", seeds(30, few=10))
def test_passes_are_the_same_to_the_last_digit(seed, count):
    arrays, weights = draw(seed)
    generator = np.random.default_rng(seed)
    # Any items, twice too, axioms among them.
    roots = torch.from_numpy(generator.integers(0, arrays.num_items, 6))
    factors = torch.from_numpy(generator.normal(size=6))
    blocks, _ = cut(arrays, count)
    assert isinstance(blocks, Blocks)
    ours, plain = (
        op._BlockPasses(blocks, arrays, weights, roots),
        op._Passes(arrays, weights, roots),
    )
    axioms = roots < arrays.num_axioms
    assert torch.equal(ours.log_z[~axioms], plain.log_z[~axioms])
    assert torch.equal(ours.log_z[axioms], weights[roots[axioms]])
    for _ in range(2):  # nothing is used up
        assert torch.equal(ours.gradients(factors)[0], plain.gradients(factors)[0])
    direction = torch.from_numpy(generator.normal(size=arrays.num_items))
    both = (x.tangents(factors, (direction,)) for x in (ours, plain))
    for found, expected in zip(*both, strict=True):
        assert torch.equal(found, expected)


def chain(n: int, states: int = 3):
    generator = torch.Generator().manual_seed(0)
    shapes = (states,), (states, states), (states, 4)
    logs = [torch.rand(shape, generator=generator, dtype=torch.float64).log() for shape in shapes]
    seen = torch.randint(0, 4, (n,), generator=generator)
    return HMM(*logs, seen).forest()


def test_a_forest_of_a_sequence_keeps_little():
    """Twice as many values for four times as many positions."""
    kept = []
    for n in (400, 1600):
        forest = chain(n)
        blocks = op._blocks(forest.arrays, "sqrt")
        assert blocks is not None
        kept.append(blocks.kept)
        assert blocks.kept < 4 * forest.num_items**0.5
    assert kept[1] < 2.2 * kept[0]


@pytest.mark.parametrize("memory", ["sqrt", 30_000])
def test_queries_are_the_same(memory):
    plain = chain(200)
    forest = plain.with_memory(memory)
    assert op._blocks(forest.arrays, memory) is not None
    found = []
    for each in (plain, forest):
        own = {name: x.clone().requires_grad_() for name, x in each.relations.items()}
        each = each.with_weights(**own)
        log_z = each.log_partition()
        leaves = list(own.values())
        first = torch.autograd.grad(log_z.sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum((x**2).sum() for x in first), leaves)
        found.append((log_z, *first, *second, each.expected_counts(), each.entropy()))
    for x, y in zip(*found, strict=True):
        assert_close(x, y, rtol=1e-12, atol=1e-12)


def test_a_budget_in_bytes():
    forest = chain(500)
    usual = 16 * forest.num_items + 8 * forest.num_edges
    assert op._blocks(forest.arrays, usual) is None
    for memory in (usual - 1, usual // 4):
        blocks = op._blocks(forest.arrays, memory)
        assert isinstance(blocks, Blocks)
        assert cut(forest.arrays, 2, memory)[1] <= memory
    with pytest.raises(ArgumentError, match="at least"):
        forest.with_memory(100).log_partition()
    for bad in (0, -1, True, "little"):
        with pytest.raises(ArgumentError, match="memory"):
            forest.with_memory(bad)
    with pytest.raises(ArgumentError, match="on the CPU only"):
        forest.with_tier("gpu").with_memory("sqrt").log_partition()
