"""Best and k best trees of sparse grammars against all trees written out one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from inout._core.errors import ArgumentError
from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.kbest import kbest
from inout.kernels.sparse.trees import Trees, best_trees
from tests.oracle.parsing_trees import Problem, Tree, as_rows, random_problem
from tests.seeds import seeds
from tests.support import assert_close

KINDS: list[dict[str, Any]] = [
    {},
    {"whole": True},
    {"arcs": True},
    {"masked": True},
    {"anchored": True},
    {"arcs": True, "masked": True, "anchored": True, "whole": True},
    {"spread": 1e4},
    {"spread": 1e4, "arcs": True, "masked": True, "anchored": True},
]
SHAPES = pytest.mark.parametrize("kind", KINDS, ids=lambda x: "-".join(x) or "plain")
SEEDS = pytest.mark.parametrize("seed", seeds(12))


def check_best(problem: Problem) -> None:
    """The best tree is one of the largest weight, and there is none where none is possible."""
    best = best_trees(problem.passes())
    assert len(best.nodes) == len(best.scores) == len(problem.sentences)
    for b, (score, nodes) in enumerate(zip(best.scores, best.nodes, strict=True)):
        found = problem.possible(b)
        if not found:
            assert score == -math.inf
            assert nodes.shape == (0, 5)
            continue
        assert_close(score, found[0].log_weight)
        assert_close({x.nodes: x.log_weight for x in found}[as_rows(nodes)], score)


def check_kbest(found: Trees, k: int, trees: list[Tree]) -> None:
    """The k best: different trees, right weights, in order, none better left out."""
    weights = {x.nodes: x.log_weight for x in trees}
    assert len(weights) == len(trees)
    rows = [as_rows(x) for x in found.nodes]
    assert len(rows) == len(found.scores) == len(set(rows)) == min(k, len(trees))
    assert_close(found.scores, np.array([weights[x] for x in rows]))
    assert_close(found.scores, np.array([x.log_weight for x in trees[:k]]))
    assert (np.diff(found.scores) <= 0).all()


@SHAPES
@SEEDS
def test_best_trees(kind: dict[str, Any], seed: int) -> None:
    check_best(random_problem(seed, **kind))


@SHAPES
@SEEDS
def test_kbest(kind: dict[str, Any], seed: int) -> None:
    problem = random_problem(seed, **kind)
    passes = problem.passes()
    trees = [problem.possible(b) for b in range(len(problem.sentences))]
    best, before = best_trees(passes), [Trees(np.empty(0), []) for _ in trees]
    for k in (1, 2, 7, 40, 10**9):
        results = kbest(passes, k)
        for b, found in enumerate(results):
            check_kbest(found, k, trees[b])
            # In the same order for any k, with the same best tree as `best_trees`.
            assert [as_rows(x) for x in found.nodes[: len(before[b].nodes)]] == [
                as_rows(x) for x in before[b].nodes
            ]
            if found.nodes:
                assert np.array_equal(found.nodes[0], best.nodes[b])
                assert found.scores[0] == best.scores[b]
        before = results
    assert all(not x.nodes for x in kbest(passes, 0))


@SEEDS
def test_kbest_of_longer_sentences(seed: int) -> None:
    # Hundreds or thousands of trees: most candidates are never made.
    rng = np.random.default_rng(seed)
    binary, unary = rng.integers(2, size=(3, 3)), np.array([[0, 1]])
    binary[0], binary[1] = (0, 0, 1), (1, 1, 1)
    symbols = np.array([0, 1, 1, 1, 1, 1], np.int32)
    words = SentenceArrays(np.array([0, 6]), np.arange(7), symbols)
    logs = [rng.normal(size=m) for m in (3, 1, 6)]
    logs = [np.round(x) for x in logs] if seed % 2 else logs
    problem = Problem(binary, unary, 2, words, *logs)
    trees = problem.possible(0)
    assert 50 < len(trees) < 100_000
    for k in (30, 500):
        check_kbest(kbest(problem.passes(), k)[0], k, trees)


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("seed", seeds(10))
def test_shifted_weights(seed: int, anchored: bool) -> None:
    problem = random_problem(seed, arcs=True, anchored=anchored)
    shifted = Problem(
        problem.binary, problem.unary, problem.num_symbols, problem.sentences,
        problem.binary_logs + 1e4, problem.unary_logs - 1e4, problem.word_logs + 1e4,
    )  # fmt: skip
    check_best(shifted)
    for b, found in enumerate(kbest(shifted.passes(), 25)):
        check_kbest(found, 25, shifted.possible(b))


def test_doubled_rules_are_different_trees() -> None:
    words = SentenceArrays(np.array([0, 1]), np.array([0, 1]), np.array([1], np.int32))
    rules = RuleArrays.compile(2, 0, np.empty((0, 3), int), np.array([[0, 1], [0, 1], [0, 1]]))
    passes = ParsingPasses(rules, words, np.empty(0), np.array([-1.0, 2.0, -1.0]), np.zeros(1))
    (found,) = kbest(passes, 5)
    assert found.scores.tolist() == [2, -1, -1]
    assert [as_rows(x) for x in found.nodes] == [((0, 1, 0, u, 0),) for u in (1, 0, 2)]


@pytest.mark.parametrize("seed", seeds(5))
def test_ties_go_to_the_first_rule(seed: int) -> None:
    # More rules of the same weight than trees are wanted, the better ones anywhere among them.
    logs = np.random.default_rng(seed).integers(3, size=40).astype(float)
    words = SentenceArrays(np.array([0, 2]), np.arange(3), np.ones(2, np.int32))
    rules = RuleArrays.compile(2, 0, np.array([[0, 1, 1]] * 40), np.empty((0, 2), int))
    passes = ParsingPasses(rules, words, logs, np.empty(0), np.zeros(2))
    expected = np.lexsort((np.arange(40), -logs))
    for k in range(1, 42):
        assert [int(x[0, 4]) for x in kbest(passes, k)[0].nodes] == expected[:k].tolist()


def test_order_of_equal_trees() -> None:
    """By the top's rule and split, then by the ranks of the left and of the right subtree."""
    doubled = np.array([[0, 0, 0], [0, 0, 0]])
    rules = RuleArrays.compile(1, 0, doubled, np.empty((0, 2), int))
    words = SentenceArrays(np.array([0, 4]), np.arange(5), np.zeros(4, np.int32))
    passes = ParsingPasses(rules, words, np.zeros(2), np.empty(0), np.zeros(4))

    def trees(start: int, end: int) -> list[list[tuple[int, int, int]]]:
        if end == start + 1:
            return [[(start, end, start)]]
        return [
            [(start, end, rule), *left, *right]
            for rule in range(2)
            for split in range(start + 1, end)
            for left in trees(start, split)
            for right in trees(split, end)
        ]

    expected = trees(0, 4)
    for k in (1, 2, 5, 17, 40):
        found = [
            [(i, j, x) for i, j, _, _, x in rows.tolist()] for rows in kbest(passes, k)[0].nodes
        ]
        assert found == expected[:k]


