"""Viterbi and k-best kernels against the enumeration of all derivations."""

from __future__ import annotations

import operator
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from inout._core.errors import ArgumentError, ForestError
from inout.kernels.forest.kbest import kbest, viterbi
from tests.oracle.enumeration import EnumeratedForest
from tests.oracle.random_forests import RandomForest, forest_from_lists, random_forest
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(60)


def small_forest(seed: int, integer_weights: bool) -> RandomForest:
    """Two in three have many derivations of the last item; the others may have none."""
    return random_forest(seed, integer_weights=integer_weights, min_derivations=30 * (seed % 3))


def enumerated(forest: RandomForest) -> EnumeratedForest:
    arrays = (a if isinstance(a, int) else a.tolist() for a in forest.arrays)
    return EnumeratedForest(*arrays, forest.item_weights.tolist(), times=operator.add, one=0.0)


def best_trees(
    forest: RandomForest, root: int, k: int, **options: int
) -> tuple[list[float], list[tuple[int, ...]]]:
    scored = viterbi(forest.arrays, forest.item_weights)
    log_weights, offsets, edges = kbest(scored, root, k, **options)
    assert log_weights.dtype == np.float64
    assert offsets.dtype == edges.dtype == np.int64
    assert offsets[0] == 0
    assert offsets[-1] == len(edges)
    trees = [tuple(edges[i:j].tolist()) for i, j in pairwise(offsets)]
    assert len(trees) == len(log_weights)
    return log_weights.tolist(), trees


