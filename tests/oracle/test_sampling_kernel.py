"""Alias tables and samples against the exact probabilities of all derivations."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, chisquare

from inout._core.errors import ArgumentError, ForestError
from inout.kernels.forest.cpu import sample as compiled
from inout.kernels.forest.sample import alias_tables, sample
from tests.oracle.enumeration import EnumeratedForest
from tests.oracle.random_forests import RandomForest, forest_from_lists, random_forest
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(25)
SMALLEST_P = 1e-4


def enumerated(forest: RandomForest, log_weights: NDArray[np.float64]) -> EnumeratedForest:
    arrays = (a if isinstance(a, int) else a.tolist() for a in forest.arrays)
    weights = [Fraction(float(np.exp(w))) for w in log_weights]
    return EnumeratedForest(*arrays, weights)


def edge_probabilities(forest: RandomForest, oracle: EnumeratedForest) -> NDArray[np.float64]:
    """Probability of every edge given its head, from the weights of all derivations."""
    result = np.zeros(len(forest.tail_offsets) - 1)
    for item in range(forest.num_axioms, forest.num_items):
        total = oracle.total(item)
        for tree in oracle.derivations(item):
            if total > 0:
                result[tree.edges[0]] += float(tree.weight / total)
    return result


def draw(
    forest: RandomForest, probabilities: NDArray[np.float64], root: int, n: int, seed: int
) -> list[tuple[int, ...]]:
    tables = alias_tables(forest.edge_offsets, probabilities)
    roots = np.full(n, root)
    offsets, edges = sample(forest.arrays, tables, roots, seed)
    assert offsets.dtype == edges.dtype == np.int64
    assert len(offsets) == n + 1
    assert offsets[0] == 0
    assert offsets[-1] == len(edges)
    flat = edges.tolist()
    bounds = offsets.tolist()
    return [tuple(flat[i:j]) for i, j in pairwise(bounds)]


def pooled_p_value(observed: list[int], probabilities: list[float]) -> float:
    """p of Pearson's test, with cells of fewer than five expected put together."""
    n = sum(observed)
    cells: list[list[float]] = []
    for count, expected in sorted(
        zip(observed, (n * p for p in probabilities), strict=True), key=lambda pair: -pair[1]
    ):
        if cells and cells[-1][1] < 5:
            cells[-1] = [cells[-1][0] + count, cells[-1][1] + expected]
        else:
            cells.append([count, expected])
    if len(cells) > 1 and cells[-1][1] < 5:
        count, expected = cells.pop()
        cells[-1] = [cells[-1][0] + count, cells[-1][1] + expected]
    if len(cells) == 1:
        return 1.0
    counts, wanted = np.array(cells).T
    return float(chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue)


