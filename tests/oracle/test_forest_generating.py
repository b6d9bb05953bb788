"""Generating functions on forests, and moments read off them, against lists of derivations."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from inout import ArgumentError, Forest, ForestBuilder
from inout.kernels.forest import generating
from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.generating import generating_function
from inout.series import Lanes, Points, Truncated
from tests.oracle.forest_cases import Case, Distribution, case, enumerate_forest, with_gradient
from tests.oracle.random_forests import RandomForest, forest_from_lists, random_forest
from tests.seeds import seeds
from tests.support import assert_close

F64, C128 = torch.float64, torch.complex128
SEEDS = seeds(9)
TIERS = ["cpu", "reference"]
LANES: dict[str, Lanes] = {
    "order 8": Truncated((8,)),
    "orders 3 0 4": Truncated((3, 0, 4)),
    "orders 2 3 2": Truncated((2, 3, 2)),
    "order 0": Truncated((0,)),
    "real points": Points(torch.tensor([[0.3, -0.7], [0.2, 0.5]], dtype=F64)),
    "points": Points(torch.tensor([[0.3j, -0.7], [0.1 + 0.2j, 0.4]], dtype=C128)),
}
SHORT: dict[str, Lanes] = {
    "order 3": Truncated((3,)),
    "orders 2 1": Truncated((2, 1)),
    "real points": LANES["real points"],
    "points": LANES["points"],
}


def distributions(random: RandomForest) -> list[Distribution]:
    """Of each goal, its derivations that have a weight."""
    oracle = enumerate_forest(random)
    num_edges = len(random.tail_offsets) - 1
    return [
        Distribution(
            [tree for tree in oracle.derivations(int(goal)) if tree.weight > -np.inf],
            random.num_items,
            num_edges,
        )
        for goal in random.goals
    ]


def library_arrays(random: RandomForest) -> ForestArrays:
    return ForestArrays(*random.arrays, random.level_offsets, random.goals)


@lru_cache(maxsize=64)
def random_case(seed: int) -> tuple[RandomForest, list[Distribution]]:
    random = random_forest(
        seed, num_goals=4, min_derivations=20 * (seed % 3), max_derivations=200, zeros=0.15
    )
    return random, distributions(random)


def random_values(random: RandomForest, seed: int, count: int, dtype: torch.dtype) -> Tensor:
    """Values of all items, some of them 0; not finite where no derivation can be."""
    generator = torch.Generator().manual_seed(seed)
    size = (count, random.num_items)
    values = torch.randn(size, dtype=dtype, generator=generator)
    values = values * (torch.rand(size, generator=generator) < 0.7)
    dead = torch.from_numpy(random.item_weights) == -torch.inf
    return torch.where(dead, -torch.inf, values)


def exponentials(lanes: Lanes, sums: np.ndarray) -> np.ndarray:
    """exp(z . sums) [l trees] of sums [k trees], lane by lane."""
    if isinstance(lanes, Points):
        points = lanes.points.numpy()
        rows = [np.zeros_like(sums[0]), *(z @ sums for z in points.T)]
        return np.exp(np.stack(rows))
    assert isinstance(lanes, Truncated)
    rows = []
    for powers in product(*(range(1 + n) for n in lanes.orders)):
        terms = [x**n / math.factorial(n) for x, n in zip(sums, powers, strict=True)]
        rows.append(math.prod(terms))
    return np.stack(rows)


def expected_x(
    lanes: Lanes, goals: list[Distribution], values: Tensor, centres: Tensor
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Of each goal exp(z . (F - centre)) [l trees]; means of it and of its absolute terms [l g]."""
    finite = torch.where(values.abs() == torch.inf, 0.0, values).numpy()
    rows = [
        exponentials(lanes, finite @ goal.counts.T - centres[:, g : g + 1].numpy())
        for g, goal in enumerate(goals)
    ]
    means = [row @ goal.probabilities for row, goal in zip(rows, goals, strict=True)]
    sizes = [np.abs(row) @ goal.probabilities for row, goal in zip(rows, goals, strict=True)]
    return rows, np.stack(means, axis=1), np.stack(sizes, axis=1)


