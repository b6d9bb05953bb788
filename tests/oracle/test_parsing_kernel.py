"""The sparse chart against all trees written out one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import inout
from inout.kernels.parsing.arrays import RuleArrays, SentenceArrays
from inout.kernels.parsing.op import log_partition
from inout.kernels.parsing.passes import ParsingPasses
from inout.kernels.parsing.reference import reference_log_partition
from tests.support import assert_close

Array = NDArray[Any]
Entries = list[tuple[int, float]]  # what one word may be: symbols and log-weights


class Case(NamedTuple):
    """A grammar with its log-weights, and sentences as lists of words' entries."""

    num_symbols: int
    binary: list[tuple[int, int, int]]
    unary: list[tuple[int, int]]
    binary_logs: list[float]
    unary_logs: list[float]
    sentences: list[list[Entries]]

    def passes(self) -> ParsingPasses:
        starts, offsets, symbols, logs = [0], [0], [], []
        for sentence in self.sentences:
            for entries in sentence:
                symbols += [a for a, _ in entries]
                logs += [x for _, x in entries]
                offsets.append(len(symbols))
            starts.append(len(offsets) - 1)
        rules = RuleArrays.compile(
            self.num_symbols, 0,
            np.array(self.binary, np.int64).reshape(-1, 3),
            np.array(self.unary, np.int64).reshape(-1, 2),
        )  # fmt: skip
        words = SentenceArrays(np.array(starts), np.array(offsets), np.array(symbols, np.int32))
        return ParsingPasses(
            rules, words, np.array(self.binary_logs, float), np.array(self.unary_logs, float),
            np.array(logs, float),
        )  # fmt: skip


class Tree(NamedTuple):
    """A tree's log-weight, what it uses, and which symbols it has over which spans."""

    log_weight: float
    parts: tuple[tuple[str, int], ...]
    above: tuple[tuple[int, int, int], ...]
    below: tuple[tuple[int, int, int], ...]


def trees_below(case: Case, words: list[Entries], first: int, i: int, j: int, a: int) -> list[Tree]:
    """All trees of symbol a over i..j with no unary rule at their top."""
    here, found = ((i, j, a),), []
    if i == j:
        base = first + sum(len(x) for x in words[:i])
        for e, (symbol, log) in enumerate(words[i]):
            if symbol == a:
                found.append(Tree(log, (("word", base + e),), (), here))
        return found
    for r, (head, left, right) in enumerate(case.binary):
        if head != a:
            continue
        for k in range(i, j):
            for x in trees(case, words, first, i, k, left):
                for y in trees(case, words, first, k + 1, j, right):
                    log = case.binary_logs[r] + x.log_weight + y.log_weight
                    parts = (("binary", r), *x.parts, *y.parts)
                    found.append(Tree(log, parts, x.above + y.above, here + x.below + y.below))
    return found


def trees(case: Case, words: list[Entries], first: int, i: int, j: int, a: int) -> list[Tree]:
    """All trees of symbol a over i..j."""
    here = ((i, j, a),)
    found = [x._replace(above=here + x.above) for x in trees_below(case, words, first, i, j, a)]
    for u, (head, child) in enumerate(case.unary):
        if head == a:
            for x in trees_below(case, words, first, i, j, child):
                log = case.unary_logs[u] + x.log_weight
                found.append(Tree(log, (("unary", u), *x.parts), here + x.above, x.below))
    return found


def possible_trees(case: Case) -> Iterator[list[Tree]]:
    """The trees of each sentence that have a weight."""
    first = 0
    for words in case.sentences:
        found = trees(case, words, first, 0, len(words) - 1, 0) if words else []
        yield [x for x in found if x.log_weight > -math.inf]
        first += sum(len(x) for x in words)


def check(case: Case) -> None:
    """log Z, counts, posteriors and best trees are those of the trees written out."""
    passes = case.passes()
    counts = passes.expected_counts()
    best = passes.best()
    expected = {
        "binary": np.zeros(len(case.binary)),
        "unary": np.zeros(len(case.unary)),
        "word": np.zeros(len(passes.words)),
    }
    logs = []
    for b, found in enumerate(possible_trees(case)):
        n = len(case.sentences[b])
        above, below = np.zeros((n, n, case.num_symbols)), np.zeros((n, n, case.num_symbols))
        log_z = float(np.logaddexp.reduce([x.log_weight for x in found])) if found else -math.inf
        logs.append(log_z)
        for x in found:
            share = math.exp(x.log_weight - log_z)
            for kind, number in x.parts:
                expected[kind][number] += share
            for place in x.above:
                above[place] += share
            for place in x.below:
                below[place] += share
        posteriors = passes.posteriors(b)
        assert_close(posteriors.above, above)
        assert_close(posteriors.below, below)
        check_best(best.scores[b], best.nodes[b], found)
    assert_close(passes.log_partition(), np.array(logs))
    assert_close(counts.log_z, np.array(logs))
    assert_close(counts.binary, expected["binary"])
    assert_close(counts.unary, expected["unary"])
    assert_close(counts.words, expected["word"])


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
    same = [x for x in found if x.above == tuple(above) and x.parts == tuple(parts)]
    assert same
    assert_close(same[0].log_weight, top)