def test_many_equal_trees_come_once_each() -> None:
    # All 42 bracketings of 6 words weigh the same.
    words = SentenceArrays(np.array([0, 6]), np.arange(7), np.zeros(6, np.int32))
    rules = RuleArrays.compile(1, 0, np.array([[0, 0, 0]]), np.empty((0, 2), int))
    passes = ParsingPasses(rules, words, np.zeros(1), np.empty(0), np.zeros(6))
    (found,) = kbest(passes, 100)
    assert len({as_rows(x) for x in found.nodes}) == len(found.nodes) == 42
    assert np.array_equal(kbest(passes, 13)[0].nodes[12], found.nodes[12])


def test_beam() -> None:
    # Only words have symbol 2, which is dropped beside symbol 1.
    words = SentenceArrays(np.array([0, 2]), np.array([0, 2, 4]), np.array([1, 2, 1, 2], np.int32))
    rules = RuleArrays.compile(3, 0, np.array([[0, 1, 1], [0, 2, 2]]), np.empty((0, 2), int))
    logs = np.array([-9.0, 0.0]), np.empty(0), np.array([0.0, -2.0, 0.0, -2.0])
    for beam, score, number in ((0.0, -4.0, 2), (0.5, -9.0, 1)):
        passes = ParsingPasses(rules, words, *logs, beam)
        assert best_trees(passes).scores.tolist() == [score]
        assert len(kbest(passes, 5)[0].nodes) == number


def test_no_sentences_and_no_rules() -> None:
    nothing = RuleArrays.compile(1, 0, np.empty((0, 3), int), np.empty((0, 2), int))
    none = SentenceArrays(np.array([0]), np.array([0]), np.empty(0, np.int32))
    empty = np.empty(0)
    assert kbest(ParsingPasses(nothing, none, empty, empty, empty), 3) == []
    assert best_trees(ParsingPasses(nothing, none, empty, empty, empty)).nodes == []
    words = SentenceArrays(np.array([0, 1, 3]), np.arange(4), np.zeros(3, np.int32))
    one, two = kbest(ParsingPasses(nothing, words, empty, empty, np.ones(3)), 3)
    assert [as_rows(x) for x in one.nodes] == [((0, 1, 0, -1, 0),)]
    assert two.nodes == []


def test_threads() -> None:
    problem = random_problem(9)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        before = kbest(problem.passes(), 20)
        torch.set_num_threads(3)
        after = kbest(problem.passes(), 20)
    finally:
        torch.set_num_threads(threads)
    for x, y in zip(before, after, strict=True):
        assert np.array_equal(x.scores, y.scores)
        assert [as_rows(z) for z in x.nodes] == [as_rows(z) for z in y.nodes]


def test_negative_k_is_refused() -> None:
    with pytest.raises(ArgumentError, match="k must be 0 or more"):
        kbest(random_problem(0).passes(), -1)