def assert_within(actual: Any, expected: Any, scale: Any, tolerance: float = 1e-9) -> None:
    """Every error is at most the tolerance times the absolute sum, or rounding of constants."""
    actual, expected = (torch.as_tensor(x).detach().to(C128) for x in (actual, expected))
    error = (actual - expected).abs()
    assert not bool(error.isnan().any())
    assert bool((error <= tolerance * torch.as_tensor(scale) + 1e-14).all()), error.max()


@pytest.mark.few(12)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [F64, C128])
@pytest.mark.parametrize("name", LANES)
def test_values_and_gradients(name: str, dtype: torch.dtype, shift: float, tier: Any) -> None:
    lanes = LANES[name]
    for seed in SEEDS:
        random, goals = random_case(seed)
        values = random_values(random, seed, lanes.num_functions, dtype).requires_grad_()
        weights = torch.from_numpy(random.item_weights.copy()).requires_grad_()
        roots = torch.from_numpy(random.goals)
        x, centres = generating_function(
            library_arrays(random), lanes, weights, values, roots, shift, tier
        )
        is_complex = dtype == C128 or name == "points"
        assert x.dtype == (C128 if is_complex else F64)
        assert centres.dtype == dtype
        rows, means, sizes = expected_x(lanes, goals, values.detach(), centres)
        assert_within(x, means, sizes)
        # A gradient of a random weighting of all entries, both parts of them.
        signs = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(seed))
        (x * signs).sum().real.backward()
        of_weights = np.zeros(random.num_items)
        of_values = np.zeros(values.shape, dtype=complex)
        scale = 0.0
        for g, (goal, row) in enumerate(zip(goals, rows, strict=True)):
            weighted = signs[:, g].numpy() @ row * goal.probabilities
            of_weights += (weighted @ goal.counts).real
            for k in range(lanes.num_functions):
                moved = signs[:, g].numpy() @ times_variable(lanes, row, k) * goal.probabilities
                of_values[k] += moved @ goal.counts
            scale += float(sizes[:, g].max(initial=0.0)) * (1.0 + goal.counts.max(initial=0.0))
        assert_within(weights.grad, of_weights, 10 * scale)
        # What torch calls the gradient is the conjugate of the derivative.
        expected = of_values.conj() if dtype == C128 else of_values.real
        gradient = torch.zeros_like(values) if values.grad is None else values.grad
        assert_within(gradient, expected, 10 * scale)


def times_variable(lanes: Lanes, row: np.ndarray, k: int) -> np.ndarray:
    """z_k times functions [l trees]."""
    if isinstance(lanes, Points):
        return np.concatenate([np.zeros((1, 1)), lanes.points[k].numpy()[:, None]]) * row
    assert isinstance(lanes, Truncated)
    grid = row.reshape(*lanes.shape, -1)
    moved = np.zeros_like(grid)
    high = [slice(None)] * grid.ndim
    low = list(high)
    high[k], low[k] = slice(1, None), slice(0, -1)
    moved[tuple(high)] = grid[tuple(low)]
    return moved.reshape(row.shape)


@pytest.mark.few(6)
@pytest.mark.parametrize("shift", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [F64, C128])
@pytest.mark.parametrize("name", LANES)
def test_tiers_agree(name: str, dtype: torch.dtype, shift: float) -> None:
    lanes = LANES[name]
    for seed in range(20, 26):
        random = random_forest(
            seed, num_levels=8, level_width=4, num_goals=3, max_derivations=10**9, max_arity=3
        )
        values = random_values(random, seed, lanes.num_functions, dtype)
        values = 0.1 * torch.where(values.abs() == torch.inf, 0.0, values)
        results = []
        for tier in TIERS:
            inputs = [
                torch.from_numpy(random.item_weights.copy()).requires_grad_(),
                values.clone().requires_grad_(),
            ]
            x, centres = generating_function(
                library_arrays(random), lanes, *inputs, torch.from_numpy(random.goals), shift, tier
            )
            # Centres may differ by what does not matter inside.
            x = lanes.times(x, lanes.exponential(centres))
            gradients = torch.autograd.grad((x * x).sum().real, inputs, materialize_grads=True)
            results.append((x, *gradients))
        for ours, theirs in zip(*results, strict=True):
            assert_close(
                ours, theirs, rtol=1e-9, atol=1e-9 * float(theirs.detach().abs().max()) + 1e-14
            )


