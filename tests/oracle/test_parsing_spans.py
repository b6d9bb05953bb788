"""The sparse chart with arcs, forbidden symbols, weights of each span, and beams."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.oracle.parsing_cases import (
    Case,
    Entries,
    log_sum,
    random_case,
    trees,
    with_anchors,
    with_arcs,
    with_mask,
)
from tests.oracle.parsing_checks import check
from tests.seeds import seeds
from tests.support import assert_close

SPREADS = [2.0, 100.0, 1e4]


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("spread", SPREADS)
def test_arcs(seed: int, spread: float) -> None:
    check(with_arcs(random_case(seed, spread), seed, spread))


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("whole_spans", [False, True])
def test_forbidden_symbols(seed: int, spread: float, whole_spans: bool) -> None:
    check(with_mask(random_case(seed, spread), seed, whole_spans))


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("kinds", ["b", "u", "bu"])
def test_weights_of_spans(seed: int, spread: float, kinds: str) -> None:
    check(with_anchors(random_case(seed, spread), seed, kinds, spread))


@pytest.mark.parametrize("seed", seeds(40))
@pytest.mark.parametrize("spread", SPREADS)
def test_all_at_once(seed: int, spread: float) -> None:
    case = with_arcs(random_case(seed, spread), seed, spread)
    check(with_anchors(with_mask(case, seed), seed, spread=spread))


@pytest.mark.parametrize("shift", [-1e4, 1e4])
@pytest.mark.parametrize("seed", seeds(10))
def test_arcs_and_weights_of_spans_far_from_one(seed: int, shift: float) -> None:
    case = with_anchors(with_arcs(random_case(seed), seed), seed, "b")
    arcs = {c: [(a, x + shift) for a, x in entries] for c, entries in case.arcs.items()}
    # Each span in a scale of its own, too.
    shifts = np.random.default_rng(seed).normal(size=(len(case.cell), 1)) * 1e3
    check(replace(case, arcs=arcs, binary_logs=case.binary_logs + shifts))


def test_rules_of_a_forbidden_symbol_have_no_posterior() -> None:
    # Symbol 1 would be at the bottom of a unary rule over the whole.
    words: list[Entries] = [[(2, 0.0)], [(2, 0.0)]]
    allowed = np.ones((4, 3), np.bool_)
    allowed[1, 1] = False
    case = Case(3, [(1, 2, 2), (0, 2, 2)], [(0, 1)], [0.5, 0.25], [0.1], [words], {}, allowed)
    check(case)
    assert case.passes().rule_posteriors(0).rules.tolist() == [1]
    far = replace(case, unary_logs=[2000.0], binary_logs=[0.0, -2000.0])
    check(replace(far, allowed=None))
    check(far)


@pytest.mark.parametrize("features", ["", "arcs, mask, anchors", "in logs"])
def test_many_rules(features: str) -> None:
    """Sums of sparse posteriors of a grammar too large for trees are the expected counts."""
    rng = np.random.default_rng(5)
    s, r, n = 6, 60, 12
    binary = [tuple(x) for x in rng.integers(s, size=(r, 3)).tolist()]
    words: list[Entries] = [
        [(int(a), float(rng.normal())) for a in rng.integers(s, size=2)] for _ in range(n)
    ]
    spread = 300.0 if features == "in logs" else 1.0
    logs = (rng.normal(size=r) * spread).tolist()
    case = Case(s, binary, [(0, 1), (2, 3)], logs, [0.1, 0.2], [[], words, words[:3]])
    if "mask" in features:
        case = with_anchors(with_mask(with_arcs(case, 5), 5), 5)
    counts = case.passes().only(1).expected_counts().binary
    rules = case.passes().rule_posteriors(1)
    assert len(rules.rules) > 1024 or features  # more than there is room for at first
    if counts.ndim == 2:
        found = np.zeros((n * n, r))
        np.add.at(found, (rules.starts * n + rules.ends, rules.rules), rules.values)
    else:
        found = np.bincount(rules.rules, rules.values, minlength=r)
    assert_close(found, counts)


def test_a_chain_of_arcs_alone() -> None:
    # No word at all: two arcs meet in the middle, a third spans everything.
    sentences: list[list[Entries]] = [[[], [], [], []]]
    arcs: dict[tuple[int, int, int], Entries] = {
        (0, 0, 1): [(1, 0.5)], (0, 2, 3): [(1, 0.25), (1, -1.0)], (0, 0, 3): [(0, -2.0)],
    }  # fmt: skip
    case = Case(2, [(0, 1, 1)], [], [0.1], [], sentences, arcs)
    check(case)
    assert_close(
        case.passes().log_partition(), np.logaddexp.reduce([[0.85], [-0.4], [-2.0]], axis=0)
    )


def pruned(case: Case, beam: float) -> Case:
    """The case with what the beam drops, span by span, narrow before wide."""
    for width in range(1, max(len(x) for x in case.sentences) + 1):
        for b, words in enumerate(case.sentences):
            for i in range(len(words) - width + 1):
                j = i + width - 1
                logs = [log_sum(trees(case, b, i, j, a)) for a in range(case.num_symbols)]
                low = {
                    (b, i, j, a)
                    for a, x in enumerate(logs)
                    if -math.inf < x < max(logs) + math.log(beam)
                }
                case = replace(case, dropped=case.dropped | low)
    return case


@pytest.mark.parametrize("seed", seeds(16))
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("beam", [0.3, 1e-3, 1e-200])
def test_beam(seed: int, spread: float, beam: float) -> None:
    case = random_case(seed, spread)
    if seed % 2:
        case = with_anchors(with_mask(with_arcs(case, seed, spread), seed), seed, spread=spread)
    check(pruned(case, beam), beam)


def test_beams_that_matter() -> None:
    """Some of the cases above lose trees, others do not."""
    lost = 0
    for seed in range(40):
        case = random_case(seed)
        exact, less = case.passes().log_partition(), case.passes(0.3).log_partition()
        assert (less <= exact + 1e-12).all()
        lost += bool((less < exact - 1e-3).any())
    assert 5 < lost < 38


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("beam", [0.0, 0.05])
def test_a_sentence_alone_is_as_in_the_batch(seed: int, beam: float) -> None:
    case = with_anchors(with_mask(with_arcs(random_case(seed), seed), seed), seed)
    passes = case.passes(beam)
    log_z = passes.log_partition()
    for b in range(len(case.sentences)):
        assert_close(passes.only(b).log_partition(), log_z[b : b + 1])
