"""Spans side by side against all trees written out one by one, and against the chart of one."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from inout.kernels.limits import SPARSE_RAISED
from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
from inout.kernels.sparse.cpu import batched, outside
from inout.kernels.sparse.cpu import passes as kernel
from inout.kernels.sparse.cpu.outside import Counts, Outer
from inout.kernels.sparse.cpu.passes import ParsingPasses
from tests.oracle.parsing_cases import (
    Array,
    Case,
    Entries,
    random_case,
    with_anchors,
    with_arcs,
    with_mask,
)
from tests.oracle.parsing_checks import check
from tests.seeds import seeds
from tests.support import assert_close

SPREADS = [2.0, 100.0, 1e4]


class LanesCase(Case):
    """A case that is done side by side, however small."""

    def passes(self, beam: float = 0.0) -> ParsingPasses:
        passes = super().passes(beam)
        passes.lanes = True
        return passes


def to_lanes(case: Case) -> Case:
    return LanesCase(**{x.name: getattr(case, x.name) for x in fields(Case)})


@pytest.mark.parametrize("seed", seeds(40))
@pytest.mark.parametrize("spread", SPREADS)
def test_agrees_with_all_trees(seed: int, spread: float) -> None:
    check(to_lanes(random_case(seed, spread)))


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("whole_spans", [False, True])
def test_forbidden_symbols(seed: int, spread: float, whole_spans: bool) -> None:
    check(to_lanes(with_mask(random_case(seed, spread), seed, whole_spans)))


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_far_from_one(seed: int, shift: float) -> None:
    case = random_case(seed)
    binary = [x + shift for x in case.binary_logs]
    unary = [x - shift for x in case.unary_logs]
    check(to_lanes(replace(case, binary_logs=binary, unary_logs=unary)))


def test_only_words_and_unary_rules() -> None:
    unary = [(0, 1), (0, 2), (0, 0), (0, 1)]
    words: list[list[Entries]] = [[[(0, 0.3), (1, 0.1), (1, -0.5)]], [], [[(2, 0.2)]]]
    check(to_lanes(Case(3, [], unary, [], [0.5, -1.0, 0.25, 0.1], words)))
    no_rules: list[list[Entries]] = [[[(0, 0.3)]], [[(1, 0.3)]], [], [[(0, 0.1)], [(0, 0.1)]]]
    check(to_lanes(Case(2, [], [], [], [], no_rules)))


def test_no_sentences() -> None:
    passes = to_lanes(Case(2, [(0, 1, 1)], [], [0.0], [], [])).passes()
    assert passes.log_partition().shape == (0,)
    assert_close(passes.expected_counts().binary, np.zeros(1))


# Symbol 2 is exp(small) as likely as symbol 1, which leads nowhere: either it is too small itself,
# or the product of two of them, or that of the rule and the product, or none of these.
@pytest.mark.parametrize(
    ("small", "rule"),
    [(-2000.0, 0.0), (-400.0, 0.0), (-330.0, -330.0), (-320.0, 0.0), (-100.0, -600.0)],
)
def test_a_single_tree_among_dead_ends(small: float, rule: float) -> None:
    words: list[Entries] = [[(1, 0.0), (2, small)] for _ in range(4)]
    binary = [(1, 1, 1), (2, 2, 2), (0, 2, 2), (0, 1, 2)]
    logs = [0.0, -1.0, rule, -math.inf]
    case = to_lanes(Case(3, binary, [], logs, [], [words, words[:2], words[:3]]))
    check(case)
    expected = [4 * small + rule - 2 + math.log(5), 2 * small + rule, 3 * small + rule - 1]
    expected[2] += math.log(2)
    assert_close(case.passes().log_partition(), np.array(expected))


def test_splits_of_very_different_size() -> None:
    # exp(-1500) between the splits of the whole: the lesser one gives symbol 0, by the way of 2.
    words: list[Entries] = [[(1, 0.0)], [(1, 0.0), (3, -700.0)], [(1, 0.0)]]
    binary = [(2, 1, 3), (1, 1, 1), (0, 2, 1)]
    check(to_lanes(Case(4, binary, [], [-600.0, 0.0, 0.0], [], [words])))


def large_case(seed: int, lengths: list[int], s: int, spread: float) -> Case:
    """A grammar with doubled rules, dead ones and unary ones, A -> A too; too large for trees."""
    rng = np.random.default_rng(seed)
    binary = [tuple(x) for x in rng.integers(s, size=(6 * s, 3)).tolist()]
    unary = [(0, 1), (2, 2), (1, 3), (0, 1)]
    logs = rng.normal(size=6 * s) * spread
    logs[rng.random(6 * s) < 0.1] = -np.inf
    sentences: list[list[Entries]] = [
        [
            [(int(a), float(rng.normal() * spread)) for a in rng.integers(s, size=3)]
            for _ in range(n)
        ]
        for n in lengths
    ]
    unary_logs = (rng.normal(size=4) * spread).tolist()
    return Case(s, binary, unary, logs.tolist(), unary_logs, sentences)


def assert_same(found: Counts, expected: Counts) -> None:
    assert_close(found.log_z, expected.log_z)
    for x, y in zip(found[1:], expected[1:], strict=True):
        assert_close(x, y)


SHAPES = [
    [0, 1, 7, 25, 1, 0, 13, 7, 7, 2],  # ragged
    [3] * 300 + [2] * 40 + [1] * 9,  # several blocks of each group
    [18] * 80,  # several strips of each width
    [40],
]


@pytest.mark.parametrize("lengths", SHAPES, ids=["ragged", "blocks", "strips", "long"])
@pytest.mark.parametrize("spread", [1.0, 40.0, 300.0])
@pytest.mark.parametrize("mask", ["", "symbols", "spans"])
def test_agrees_with_one_sentence_at_a_time(lengths: list[int], spread: float, mask: str) -> None:
    case = large_case(len(lengths), lengths, 7, spread)
    if mask:
        case = with_mask(case, 3, mask == "spans")
    factors = np.random.default_rng(1).normal(size=len(lengths))
    factors[::5] = 0.0
    passes = to_lanes(case).passes()
    assert_same(passes.expected_counts(factors), case.passes().expected_counts(factors))
    assert_close(passes.log_partition(), case.passes().log_partition())


def scaled(kernel: Any, passes: ParsingPasses, raised: float) -> tuple[Array, Array]:
    """(log Z, which were too small) by a scaled kernel alone, all sentences in one group."""
    b = len(passes.sentences)
    log_z, low = np.full(b, np.nan), np.ones(b, np.bool_)
    order = np.argsort(passes.sentences.lengths, kind="stable")
    problem, starts = passes.scaled_problem(raised), passes.sentences.starts
    counts = (np.zeros_like(x) for x in (passes.binary, passes.unary, passes.words))
    outer = Outer(*(np.empty((0, 0, 0)),) * 4, np.empty((0, 0)))
    kernel(problem, starts, order, True, np.zeros(b), low, Counts(log_z, *counts), outer)
    return log_z, low


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("spread", [1.0, 30.0, 60.0, 120.0, 250.0])
def test_what_is_too_small_is_so_in_both(seed: int, spread: float) -> None:
    passes = large_case(seed, [1, 2, 2, 3, 3, 5, 5, 8], 5, spread).passes()
    for raised in (0.0, SPARSE_RAISED):
        log_z, low = scaled(batched.sweep, passes, raised)
        expected, expected_low = scaled(outside.sweep, passes, raised)
        assert np.array_equal(low, expected_low)
        assert_close(log_z, expected)


def test_some_of_these_are_too_small_and_others_not() -> None:
    lows = [
        scaled(batched.sweep, large_case(0, [2, 3, 5, 8], 5, spread).passes(), 0.0)[1]
        for spread in (1.0, 60.0, 120.0, 250.0)
    ]
    assert not lows[0].any()
    assert 0 < np.mean(lows) < 1


def test_counts_do_not_depend_on_threads() -> None:
    lengths = np.random.default_rng(0).integers(1, 12, size=200).tolist()
    case = to_lanes(large_case(0, lengths, 8, 1.0))
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


def random_passes(s: int, density: float, per_word: int, lengths: list[int]) -> ParsingPasses:
    """A random grammar with that share of all pairs, two rules each."""
    rng = np.random.default_rng(0)
    pairs = np.repeat(rng.permutation(s * s)[: int(density * s * s)], 2)
    binary = np.stack([rng.integers(s, size=len(pairs)), pairs // s, pairs % s], axis=1)
    rules = RuleArrays.compile(s, 0, binary, np.empty((0, 2), int))
    n = sum(lengths)
    rows = rng.permuted(np.tile(np.arange(s, dtype=np.int32), (n, 1)), axis=1)
    symbols = rows[:, :per_word].ravel()
    starts = np.append(0, np.cumsum(lengths)).astype(np.int64)
    words = SentenceArrays(starts, np.arange(n + 1) * per_word, symbols)
    return ParsingPasses(rules, words, np.zeros(len(binary)), np.empty(0), np.zeros(len(symbols)))


def test_full_charts_are_done_side_by_side() -> None:
    assert random_passes(20, 1.0, 20, [3, 10, 8] * 20).lanes
    assert random_passes(60, 0.05, 60, [10] * 20).lanes
    # Too few symbols meet; too little work; too many symbols.
    assert not random_passes(60, 0.05, 1, [10] * 20).lanes
    assert not random_passes(20, 1.0, 20, [3]).lanes
    assert not random_passes(600, 0.001, 600, [10] * 20).lanes
    assert not random_passes(20, 1.0, 20, [1] * 1000).lanes
    assert not random_passes(20, 1.0, 20, []).lanes


def test_the_share_of_pairs_that_meet() -> None:
    full = random_passes(10, 1.0, 10, [4] * 5)
    assert_close(kernel.meeting_share(full.rules, full.sentences), 1.0, atol=1e-6)
    # Words are 1 or, by a unary rule, 0: of the pairs (0, 0), (0, 1), (2, 0) the last never meets.
    binary = np.array([[2, 0, 0], [2, 0, 1], [2, 2, 0]])
    rules = RuleArrays.compile(3, 0, binary, np.array([[0, 1]]))
    words = SentenceArrays(np.array([0, 2]), np.arange(3), np.ones(2, np.int32))
    assert_close(kernel.meeting_share(rules, words), 2 / 3, atol=1e-6)


def test_forbidden_spans_count_as_empty() -> None:
    sentences = random_passes(4, 1.0, 4, [1, 3, 3]).sentences
    assert kernel.allowed_share(sentences) == 1.0
    allowed = np.ones((19, 1), np.bool_)
    # Spans 0..1 and 0..2 of the second sentence, of six with two words or more.
    allowed[[2, 3]] = False
    masked = replace(sentences, allowed=allowed)
    assert_close(kernel.allowed_share(masked), 4 / 6)
    passes = random_passes(20, 1.0, 20, [10] * 20)
    nothing = replace(passes.sentences, allowed=np.zeros((2000, 1), np.bool_))
    assert not kernel.lanes_pay(passes.rules, nothing)


@pytest.mark.parametrize("kind", ["arcs", "anchors", "beam"])
def test_what_cannot_be_done_side_by_side(kind: str) -> None:
    words: list[Entries] = [[(a, 0.0) for a in range(4)] for _ in range(20)]
    binary = [(a, b, c) for a in range(4) for b in range(4) for c in range(4)]
    case = Case(4, binary, [], [0.0] * 64, [], [words] * 20)
    assert case.passes().lanes
    if kind == "arcs":
        case = with_arcs(case, 0)
    if kind == "anchors":
        case = with_anchors(case, 0, "b")
    assert not case.passes(0.1 if kind == "beam" else 0.0).lanes