@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize("name", ["orders 2 3 2", "points"])
def test_shifts_move_only_the_centres(name: str, shift: float) -> None:
    lanes = LANES[name]
    random, _ = random_case(0)
    values = random_values(random, 5, lanes.num_functions, F64)
    weights, roots = torch.from_numpy(random.item_weights), torch.from_numpy(random.goals)
    x, centres = generating_function(library_arrays(random), lanes, weights, values, roots)
    y, moved = generating_function(library_arrays(random), lanes, weights, values, roots, shift)
    assert bool((moved != centres).any()) == (shift != 0.0)
    y = lanes.times(y, lanes.exponential(moved - centres))
    assert_close(y, x)


@pytest.mark.few(4)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("dtype", [F64, C128])
@pytest.mark.parametrize("name", SHORT)
def test_derivatives_of_both_orders(name: str, dtype: torch.dtype, tier: Any) -> None:
    lanes = SHORT[name]
    random, _ = random_case(2)
    finite = np.where(random.item_weights == -np.inf, 0.0, random.item_weights)
    weights = torch.from_numpy(finite).requires_grad_()
    values = 0.3 * random_values(random, 1, lanes.num_functions, dtype)
    values = torch.where(values.abs() == torch.inf, 0.0, values).requires_grad_()
    arrays, roots = library_arrays(random), torch.from_numpy(random.goals)
    with torch.no_grad():
        still = generating_function(arrays, lanes, weights, values, roots, 0.0, tier)[1]

    def about_a_constant(weights: Tensor, values: Tensor) -> Tensor:
        # Z and the centres are constants to autograd, but not to finite differences.
        x, centres = generating_function(arrays, lanes, weights, values, roots, 0.0, tier)
        return lanes.times(x / x[:1], lanes.exponential(centres - still))

    assert gradcheck(about_a_constant, (weights, values), fast_mode=True)
    assert gradgradcheck(about_a_constant, (weights, values), fast_mode=True, atol=1e-4)


def test_many_points_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    random, _ = random_case(2)
    values = random_values(random, 1, 2, F64)
    generator = torch.Generator().manual_seed(1)
    lanes = Points(torch.randn(2, 7, dtype=C128, generator=generator))
    results = []
    for most in (generating.FOREST_NUMBERS, 1):
        monkeypatch.setattr(generating, "FOREST_NUMBERS", most)
        weights = torch.from_numpy(random.item_weights.copy()).requires_grad_()
        x, _ = generating_function(
            library_arrays(random), lanes, weights, values, torch.from_numpy(random.goals)
        )
        results.append((x, *torch.autograd.grad(x.abs().sum(), weights)))
    for together, apart in zip(*results, strict=True):
        assert_close(apart, together)


def test_third_derivatives() -> None:
    random, _ = random_case(2)
    arrays, roots = library_arrays(random), torch.from_numpy(random.goals[:1])
    values = random_values(random, 1, 1, F64)
    values = torch.where(values.abs() == torch.inf, 0.0, values)
    lanes = Truncated((2,))
    thirds = []
    for tier in TIERS:
        weights = torch.from_numpy(random.item_weights.copy()).requires_grad_()
        x, _ = generating_function(arrays, lanes, weights, values, roots, tier=tier)  # type: ignore[arg-type]
        total = x[2].sum()
        for seed in range(3):
            (gradient,) = torch.autograd.grad(total, weights, create_graph=True)
            generator = torch.Generator().manual_seed(seed)
            total = gradient @ torch.randn(len(gradient), dtype=F64, generator=generator)
        thirds.append(total)
    assert_close(thirds[0], thirds[1])
    assert abs(float(thirds[0].detach())) > 1e-3