@pytest.mark.parametrize("integer_weights", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_viterbi_is_the_maximum_over_derivations(seed: int, integer_weights: bool) -> None:
    forest = small_forest(seed, integer_weights)
    oracle = enumerated(forest)
    scored = viterbi(forest.arrays, forest.item_weights)
    best, pointer = scored.best, scored.pointer
    for item in range(forest.num_items):
        trees = oracle.derivations(item)
        expected = max((tree.weight for tree in trees), default=-np.inf)
        assert_close(best[item], expected)
        if item < forest.num_axioms or expected == -np.inf:
            assert pointer[item] == -1
        elif integer_weights:
            assert pointer[item] == min(t.edges[0] for t in trees if t.weight == expected)
        else:
            chosen = [t.weight for t in trees if t.edges[0] == pointer[item]]
            assert_close(max(chosen), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_kbest_lists_every_derivation_in_the_documented_order(seed: int) -> None:
    # Integer weights: sums are exact, and there are many ties.
    forest = small_forest(seed, integer_weights=True)
    oracle = enumerated(forest)
    for root in range(forest.num_items):
        expected = [tree for tree in oracle.ordered(root) if tree.weight > -np.inf]
        weights, trees = best_trees(forest, root, len(expected) + 3)
        assert trees == [tree.edges for tree in expected]
        assert weights == [tree.weight for tree in expected]


@pytest.mark.parametrize("seed", SEEDS)
def test_kbest_with_real_weights_has_the_right_weights_and_no_duplicates(seed: int) -> None:
    forest = small_forest(seed, integer_weights=False)
    oracle = enumerated(forest)
    for root in range(forest.num_items):
        expected = {t.edges: t.weight for t in oracle.derivations(root) if t.weight > -np.inf}
        weights, trees = best_trees(forest, root, len(expected) + 3)
        assert Counter(trees) == Counter(expected.keys())
        assert all(a >= b for a, b in pairwise(weights))
        assert_close(weights, [expected[t] for t in trees])


@pytest.mark.parametrize("integer_weights", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_k_best_are_a_prefix_of_more(seed: int, integer_weights: bool) -> None:
    forest = random_forest(
        seed, integer_weights=integer_weights, min_derivations=20, max_derivations=300
    )
    for root in forest.goals.tolist():
        all_weights, all_trees = best_trees(forest, root, 301)
        for k in range(0, 301, 1 if seed < 5 else 23):
            weights, trees = best_trees(forest, root, k)
            assert weights == all_weights[:k]
            assert trees == all_trees[:k]


@pytest.mark.parametrize("seed", seeds(20))
def test_wide_edges_and_many_goals(seed: int) -> None:
    forest = random_forest(
        seed, max_arity=9, num_levels=2, num_goals=4, integer_weights=True, max_derivations=5000
    )
    oracle = enumerated(forest)
    for root in forest.goals.tolist():
        expected = [tree.edges for tree in oracle.ordered(root) if tree.weight > -np.inf]
        assert best_trees(forest, root, 5000)[1] == expected


def test_axiom_zero_arity_dead_root_and_k_zero() -> None:
    forest = forest_from_lists(
        2, [[()], [], [(1,), (3,)], [(2, 2), ()]], [-1.5, -np.inf, 0.25, 0.0, 0.0, 0.0]
    )
    assert best_trees(forest, 0, 3) == ([-1.5], [()])
    assert best_trees(forest, 0, 0) == ([], [])
    assert best_trees(forest, 1, 3) == ([], [])
    assert best_trees(forest, 2, 3) == ([0.25], [(0,)])
    assert best_trees(forest, 3, 3) == ([], [])
    assert best_trees(forest, 4, 3) == ([], [])
    assert best_trees(forest, 5, 3) == ([0.5, 0.0], [(3, 0, 0), (4,)])
    assert best_trees(forest, 5, 1) == ([0.5], [(3, 0, 0)])
    assert best_trees(forest, 5, 0) == ([], [])


def test_dead_item_weight_kills_the_item() -> None:
    forest = forest_from_lists(1, [[(0,)], [(1,), (0,)]], [0.0, -np.inf, 0.0])
    scored = viterbi(forest.arrays, forest.item_weights)
    best, pointer = scored.best, scored.pointer
    assert best.tolist() == [0.0, -np.inf, 0.0]
    assert pointer.tolist() == [-1, -1, 2]
    assert best_trees(forest, 2, 9) == ([0.0], [(2,)])


def test_one_item_with_very_many_edges() -> None:
    n = 200_000
    weights = np.random.default_rng(3).permutation(n).astype(np.float64)
    forest = forest_from_lists(n, [[(i,) for i in range(n)], [(n, n)]], [*weights, 0.0, 0.0])
    values, trees = best_trees(forest, n + 1, 6)
    order = np.argsort(-weights).tolist()
    a, b, c = order[:3]
    top = 2.0 * (n - 1)
    assert values == [top, top - 1, top - 1, top - 2, top - 2, top - 2]
    # Equal weights: the ranks of the children, left to right, decide.
    pairs = [(a, a), (a, b), (b, a), (a, c), (b, b), (c, a)]
    assert trees == [(n, *pair) for pair in pairs]


def test_wide_edge_beside_items_still_to_be_written() -> None:
    # Item 2 has two edges, item 3 has 300 of item 2 below one edge, item 4 is 2 3 2 3 2.
    forest = forest_from_lists(
        2, [[(0,), (1,)], [(2,) * 300], [(2, 3, 2, 3, 2)]], [0.0, -1.0, 0.0, 0.0, 0.0]
    )
    leaves = 603
    _, trees = best_trees(forest, 4, leaves + 1)
    shape = [3, None, 2, *[None] * 300, None, 2, *[None] * 300, None]
    for tree in trees:
        assert [e if e > 1 else None for e in tree] == shape
    # The best has no item of weight -1, the others one each, from the right to the left.
    ones = [[i for i, e in enumerate(tree) if e == 1] for tree in trees]
    places = [i for i, e in enumerate(shape) if e is None]
    assert ones == [[], *([i] for i in reversed(places))]


def test_chain_of_100_000_levels() -> None:
    depth = 100_000
    edges: list[list[tuple[int, ...]]] = [[(0,), (1,)]]
    edges += [[(2 + i, 0), (2 + i, 1)] for i in range(depth - 1)]
    forest = forest_from_lists(2, edges, [0.0, -1.0] + [0.0] * depth)
    root = 1 + depth
    weights, trees = best_trees(forest, root, 4)
    assert weights == [0.0, -1.0, -1.0, -1.0]
    first = tuple(range(2 * (depth - 1), -1, -2))
    assert trees[0] == first
    # Every tree of weight -1 has one odd edge; edges before children: the lowest odd edges first.
    assert [[e for e in tree if e % 2] for tree in trees] == [[], [1], [3], [5]]
    assert all(len(tree) == depth for tree in trees)


def test_exponential_trees_are_refused_before_memory_fills() -> None:
    edges: list[list[tuple[int, ...]]] = [[(0,), (1,)]]
    # 2^60 edges, and numbers of them that do not fit in 64 bits.
    depths = (60, 62, 63, 64, 130)
    edges += [[(2 + i, 2 + i)] for i in range(max(depths))]
    forest = forest_from_lists(2, edges, [0.0, -1.0] + [0.0] * (max(depths) + 1))
    for depth in depths:
        for k in (1, 2, 1000):
            with pytest.raises(ForestError, match="more than 268435456 edges"):
                best_trees(forest, 2 + depth, k)
    # Ten levels: a full binary tree of 2^11 - 1 edges.
    root = 2 + 10
    size = 2**11 - 1
    assert [len(t) for t in best_trees(forest, root, 3, max_edges=3 * size)[1]] == [size] * 3
    with pytest.raises(ForestError, match="the 3 best derivations of item 12 have more than 6140"):
        best_trees(forest, root, 3, max_edges=3 * size - 1)


def test_search_for_too_many_partial_derivations_is_refused() -> None:
    # Every level has to list as many derivations as the root, whatever the size of the output.
    depth, k = 1000, 2000
    edges: list[list[tuple[int, ...]]] = [[(i,) for i in range(k)]]
    edges += [[(k + i,)] for i in range(depth - 1)]
    weights = -np.arange(k, dtype=np.float64)
    forest = forest_from_lists(k, edges, [*weights, *[0.0] * depth])
    root = forest.num_items - 1
    with pytest.raises(ForestError, match="needs more than 1048576 partial derivations"):
        best_trees(forest, root, k, max_edges=10_000)
    assert best_trees(forest, root, k, max_edges=k * depth + 1024)[0] == weights.tolist()


def test_wrong_root_and_negative_k_are_refused() -> None:
    forest = forest_from_lists(1, [[(0,)]], [0.0, 0.0])
    for root in (-1, 2):
        with pytest.raises(ArgumentError, match="root must be an item, 0 to 1"):
            best_trees(forest, root, 1)
    with pytest.raises(ArgumentError, match=r"k must be 0 or more\. Got -1"):
        best_trees(forest, 1, -1)