def table_probabilities(
    edge_offsets: NDArray[np.int64], accept: NDArray[np.float64], alias: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Probability with which the tables draw every edge, given its head."""
    result = np.zeros(len(accept))
    degrees = np.diff(edge_offsets)
    share = np.repeat(1.0 / np.maximum(degrees, 1), degrees)
    np.add.at(result, np.arange(len(accept)), accept * share)
    live = alias >= 0
    np.add.at(result, alias[live], ((1.0 - accept) * share)[live])
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_alias_tables_draw_each_edge_with_its_probability(seed: int) -> None:
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, [3, 10, 1000][seed % 3], 50)
    offsets = np.cumsum([0, *degrees])
    weights = rng.gamma(0.1 if seed % 2 else 1.0, size=offsets[-1])
    weights[rng.random(len(weights)) < 0.2] = 0.0
    totals = np.zeros(50)
    np.add.at(totals, np.repeat(np.arange(50), degrees), weights)
    totals = np.repeat(totals, degrees)
    probabilities = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
    accept, alias = alias_tables(offsets, probabilities)
    assert ((accept >= 0) & (accept <= 1)).all()
    heads = np.repeat(np.arange(50), degrees)
    dead = totals == 0
    assert (alias[dead] == compiled.IMPOSSIBLE).all()
    assert (heads[alias[~dead]] == heads[~dead]).all()
    drawn = table_probabilities(offsets, accept, alias)
    assert_close(drawn, probabilities, atol=1e-15, rtol=1e-12)
    # Exactly zero, not nearly: such an edge may have no derivation at all.
    assert (drawn[probabilities == 0] == 0).all()


def test_alias_tables_of_one_edge_no_edge_and_sums_off_by_rounding() -> None:
    offsets = np.array([0, 0, 1, 1, 4, 7])
    off = 1 + 1e-6
    accept, alias = alias_tables(
        offsets, np.array([1 / off, 0.2 * off, 0.3 * off, off / 2, 0, 1, 0])
    )
    assert accept[:1].tolist() == [1.0]
    assert alias[:1].tolist() == [0]
    assert_close(
        table_probabilities(offsets, accept, alias), [1, 0.2, 0.3, 0.5, 0, 1, 0], atol=1e-15, rtol=0
    )
    assert [len(a) for a in alias_tables(np.array([0, 0]), np.zeros(0))] == [0, 0]


@pytest.mark.parametrize("seed", SEEDS)
def test_samples_follow_the_exact_distribution(seed: int) -> None:
    forest = random_forest(seed, min_derivations=2 + seed, max_derivations=300, zeros=0.05)
    oracle = enumerated(forest, forest.item_weights)
    probabilities = edge_probabilities(forest, oracle)
    root = int(forest.goals[0])
    total = oracle.total(root)
    if total == 0:
        with pytest.raises(ForestError, match="no derivation of positive probability"):
            draw(forest, probabilities, root, 3, seed)
        return
    exact = {t.edges: float(t.weight / total) for t in oracle.derivations(root) if t.weight > 0}
    counts = Counter(draw(forest, probabilities, root, 20_000, seed))
    assert counts.keys() <= exact.keys()
    assert pooled_p_value([counts[t] for t in exact], list(exact.values())) > SMALLEST_P


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("lag", [1, 2, 64])
def test_samples_of_one_seed_are_independent(seed: int, lag: int) -> None:
    # One item with seven edges, so that a sample is one draw: the streams' first numbers.
    probabilities = np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.06, 0.04])
    forest = forest_from_lists(1, [[(0,)] * 7], [0.0, 0.0])
    drawn = [tree[0] for tree in draw(forest, probabilities, 1, 40_000, seed)]
    pairs = Counter(zip(drawn, drawn[lag:], strict=False))
    cells = [(a, b) for a in range(7) for b in range(7)]
    expected = [probabilities[a] * probabilities[b] for a, b in cells]
    # Overlapping pairs: the statistic minus that of the singles is chi square with 49 - 7 degrees.
    n = len(drawn) - lag
    pair_statistic = sum(
        (pairs[c] - n * p) ** 2 / (n * p) for c, p in zip(cells, expected, strict=True)
    )
    single = Counter(drawn[:n])
    single_statistic = sum((single[a] - n * p) ** 2 / (n * p) for a, p in enumerate(probabilities))
    assert chi2.sf(pair_statistic - single_statistic, 42) > SMALLEST_P
    assert chi2.sf(single_statistic, 6) > SMALLEST_P


@pytest.mark.parametrize("seed", seeds(4))
def test_draws_within_one_sample_are_independent(seed: int) -> None:
    # Three times the same item below one edge: 4^3 equally likely trees.
    forest = forest_from_lists(1, [[(0,)] * 4, [(1, 1, 1)]], [0.0] * 3)
    counts = Counter(draw(forest, np.array([0.25] * 4 + [1.0]), 2, 30_000, seed))
    assert len(counts) == 64
    assert pooled_p_value(list(counts.values()), [1 / 64] * 64) > SMALLEST_P


def test_neighbouring_seeds_give_unrelated_samples() -> None:
    forest = forest_from_lists(1, [[(0,)] * 4], [0.0, 0.0])
    probabilities = np.full(4, 0.25)
    runs = [draw(forest, probabilities, 1, 5000, seed) for seed in (0, 1, 2, 2**63, 2**64 - 1)]
    for i, a in enumerate(runs):
        # Seeds must not shift the streams either.
        for b, shift in ((b, shift) for b in runs[:i] for shift in (0, 1)):
            pairs = Counter(zip(a, b[shift:], strict=False))
            assert pooled_p_value(list(pairs.values()), [1 / 16] * 16) > SMALLEST_P


def test_same_seed_same_samples_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = random_forest(3, min_derivations=100, zeros=0.0)
    probabilities = edge_probabilities(forest, enumerated(forest, forest.item_weights))
    root = int(forest.goals[0])
    runs = []
    for threads in (1, 2, 7):
        monkeypatch.setattr(compiled, "NUM_THREADS", threads)
        runs.append(draw(forest, probabilities, root, 3001, 11))
    assert runs[0] == runs[1] == runs[2]
    assert draw(forest, probabilities, root, 1000, 11) == runs[0][:1000]
    assert draw(forest, probabilities, root, 3001, 12) != runs[0]


def test_no_samples_axiom_roots_and_mixed_roots() -> None:
    forest = forest_from_lists(2, [[(0, 1)], [(2, 2), (2,)], [()]], [0.0] * 5)
    tables = alias_tables(forest.edge_offsets, np.array([1.0, 0.0, 1.0, 1.0]))
    for roots, offsets, edges in (
        ([], [0], []),
        ([1, 0], [0, 0, 0], []),
        ([3, 0, 2, 4, 3], [0, 2, 2, 3, 4, 6], [2, 0, 0, 3, 2, 0]),
    ):
        got = sample(forest.arrays, tables, np.array(roots, np.int64), 5)
        assert [a.tolist() for a in got] == [offsets, edges]


def test_chain_of_100_000_levels_and_wide_edges() -> None:
    depth, width = 100_000, 1000
    edges: list[list[tuple[int, ...]]] = [[(0,)]]
    edges += [[(1 + i,), (1 + i, 0)] for i in range(depth - 1)]
    edges += [[(1,) * width], [(1 + depth, 2, 1)]]
    forest = forest_from_lists(1, edges, [0.0] * (depth + 3))
    probabilities = np.concatenate([[1.0], np.full(2 * (depth - 1), 0.5), [1.0, 1.0]])
    (tree,) = draw(forest, probabilities, depth, 1, 0)
    assert len(tree) == depth
    assert tree[-1] == 0
    odd = sum(edge % 2 for edge in tree[:-1])
    assert abs(odd - depth / 2) < 5 * np.sqrt(depth) / 2
    wide = (2 * depth - 1, *[0] * width)
    assert draw(forest, probabilities, depth + 1, 2, 0) == [wide] * 2
    # The same beside items still to be drawn.
    for tree in draw(forest, probabilities, depth + 2, 9, 0):
        assert tree in {(2 * depth, *wide, edge, 0, 0) for edge in (1, 2)}


def test_exponential_trees_are_refused_before_memory_fills() -> None:
    forest = forest_from_lists(1, [[(0,)], *([(1 + i, 1 + i)] for i in range(60))], [0.0] * 62)
    tables = alias_tables(forest.edge_offsets, np.ones(61))
    with pytest.raises(ForestError, match="the 1 samples have more than 268435456 edges"):
        sample(forest.arrays, tables, np.array([61]), 0)
    size = 2**6 - 1
    roots = np.full(1000, 6)
    offsets, _ = sample(forest.arrays, tables, roots, 0, max_edges=1000 * size)
    assert (np.diff(offsets) == size).all()
    with pytest.raises(ForestError, match="the 1000 samples have more than 62999 edges"):
        sample(forest.arrays, tables, roots, 0, max_edges=1000 * size - 1)


def test_wrong_roots_and_seeds_are_refused() -> None:
    forest = forest_from_lists(1, [[(0,)], []], [0.0] * 3)
    tables = alias_tables(forest.edge_offsets, np.ones(1))
    for root in (-1, 3):
        with pytest.raises(ArgumentError, match="roots must be items, 0 to 2"):
            sample(forest.arrays, tables, np.array([root]), 0)
    for seed in (-1, 2**64):
        with pytest.raises(ArgumentError, match="seed must be in 0 to"):
            sample(forest.arrays, tables, np.array([1]), seed)
    with pytest.raises(ForestError, match="no derivation of positive probability, below root 2"):
        sample(forest.arrays, tables, np.array([1, 2]), 0)