@pytest.mark.parametrize("scale", [200.0, 1e4])
@pytest.mark.parametrize("tier", TIERS)
def test_large_weights(tier: Any, scale: float) -> None:
    lanes = Truncated((6,))
    for seed in SEEDS:
        random = random_forest(
            seed, num_goals=3, min_derivations=10, max_derivations=200, zeros=0.05
        )
        random.item_weights[:] *= scale
        goals = distributions(random)
        values = random_values(random, seed, 1, F64)
        weights = torch.from_numpy(random.item_weights).requires_grad_()
        roots = torch.from_numpy(random.goals)
        x, centres = generating_function(
            library_arrays(random), lanes, weights, values, roots, 0.0, tier
        )
        _, means, sizes = expected_x(lanes, goals, values, centres)
        # Log-weights of 1e4 are themselves only known to 1e-12.
        assert_within(x, means, sizes + 1.0, 1e-9)
        (gradient,) = torch.autograd.grad(x.sum(), weights)
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", LANES)
def test_forests_without_derivations(name: str, tier: Any) -> None:
    lanes = LANES[name]
    dead = forest_from_lists(2, [[(0, 1)], [], [(2,), (3,)]], [-np.inf, 0.0, 0.0, 0.0, 0.0], [4, 0])
    weights = torch.from_numpy(dead.item_weights).requires_grad_()
    values = torch.ones(lanes.num_functions, 5, dtype=F64, requires_grad=True)
    x, centres = generating_function(
        library_arrays(dead), lanes, weights, values, torch.from_numpy(dead.goals), 0.0, tier
    )
    assert not bool(x.any())
    assert not bool(centres.any()) or tier == "reference"
    gradients = torch.autograd.grad(x.real.sum(), (weights, values), materialize_grads=True)
    assert not any(bool(g.any()) for g in gradients)


@pytest.mark.parametrize("tier", TIERS)
def test_constants_leave_nothing_to_compute(tier: Any) -> None:
    """All derivations of a span have as many leaves: exactly 1, also in the gradient."""
    builder, size = ForestBuilder(), 8
    for i in range(size):
        builder.axiom((i, i + 1), 0.1 * i)
    for width in range(2, size + 1):
        for i in range(size - width + 1):
            for middle in range(i + 1, i + width):
                builder.edge((i, i + width), [(i, middle), (middle, i + width)])
    forest = builder.build(goal=(0, size))
    values = torch.tensor([[0.1 * (b - a == 1) for a, b in forest.labels]], dtype=F64)
    weights = forest.item_weights.requires_grad_()
    lanes = Truncated((5,))
    x, centres = generating_function(
        forest.arrays, lanes, weights, values, forest.goal_items, 0.0, tier
    )
    assert_close(centres, np.array([[0.1 * size]]))
    assert_close(x[:, 0], np.eye(6)[0], atol=0.0 if tier == "cpu" else 1e-15)
    (counts,) = torch.autograd.grad(x[0, 0], weights)
    assert_close(counts, forest.expected_counts())


def deep_chain(depth: int) -> RandomForest:
    """At each level one of two axioms, and the level below."""
    below = [4, *range(4, 3 + depth)]
    edges: list[list[tuple[int, ...]]] = [[(2,), (3,)]]
    edges += [[(item, 0), (item, 1)] for item in below[1:]]
    return forest_from_lists(4, edges, [0.3, -0.4, 0.0, 0.0] + [0.0] * depth)


