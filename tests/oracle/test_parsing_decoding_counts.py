"""Numbers of trees of sparse grammars against enumeration and known sequences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from inout._core.errors import ArgumentError
from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
from inout.kernels.sparse.counts import count_trees, from_remainders, primes
from inout.kernels.sparse.cpu.passes import ParsingPasses
from tests.oracle.parsing_trees import Problem, parts, random_problem
from tests.seeds import seeds


def catalan_passes(lengths: list[int], num_rules: int = 1) -> ParsingPasses:
    """S -> S S so many times over, and every word is an S."""
    n = sum(lengths)
    rules = RuleArrays.compile(1, 0, np.zeros((num_rules, 3), int), np.empty((0, 2), int))
    starts = np.append(0, np.cumsum(lengths)).astype(np.int64)
    words = SentenceArrays(starts, np.arange(n + 1), np.zeros(n, np.int32))
    return ParsingPasses(rules, words, np.zeros(num_rules), np.empty(0), np.zeros(n))


def catalan(n: int) -> int:
    return math.comb(2 * n, n) // (n + 1)


@pytest.mark.parametrize("kind", [{}, {"arcs": True}, {"masked": True, "anchored": True}], ids=str)
@pytest.mark.parametrize("seed", seeds(20))
def test_possible_trees(kind: dict[str, Any], seed: int) -> None:
    problem = random_problem(seed, **kind)
    expected = [len(problem.possible(b)) for b in range(len(problem.sentences))]
    assert count_trees(problem.passes()) == expected


def number_of_ways(problem: Problem, b: int, ways: dict[str, Any]) -> int:
    """The sum over all trees of the product of the numbers of ways of their parts."""
    return sum(
        math.prod(int(ways[kind][number]) for kind, number, *_ in parts(x.nodes))
        for x in problem.trees(b)
    )


@pytest.mark.parametrize("largest", [3, 2**31, 10**30])
@pytest.mark.parametrize("seed", seeds(12))
def test_multiplicities(seed: int, largest: int) -> None:
    problem = random_problem(seed, arcs=seed % 2 == 0, masked=seed % 3 == 0)
    rng = np.random.default_rng(seed)
    sizes = {
        "binary": len(problem.binary),
        "unary": len(problem.unary),
        "word": problem.sentences.num_entries,
    }
    # 0, small, and the primes' neighbourhood, where remainders are 0.
    choices = [0, 1, 2, largest, largest - 1, 2 * largest]
    ways = {x: [choices[y] for y in rng.integers(6, size=m)] for x, m in sizes.items()}
    expected = [number_of_ways(problem, b, ways) for b in range(len(problem.sentences))]
    passes = problem.passes()
    assert count_trees(passes, ways["binary"], ways["unary"], ways["word"]) == expected
    arrays = (np.array(ways[x], object) for x in ("binary", "unary", "word"))
    assert count_trees(passes, *arrays) == expected


def test_multiplicities_by_span() -> None:
    problem = random_problem(1, anchored=True, dead=0.0)
    cells = int(problem.sentences.cell_starts[-1])
    ways = np.random.default_rng(0).integers(3, size=(cells, len(problem.binary)))
    logs = [np.log(x) if x else -math.inf for x in ways.ravel().tolist()]
    expected = Problem(
        problem.binary, problem.unary, problem.num_symbols, problem.sentences,
        np.reshape(logs, ways.shape), np.zeros(len(problem.unary)),
        np.zeros(problem.sentences.num_entries),
    )  # fmt: skip
    found = count_trees(problem.passes(), ways)
    for b, number in enumerate(found):
        assert number == round(sum(math.exp(x.log_weight) for x in expected.possible(b)))


def test_beyond_64_bits() -> None:
    assert count_trees(catalan_passes([60, 0, 1, 2, 35])) == [
        catalan(59), 0, 1, 1, catalan(34)
    ]  # fmt: skip
    assert catalan(59) > 2**64
    assert count_trees(catalan_passes([60], 3)) == [catalan(59) * 3**59]
    assert count_trees(catalan_passes([60]), words=[10**40] * 60) == [catalan(59) * 10**2400]


def test_multiples_of_the_primes() -> None:
    # Every number on the way is 0 modulo the first prime, then modulo the first two.
    for many in (1, 2):
        factor = math.prod(primes(many))
        assert count_trees(catalan_passes([12]), binary=[factor]) == [catalan(11) * factor**11]


def test_weights_do_not_matter() -> None:
    passes = catalan_passes([20])
    heavy = ParsingPasses(
        passes.rules, passes.sentences, np.array([-1e4]), np.empty(0), np.full(20, 1e4), 0.5
    )
    assert count_trees(heavy) == [catalan(19)]


def test_refused() -> None:
    passes = catalan_passes([3])
    with pytest.raises(ArgumentError, match="binary rules must be 0 or more"):
        count_trees(passes, binary=[-1])
    with pytest.raises(ArgumentError, match="entries must be integers"):
        count_trees(passes, words=[0.5] * 3)


def test_primes() -> None:
    found = primes(30)
    for x in found:
        assert 2**30 < x < 2**31
        assert all(x % y for y in range(2, 46341))
    assert sorted(found, reverse=True) == found
    assert len(set(found)) == 30
    number = 3**500
    moduli = primes(26)
    assert from_remainders([number % x for x in moduli], moduli) == number
