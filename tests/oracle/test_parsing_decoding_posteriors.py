"""Samples and max-rule trees of sparse grammars against all trees written out one by one."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from inout._core.errors import ArgumentError
from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.max_rule import max_rule
from inout.kernels.sparse.sample import sample
from tests.oracle.parsing_trees import Problem, Tree, as_rows, parts, random_problem
from tests.seeds import seeds
from tests.support import assert_close

KINDS: list[dict[str, Any]] = [
    {},
    {"whole": True},
    {"arcs": True, "masked": True, "anchored": True},
    {"spread": 1e4, "arcs": True, "masked": True, "anchored": True},
    {"spread": 200.0, "dead": 0.0},
]
SHAPES = pytest.mark.parametrize("kind", KINDS, ids=lambda x: "-".join(x) or "plain")
SEEDS = pytest.mark.parametrize("seed", seeds(12))


def log_sum(values: list[float]) -> float:
    return float(np.logaddexp.reduce(values)) if values else -math.inf


def check_samples(drawn: Counter[Any], trees: list[Tree], count: int) -> None:
    """Only possible trees, as often as they should be: a chi-square test."""
    log_z = log_sum([x.log_weight for x in trees])
    expected = {x.nodes: count * math.exp(x.log_weight - log_z) for x in trees}
    assert drawn.keys() <= expected.keys()
    # Trees too rare to be tested alone are tested together.
    bins = [(drawn[x], e) for x, e in expected.items() if e >= 10]
    rest = count - sum(e for _, e in bins)
    bins.append((count - sum(x for x, _ in bins), rest))
    statistic = sum((x - e) ** 2 / max(e, 1.0) for x, e in bins)
    freedom = max(len(bins) - 1, 1)
    # Wilson & Hilferty's approximation of the chi-square distribution.
    spread = math.sqrt(2 / (9 * freedom))
    assert ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / spread < 4.5


@SHAPES
@SEEDS
def test_samples(kind: dict[str, Any], seed: int) -> None:
    problem, count = random_problem(seed, **kind), 4000
    for b, found in enumerate(sample(problem.passes(), count, seed)):
        trees = problem.possible(b)
        if not trees:
            assert len(found.nodes) == len(found.scores) == 0
            continue
        rows = [as_rows(x) for x in found.nodes]
        check_samples(Counter(rows), trees, count)
        weights = {x.nodes: x.log_weight for x in trees}
        assert_close(found.scores, np.array([weights[x] for x in rows]))


def test_samples_where_the_scale_is_too_small() -> None:
    # As in the tests of the kernel: only symbol 2, exp(-2000) as likely as 1, leads to trees.
    words = SentenceArrays(np.array([0, 5]), np.arange(0, 11, 2), np.array([1, 2] * 5, np.int32))
    logs = np.array([0.0, -1.0, -1e4]), np.empty(0), np.array([0.0, -2000.0] * 5)
    binary = np.array([[1, 1, 1], [2, 2, 2], [0, 2, 2]])
    problem = Problem(binary, np.empty((0, 2), int), 3, words, *logs)
    (found,) = sample(problem.passes(), 5000, 3)
    drawn = Counter(as_rows(x) for x in found.nodes)
    assert len(drawn) == 14
    check_samples(drawn, problem.possible(0), 5000)
    assert_close(max_rule(problem.passes()).scores, np.array([explicit(problem, 0, False)[0]]))


def test_same_seed_same_samples() -> None:
    problem = random_problem(9, arcs=True)
    passes = problem.passes()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = sample(passes, 50, 7)
        torch.set_num_threads(3)
        three = sample(passes, 50, 7)
    finally:
        torch.set_num_threads(threads)
    for x, y, z in zip(one, three, sample(passes, 20, 7), strict=True):
        assert all(np.array_equal(u, v) for u, v in zip(x.nodes, y.nodes, strict=True))
        # The first samples do not depend on how many there are.
        assert all(np.array_equal(u, v) for u, v in zip(x.nodes[:20], z.nodes, strict=True))
    other = sample(passes, 50, 8)
    assert any(
        not np.array_equal(u, v)
        for x, y in zip(one, other, strict=True)
        for u, v in zip(x.nodes, y.nodes, strict=True)
    )


def test_refused_arguments() -> None:
    passes = random_problem(0).passes()
    assert all(not x.nodes for x in sample(passes, 0, 0))
    with pytest.raises(ArgumentError, match="count must be 0 or more"):
        sample(passes, -1, 0)
    for seed in (-1, 2**64):
        with pytest.raises(ArgumentError, match="seed must be"):
            sample(passes, 1, seed)


def explicit(problem: Problem, b: int, total: bool) -> tuple[float, dict[Any, float]]:
    """(best score, scores) of the possible trees by the posteriors of their parts."""
    trees = problem.possible(b)
    log_z = log_sum([x.log_weight for x in trees])
    logs: dict[Any, list[float]] = {}
    for x in trees:
        for part in parts(x.nodes):
            logs.setdefault(part, []).append(x.log_weight - log_z)
    posteriors = {x: log_sum(y) for x, y in logs.items()}
    scores = {
        x.nodes: sum(math.exp(posteriors[y]) if total else posteriors[y] for y in parts(x.nodes))
        for x in trees
    }
    return max(scores.values(), default=-math.inf), scores


@pytest.mark.parametrize("total", [False, True])
@SHAPES
@SEEDS
def test_max_rule(kind: dict[str, Any], seed: int, total: bool) -> None:
    problem = random_problem(seed, **kind)
    best = max_rule(problem.passes(), total=total)
    for b, (score, nodes) in enumerate(zip(best.scores, best.nodes, strict=True)):
        top, scores = explicit(problem, b, total)
        if not scores:
            assert score == -math.inf
            assert nodes.shape == (0, 5)
            continue
        # Posteriors are differences of log-weights of 10^4 and more here.
        assert_close(score, top, rtol=1e-9, atol=1e-9)
        assert_close(scores[as_rows(nodes)], top, rtol=1e-9, atol=1e-9)


def test_max_rule_is_not_viterbi() -> None:
    # The best tree is in a minority: two others share their rule at the top.
    words = SentenceArrays(np.array([0, 2]), np.array([0, 3, 4]), np.array([1, 2, 2, 3], np.int32))
    rules = RuleArrays.compile(4, 0, np.array([[0, 1, 3], [0, 2, 3]]), np.empty((0, 2), int))
    passes = ParsingPasses(
        rules, words, np.zeros(2), np.empty(0), np.log([0.4, 0.3, 0.3, 1.0])
    )  # fmt: skip
    best = max_rule(passes, total=True)
    assert best.nodes[0][:, 4].tolist() == [1, 1, 3]
    assert_close(best.scores, np.array([1.9]))


def test_no_sentences() -> None:
    rules = RuleArrays.compile(1, 0, np.empty((0, 3), int), np.empty((0, 2), int))
    words = SentenceArrays(np.array([0]), np.array([0]), np.empty(0, np.int32))
    passes = ParsingPasses(rules, words, np.empty(0), np.empty(0), np.empty(0))
    assert sample(passes, 3, 0) == []
    assert max_rule(passes).nodes == []