@pytest.mark.parametrize(
    ("lanes", "limit"),
    [(Truncated((20,)), 1e-10), (Points(torch.tensor([[0.001, 0.01j, 1.0]], dtype=C128)), 1e-10)],
)
def test_deep_forests_are_quick_and_exact(lanes: Lanes, limit: float) -> None:
    depth = 10_000
    random = deep_chain(depth)
    arrays, roots = library_arrays(random), torch.from_numpy(random.goals)
    values = torch.zeros(1, random.num_items, dtype=F64)
    values[0, 0], values[0, 1] = 100.3, 101.1
    weights = torch.from_numpy(random.item_weights).requires_grad_()
    generating_function(library_arrays(deep_chain(2)), lanes, weights[:6], values[:, :6], roots[:0])
    start = time.perf_counter()
    x, centres = generating_function(arrays, lanes, weights, values, roots)
    x.real.sum().backward()
    assert time.perf_counter() - start < 2.0
    # A sum of independent choices: the power of the generating function of one of them.
    p = math.exp(0.3) / (math.exp(0.3) + math.exp(-0.4))
    one = torch.tensor([[100.3, 101.1]], dtype=F64)
    one = one - (p * 100.3 + (1 - p) * 101.1)
    both = lanes.exponential(one) * torch.tensor([p, 1 - p], dtype=F64)
    factor, total = both.sum(1, keepdim=True), lanes.one(one, 1)
    for bit in bin(depth - 1)[2:]:
        total = lanes.times(total, total)
        total = lanes.times(total, factor) if bit == "1" else total
    mean = (depth - 1) * (p * 100.3 + (1 - p) * 101.1)
    assert_close(centres, np.array([[mean]]))
    if isinstance(lanes, Truncated):
        # Relative to the absolute moments of a normal distribution of this variance.
        spread = 0.8 * math.sqrt(depth * p * (1 - p))
        scale = torch.tensor([spread**n / math.gamma(n / 2 + 1) for n in range(21)], dtype=F64)
    else:
        scale = total[:, 0].abs().sqrt() + total[:, 0].abs()
    finite = scale.isfinite() & total[:, 0].abs().isfinite()
    assert bool(finite[:3].all())
    assert_within(x[finite, 0], total[finite, 0], scale[finite] * 1e2, limit)


def test_single_precision_weights() -> None:
    random, goals = random_case(2)
    values = random_values(random, 2, 1, F64)
    weights = torch.from_numpy(random.item_weights).float().requires_grad_()
    x, _ = generating_function(
        library_arrays(random), Truncated((3,)), weights, values, torch.from_numpy(random.goals)
    )
    assert x.dtype == F64
    x[0, 0].backward()
    assert weights.grad is not None
    assert weights.grad.dtype == torch.float32
    assert_close(weights.grad, goals[0].mean(goals[0].counts))


# Queries of forests.


def moments_of(
    goal: Distribution, sums: np.ndarray, orders: tuple[int, ...], kind: str
) -> tuple[np.ndarray, np.ndarray]:
    """Moments of sums [k trees], and their absolute moments."""
    p = goal.probabilities
    if kind == "central":
        sums = sums - (sums @ p)[:, None]
    found, scales = [], []
    for powers in product(*(range(1 + n) for n in orders)):
        terms = math.prod(x**n for x, n in zip(sums, powers, strict=True))
        found.append(terms @ p)
        scales.append(np.abs(terms) @ p)
    shape = [1 + n for n in orders]
    return np.reshape(found, shape), np.reshape(scales, shape)


def function(case: Case, seed: int, dtype: torch.dtype) -> tuple[Any, np.ndarray]:
    """A function in one of the ways it can be given, and its values [v]."""
    generator = torch.Generator().manual_seed(seed)
    if seed % 3 == 0:
        f = {
            name: torch.randn(len(rows), dtype=dtype, generator=generator)
            for name, rows in case.forest.relations.items()
        }
        axioms = torch.cat(list(f.values()))[case.forest.axiom_rows]
        values = torch.nn.functional.pad(axioms, (0, case.num_items - len(axioms)))
        return f, values.numpy()
    values = torch.randn(case.num_items, dtype=dtype, generator=generator)
    if seed % 3 == 1:
        return values, values.numpy()
    table = dict(zip(case.forest.labels, values.tolist(), strict=True))
    return (lambda label: table[label]), values.numpy()


