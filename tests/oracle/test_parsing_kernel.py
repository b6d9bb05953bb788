"""The sparse chart against all trees written out one by one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import inout
from inout.kernels.sparse.trees import best_trees
from tests.oracle.parsing_cases import Case, Entries, Tree, possible_trees, random_case
from tests.oracle.parsing_checks import check
from tests.seeds import seeds
from tests.support import assert_close

Array = NDArray[Any]


def check_all(case: Case) -> None:
    """As `check`, and the best trees."""
    check(case)
    best = best_trees(case.passes())
    for b, found in enumerate(possible_trees(case)):
        check_best(best.scores[b], best.nodes[b], found)


def check_best(score: float, nodes: Array, found: list[Tree]) -> None:
    """The best tree is one of those of the largest weight."""
    if not found:
        assert score == -math.inf
        assert len(nodes) == 0
        return
    top = max(x.log_weight for x in found)
    assert_close(score, top)
    parts, above = [], []
    for start, end, symbol, unary, rule in nodes.tolist():
        above.append((start, end - 1, symbol))
        parts += [("unary", unary)] if unary >= 0 else []
        parts.append(("word" if end == start + 1 else "binary", rule))
    same = [
        x for x in found if [x[:3] for x in x.nodes] == above and [x[:2] for x in x.parts] == parts
    ]
    assert same
    assert_close(same[0].log_weight, top)


@pytest.mark.parametrize("seed", seeds(60))
def test_agrees_with_all_trees(seed: int) -> None:
    check_all(random_case(seed))


@pytest.mark.parametrize("seed", seeds(60))
@pytest.mark.parametrize("spread", [100.0, 1e4])
def test_any_range_of_weights(seed: int, spread: float) -> None:
    check_all(random_case(seed, spread))


@pytest.mark.parametrize("seed", seeds(20))
@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_far_from_one(seed: int, shift: float) -> None:
    case = random_case(seed)
    check_all(
        replace(
            case,
            binary_logs=[x + shift for x in case.binary_logs],
            unary_logs=[x - shift for x in case.unary_logs],
        )
    )


def test_a_single_tree_among_dead_ends() -> None:
    # The likely symbol 1 is everywhere, but only symbol 2, exp(-2000) as likely, leads to a tree.
    words: list[Entries] = [[(1, 0.0), (2, -2000.0)] for _ in range(5)]
    binary = [(1, 1, 1), (2, 2, 2), (0, 2, 2)]
    case = Case(3, binary, [], [0.0, -1.0, -1e4], [], [words])
    check_all(case)
    assert_close(case.passes().log_partition(), np.array([-10000.0 - 3 - 1e4 + math.log(14)]))


def test_raised_values_that_do_not_matter_leave_the_scaled_pass() -> None:
    # Symbol 2 is too small for the scale but has no say in log Z.
    words: list[Entries] = [[(1, 0.0), (2, -900.0)] for _ in range(4)]
    check_all(Case(3, [(0, 1, 1), (0, 0, 1), (0, 2, 1)], [], [0.0, 0.1, 0.2], [], [words]))


def test_only_words_and_unary_rules() -> None:
    check_all(
        Case(3, [], [(0, 1), (0, 2), (0, 0)], [], [0.5, -1.0, 0.25], [[[(0, 0.3), (1, 0.1)]]])
    )
    check_all(Case(2, [], [], [], [], [[[(0, 0.3)]], [[(1, 0.3)]], [], [[(0, 0.1)], [(0, 0.1)]]]))


def test_no_sentences() -> None:
    passes = Case(2, [(0, 1, 1)], [], [0.0], [], []).passes()
    assert passes.log_partition().shape == (0,)
    assert_close(passes.expected_counts().binary, np.zeros(1))
    assert best_trees(passes).nodes == []


@pytest.mark.parametrize("seed", seeds(5))
def test_counts_are_gradients(seed: int) -> None:
    case = replace(random_case(seed, dead=0.0), binary=[(0, 0, 0), (0, 0, 0)], num_symbols=4)
    case = replace(case, binary_logs=[0.3, -0.2])
    factors = np.random.default_rng(seed).normal(size=len(case.sentences))
    counts = case.passes().expected_counts(factors)
    step = 1e-5

    def total(logs: list[float]) -> float:
        log_z = replace(case, binary_logs=logs).passes().log_partition()
        return float((factors * np.where(log_z > -np.inf, log_z, 0.0)).sum())

    for r in range(2):
        up, down = list(case.binary_logs), list(case.binary_logs)
        up[r] += step
        down[r] -= step
        slope = (total(up) - total(down)) / (2 * step)
        assert_close(counts.binary[r], slope, rtol=1e-7, atol=1e-7)


def test_counts_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(0)
    binary = [tuple(x) for x in rng.integers(8, size=(60, 3)).tolist()]
    sentences: list[list[Entries]] = [
        [[(int(a), float(rng.normal())) for a in rng.integers(8, size=2)] for _ in range(n)]
        for n in rng.integers(1, 20, size=30)
    ]
    case = Case(8, binary, [(0, 1), (2, 3)], rng.normal(size=60).tolist(), [0.1, 0.2], sentences)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(case.passes().expected_counts())
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            assert np.array_equal(x, y)


PROGRAM = """
beta(A, I, J) += word(A, I, J).
beta(A, I, J) += rule(A, B, C) * top(B, I, K) * top(C, K, J).
top(A, I, J) += beta(A, I, J).
top(A, I, J) += unary(A, B) * beta(B, I, J).
goal += top(0, 0, N) * length(N).
"""


@pytest.mark.parametrize("seed", seeds(3))
def test_agrees_with_a_forest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s, n = 6, 12
    triples = rng.permutation(s**3)[:40]
    binary = [(int(x) // s**2, int(x) // s % s, int(x) % s) for x in triples]
    unary = [(0, 1), (0, 2), (3, 4), (4, 3), (5, 5)]
    words: list[Entries] = [
        [(int(a), float(rng.normal())) for a in rng.permutation(s)[:2]] for _ in range(n)
    ]
    case = Case(
        s, binary, unary, rng.normal(size=40).tolist(), rng.normal(size=5).tolist(), [words]
    )
    counts = case.passes().expected_counts()
    rows = [(a, i, i + 1) for i, entries in enumerate(words) for a, _ in entries]
    logs = [x for entries in words for _, x in entries]
    forest = inout.Program(PROGRAM).ground(
        {
            "rule": dict(zip(binary, case.binary_logs, strict=True)),
            "unary": dict(zip(unary, case.unary_logs, strict=True)),
            "word": dict(zip(rows, logs, strict=True)),
            "length": {(n,): 0.0},
        }
    )
    assert_close(counts.log_z[0], forest.log_partition())
    assert_close(counts.binary, forest.expected_counts("rule"))
    assert_close(counts.unary, forest.expected_counts("unary"))
    assert_close(counts.words, forest.expected_counts("word"))
    assert_close(best_trees(case.passes()).scores[0], forest.argmax().log_weight)