def random_case(seed: int, spread: float = 2.0, dead: float = 0.1) -> Case:
    """A random grammar with doubled rules, impossible rules, and sentences of all lengths."""
    rng = np.random.default_rng(seed)
    s = int(rng.integers(2, 4))

    def logs(count: int) -> list[float]:
        values = rng.normal(size=count) * spread
        return [float(x) for x in np.where(rng.random(count) < dead, -np.inf, values)]

    binary = [tuple(x) for x in rng.integers(s, size=(int(rng.integers(3, 7)), 3)).tolist()]
    unary = [tuple(x) for x in rng.integers(s, size=(int(rng.integers(0, 4)), 2)).tolist()]
    sentences = []
    for n in rng.permutation([0, 1, 1, 2, 3, 4]):
        words = []
        for _ in range(n):
            count = int(rng.integers(0, 4)) if rng.random() < 0.1 else int(rng.integers(1, 3))
            symbols = rng.integers(s, size=count).tolist()
            words.append(list(zip(symbols, logs(count), strict=True)))
        sentences.append(words)
    return Case(s, binary, unary, logs(len(binary)), logs(len(unary)), sentences)


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_all_trees(seed: int) -> None:
    check(random_case(seed))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("spread", [100.0, 1e4])
def test_any_range_of_weights(seed: int, spread: float) -> None:
    check(random_case(seed, spread))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_far_from_one(seed: int, shift: float) -> None:
    case = random_case(seed)
    check(
        case._replace(
            binary_logs=[x + shift for x in case.binary_logs],
            unary_logs=[x - shift for x in case.unary_logs],
        )
    )


def test_a_single_tree_among_dead_ends() -> None:
    # The likely symbol 1 is everywhere, but only symbol 2, exp(-2000) as likely, leads to a tree.
    words: list[Entries] = [[(1, 0.0), (2, -2000.0)] for _ in range(5)]
    binary = [(1, 1, 1), (2, 2, 2), (0, 2, 2)]
    case = Case(3, binary, [], [0.0, -1.0, -1e4], [], [words])
    check(case)
    assert_close(case.passes().log_partition(), np.array([-10000.0 - 3 - 1e4 + math.log(14)]))


def test_raised_values_that_do_not_matter_leave_the_scaled_pass() -> None:
    # Symbol 2 is too small for the scale but has no say in log Z.
    words: list[Entries] = [[(1, 0.0), (2, -900.0)] for _ in range(4)]
    check(Case(3, [(0, 1, 1), (0, 0, 1), (0, 2, 1)], [], [0.0, 0.1, 0.2], [], [words]))


def test_only_words_and_unary_rules() -> None:
    check(Case(3, [], [(0, 1), (0, 2), (0, 0)], [], [0.5, -1.0, 0.25], [[[(0, 0.3), (1, 0.1)]]]))
    check(Case(2, [], [], [], [], [[[(0, 0.3)]], [[(1, 0.3)]], [], [[(0, 0.1)], [(0, 0.1)]]]))


def test_no_sentences() -> None:
    passes = Case(2, [(0, 1, 1)], [], [0.0], [], []).passes()
    assert passes.log_partition().shape == (0,)
    assert_close(passes.expected_counts().binary, np.zeros(1))
    assert passes.best().nodes == []


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_gradients(seed: int) -> None:
    case = random_case(seed, dead=0.0)._replace(binary=[(0, 0, 0), (0, 0, 0)], num_symbols=4)
    case = case._replace(binary_logs=[0.3, -0.2])
    factors = np.random.default_rng(seed).normal(size=len(case.sentences))
    counts = case.passes().expected_counts(factors)
    step = 1e-5

    def total(logs: list[float]) -> float:
        log_z = case._replace(binary_logs=logs).passes().log_partition()
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


@pytest.mark.parametrize("seed", range(3))
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
    assert_close(case.passes().best().scores[0], forest.argmax().log_weight)


@pytest.mark.parametrize("seed", range(8))
def test_torch_function_and_reference(seed: int) -> None:
    case = random_case(seed)
    case = case._replace(sentences=[x for x in case.sentences if len(x) < 4])
    passes = case.passes()
    given = np.array(case.binary_logs), passes.unary, passes.words
    leaves = [torch.tensor(x, requires_grad=True) for x in given]
    twins = [torch.tensor(x, requires_grad=True) for x in given]
    log_z = log_partition(passes.rules, passes.sentences, *leaves)
    slow = reference_log_partition(passes.rules, passes.sentences, *twins)
    assert_close(log_z, slow)
    ours, theirs = (
        torch.autograd.grad(torch.where(x > -torch.inf, x, 0.0).sum(), xs, materialize_grads=True)
        for x, xs in ((log_z, leaves), (slow, twins))
    )
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)


def test_second_derivatives() -> None:
    words: list[Entries] = [[(0, 0.1), (1, -0.2)] for _ in range(4)]
    case = Case(2, [(0, 0, 1), (1, 0, 0), (0, 1, 1)], [(0, 1)], [0.1, -0.3, 0.2], [-0.4], [words])
    passes = case.passes()
    leaves = [
        torch.tensor(x, requires_grad=True)
        for x in (np.array(case.binary_logs), passes.unary, passes.words)
    ]

    def function(*values: torch.Tensor) -> torch.Tensor:
        return log_partition(passes.rules, passes.sentences, *values)

    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)