@pytest.mark.few(4)
@pytest.mark.parametrize("method", ["auto", "circle", "taylor"])
@pytest.mark.parametrize("num_goals", [1, 3])
@pytest.mark.parametrize("dtype", [F64, C128])
def test_moments(dtype: torch.dtype, num_goals: int, method: str) -> None:
    every: list[tuple[int, ...]] = [(8,), (3, 5), (2, 2, 3), (0, 4)]
    if method == "taylor":  # slow
        every = [(4,), (2, 1)]
    for seed, orders in enumerate(every):
        this = case(seed + 3, num_goals)
        pairs = [function(this, 10 * seed + k, dtype) for k in range(len(orders))]
        sums = [np.stack([f @ goal.counts.T for _, f in pairs]) for goal in this.goals]
        for kind in ("raw", "central"):
            found = this.forest.moments([f for f, _ in pairs], orders, kind=kind, method=method)
            assert found.values.dtype == dtype
            values = found.values[None] if num_goals == 1 else found.values
            assert_close(found.log_partition, this.forest.log_partition())
            for goal, of_goal, x in zip(this.goals, sums, values, strict=True):
                truth, scale = moments_of(goal, of_goal, orders, kind)
                assert_within(x, truth, scale + 1e-6, 1e-9)


def test_moments_of_a_batch_are_those_of_its_members() -> None:
    """One pass for all, each in its own units."""
    members = [case(seed).forest for seed in (2, 4, 5)]
    forest = Forest.batch(members)
    scales = [1.0, 1e6, 1e-6]
    f, singles = [], []
    for member, scale in zip(members, scales, strict=True):
        generator = torch.Generator().manual_seed(member.num_items)
        own = {
            name: scale * torch.randn(len(rows), dtype=F64, generator=generator)
            for name, rows in member.relations.items()
        }
        f.append(own)
        singles.append(member.moments(own, 20, kind="central"))
    together = {name: torch.cat([own[name] for own in f]) for name in f[0]}
    found = forest.moments(together, 20, kind="central")
    assert found.values.shape == (3, 21)
    for x, single, scale in zip(found.values, singles, scales, strict=True):
        unit = torch.tensor([scale**n for n in range(21)], dtype=F64)
        size = (single.values / unit).abs().cummax(0).values
        assert_within(x / unit, single.values / unit, 1e3 * size, 1e-10)
    one, two = forest.weighted_marginals(together, 3), members[1].weighted_marginals(f[1], 3)
    assert two.abs().max() > 1e15
    mine = one[forest.goal_of_item == 1]
    assert_close(mine.sum(), two.sum(), rtol=1e-9)


@pytest.mark.parametrize("num_goals", [1, 3])
@pytest.mark.parametrize("dtype", [F64, C128])
def test_weighted_marginals(dtype: torch.dtype, num_goals: int) -> None:
    for seed in (2, 3, 5, 8):
        this = case(seed, num_goals)
        (f, first), (g, second) = (function(this, 10 * seed + k, dtype) for k in range(2))
        for kind in ("raw", "central"):
            expected, size = 0.0, 0.0
            for goal in this.goals:
                sums = np.stack([first @ goal.counts.T, second @ goal.counts.T])
                if kind == "central":
                    sums = sums - (sums @ goal.probabilities)[:, None]
                terms = sums[0] ** 2 * sums[1] * goal.probabilities
                expected = expected + terms @ goal.counts
                size = size + np.abs(terms) @ goal.counts
            found = this.forest.weighted_marginals([f, g], (2, 1), kind=kind)
            assert_within(found, expected, size + 1e-3, 1e-9)
            if isinstance(expected, np.ndarray) and dtype == F64:
                rows = this.forest.weighted_marginals([f, g], (2, 1), "right", kind=kind)
                assert_within(rows, this.relation_counts("right", expected), 1e3 + size.sum())
        assert_close(
            this.forest.weighted_marginals(f, 0).real, this.forest.expected_counts(), atol=1e-12
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("num_goals", [1, 3])
def test_gradients_reach_relations_and_functions(num_goals: int) -> None:
    this = case(5, num_goals)
    forest, leaves = with_gradient(this.forest)
    leaves = {n: torch.where(w == -torch.inf, 0.0, w.detach()) for n, w in leaves.items()}
    values = function(this, 1, F64)[0].requires_grad_()
    inputs = tuple(w.requires_grad_() for w in leaves.values())
    direction = torch.randn(this.num_items, dtype=F64, generator=torch.Generator().manual_seed(3))

    def again(weights: tuple[Tensor, ...]) -> Forest:
        return forest.with_weights(**dict(zip(leaves, weights, strict=True)))

    def moments(values: Tensor, *weights: Tensor) -> Tensor:
        return again(weights).moments(values, 3, kind="central").values

    def weighted(values: Tensor, *weights: Tensor) -> Tensor:
        return again(weights).weighted_marginals(values, 2) @ direction

    assert gradcheck(moments, (values, *inputs), fast_mode=True)
    assert gradgradcheck(moments, (values, *inputs), fast_mode=True, atol=1e-4)
    assert gradcheck(weighted, (values, *inputs), fast_mode=True, atol=1e-4)


@pytest.mark.parametrize("num_goals", [1, 3])
def test_histograms(num_goals: int) -> None:
    for seed in SEEDS:
        this = case(seed, num_goals)
        generator = torch.Generator().manual_seed(seed)
        values = torch.randint(-2, 3, (this.num_items,), generator=generator).double()
        found = this.forest.histogram(values)
        rows = found.probabilities[None] if num_goals == 1 else found.probabilities
        sums = [goal.counts @ values.numpy() for goal in this.goals]
        some = np.concatenate(sums)
        if len(some):
            assert (found.first, int(found.values[-1])) == (some.min(), some.max())
        for goal, of_goal, row in zip(this.goals, sums, rows, strict=True):
            truth = [goal.probabilities @ (of_goal == v) for v in found.values.tolist()]
            assert_close(row, np.array(truth), rtol=0.0, atol=1e-13)
            assert abs(float(row.sum()) - bool(len(of_goal))) < 1e-12


def test_histogram_of_a_long_chain_is_binomial() -> None:
    depth = 400
    random = deep_chain(depth + 1)
    random.item_weights[1] = random.item_weights[0]
    builder = ForestBuilder()
    builder.axiom("heads", 0.0)
    builder.axiom("tails", 0.0)
    builder.edge(0, ["heads"])
    builder.edge(0, ["tails"])
    for level in range(1, depth):
        builder.edge(level, [level - 1, "heads"])
        builder.edge(level, [level - 1, "tails"])
    forest = builder.build(goal=depth - 1)
    found = forest.histogram(lambda label: float(label == "heads"))
    truth = np.array([math.comb(depth, n) / 2**depth for n in range(1 + depth)])
    assert_close(found.probabilities, truth, rtol=0.0, atol=1e-15)


def test_functions_that_make_no_sense_are_refused() -> None:
    forest = case(5).forest
    some = torch.zeros(forest.num_items, dtype=F64)
    for functions, orders, message in (
        (some[1:], 2, "one value per item"),
        ({"nothing": [1.0]}, 2, "nothing"),
        (some + math.nan, 2, "finite"),
        ([some], (2, 2), "one order for each"),
        ([], (), "at least one"),
        (some, -1, "whole numbers"),
    ):
        with pytest.raises(ArgumentError, match=message):
            forest.moments(functions, orders)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="whole numbers"):
        forest.histogram(some + 0.5)
    with pytest.raises(ArgumentError, match="kind"):
        forest.weighted_marginals(some, 2, kind="cumulants")


def test_functions_may_be_infinite_where_no_derivation_goes() -> None:
    for seed in SEEDS:
        this = case(seed)
        found = this.forest.moments(this.forest.item_weights, 3)
        assert bool(found.values.isfinite().all())
        (goal,) = this.goals
        truth = [goal.probabilities @ goal.log_weights**n for n in range(4)]
        assert_close(found.values, np.array(truth), rtol=1e-9, atol=1e-9)


def test_a_forest_without_goals() -> None:
    this = case(5).forest
    arrays = replace(this.arrays, goals=np.zeros(0, np.int64))
    forest = replace(this, arrays=arrays, single_goal=False)
    some = torch.ones(forest.num_items, dtype=F64)
    assert forest.moments(some, 2).values.shape == (0, 3)
    assert not bool(forest.weighted_marginals(some, 2).any())
