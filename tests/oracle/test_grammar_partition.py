"""Sums over all trees: partition functions, consistency, expectations, renormalisation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from inout import ArgumentError
from inout.grammars import Grammar, diagnose
from inout.grammars import diagnostics as diagnoses
from tests.oracle import grammar_cases as cases
from tests.support import assert_close

INF = math.inf


def partition(text: str) -> list[float]:
    return diagnoses.log_partition_functions(Grammar.from_text(text)).exp().tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("S -> 'a' [0.25] | [0.5]", [0.75]),
        ("S -> S S [0.6] | 'a' [0.4]", [2 / 3]),  # p z² − z + q = 0, the lesser root
        ("S -> S S [0.3] | 'a' [0.7]", [1.0]),
        ("S -> S S [0.25] | 'a' [0.5]", [2 - math.sqrt(2)]),
        ("S -> S S [0.5] | 'a' [0.6]", [INF]),  # no real root
        ("S -> S [0.5] | 'a' [2]", [4.0]),
        ("S -> S [1] | 'a' [0.1]", [INF]),
        ("S -> S [3] | 'a' [0.1]", [INF]),
        ("S -> A [1]\nA -> S [1] | 'a' [0.3]", [INF, INF]),
        ("S -> A [0.5]\nA -> S [1] | 'a' [0.3]", [0.3, 0.6]),
        ("S -> S S [0.5]", [0.0]),
        ("S -> A | 'a' [0.5]\nA -> A 'x'", [0.5, 0.0]),
        ("S -> X [0] | 'a' [0.5]\nX -> X | 'x'", [0.5, INF]),  # infinite, and never used
        ("S -> X\nX -> X | 'x'", [INF, INF]),
        ("S -> X U\nX -> X | 'x'\nU -> U", [0.0, INF, 0.0]),  # infinite times nothing
        ("S -> S S S [0.25] | 'a' [0.75]", [1.0]),
        ("S -> S S S [0.5] | 'a' [0.5]", [(math.sqrt(5) - 1) / 2]),
    ],
)
def test_worked_examples(text: str, expected: list[float]) -> None:
    actual = torch.tensor(partition(text), dtype=torch.float64)
    assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-12)


def test_two_symbols_of_one_component() -> None:
    s, a, b = partition("S -> A B\nA -> B [0.5] | 'a' [0.5]\nB -> B A [0.1] | 'b'")
    # b = 0.05 b (b + 1) + 1, the lesser root
    assert b == pytest.approx((0.95 - math.sqrt(0.95**2 - 0.2)) / 0.1, rel=1e-12)
    assert (a, s) == (pytest.approx(0.5 * b + 0.5), pytest.approx(a * b))


def test_a_critical_grammar_is_summed_to_the_root_of_rounding() -> None:
    assert partition("S -> S S [0.5] | 'a' [0.5]") == [pytest.approx(1.0, abs=1e-7)]


@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_sums_that_no_float_holds(shift: float) -> None:
    # Both rules have one terminal more than a binary tree has nodes: Z is scaled, nothing else.
    grammar = Grammar.from_text("S -> S S [0.25] | 'a' [0.5]\nT -> S S", start="T")
    scaled = grammar.with_log_weights(grammar.log_weights + torch.tensor([-shift, shift, 0.0]))
    expected = math.log(2 - math.sqrt(2)) + shift
    assert_close(
        diagnoses.log_partition_functions(scaled),
        torch.tensor([2 * expected, expected], dtype=torch.float64),
        rtol=1e-12,
    )


def test_far_off_values_within_a_component() -> None:
    text = "%weights log\n%start S\n-5000 S A A\n-1 S a\n4000 A S\n-3000 A b\n"
    log_s, log_a = diagnoses.log_partition_functions(Grammar.from_text(text)).tolist()
    assert log_a == pytest.approx(np.logaddexp(4000 + log_s, -3000), rel=1e-12)
    assert log_s == INF or log_s == pytest.approx(np.logaddexp(-5000 + 2 * log_a, -1), rel=1e-12)


def test_a_long_chain_from_far_below() -> None:
    # The first values are e^40 times too small at the head of the chain; nothing diverges.
    size, back = 80, 1e-30
    rules = [f"1 N{i} N{i + 1}\n{math.exp((i - size) / 2)!r} N{i} w" for i in range(size)]
    rules += [f"1 N{size} w", f"{back} N{size} N0"]
    expected = [1.0]
    for i in reversed(range(size)):
        expected.insert(0, expected[0] + math.exp((i - size) / 2))
    z = diagnoses.log_partition_functions(Grammar.from_text("\n".join(rules))).exp()
    assert_close(z, torch.tensor(expected, dtype=torch.float64), rtol=1e-12)


@pytest.mark.parametrize("weight", [1.0, 1.0000001, 4.7, 1e3, 1e30, 1e300])
@pytest.mark.parametrize("scale", ["1e-300", "1e-5", "1", "1e300"])
def test_unary_cycles_of_weight_one_and_more_diverge(weight: float, scale: str) -> None:
    assert partition(f"S -> S [{weight}] | 'a' [{scale}]") == [INF]
    assert partition(f"S -> A [{weight}] | 'a' [{scale}]\nA -> S | B\nB -> A [1e-9]") == [INF] * 3


@pytest.mark.parametrize("weight", [0.999999, 0.5, 1e-30, 1e-300])
@pytest.mark.parametrize("scale", ["1e-300", "1e-5", "1", "1e300"])
def test_unary_cycles_of_weight_less_than_one_converge(weight: float, scale: str) -> None:
    grammar = Grammar.from_text(f"S -> A [{weight}] | 'a' [{scale}]\nA -> S")
    expected = np.full(2, math.log(float(scale)) - math.log1p(-weight))
    assert_close(diagnoses.log_partition_functions(grammar), expected, rtol=1e-12)


def test_a_large_component_is_solved_by_sparse_matrices() -> None:
    size = 400  # a ring of unary rules: Z_i = 0.9 Z_{i+1} + 0.1
    rules = [f"0.9\tN{i} N{(i + 1) % size}\n0.1\tN{i} w{i}" for i in range(size)]
    z = diagnoses.log_partition_functions(Grammar.from_text("\n".join(rules)))
    assert_close(z, torch.zeros(size, dtype=torch.float64), atol=1e-12)


@given(cases.rows() | cases.rows_with_trees(0.6))
def test_partition_functions_are_sums_over_trees(rows: list[cases.Row]) -> None:
    grammar = cases.build(rows)
    actual = diagnoses.log_partition_functions(grammar)
    rounds = 3000
    sums, half = cases.iterate_sums(grammar, rounds), cases.iterate_sums(grammar, rounds // 2)
    for name, log_z in zip(grammar.nonterminals, actual.tolist(), strict=True):
        partial, before = sums[name][0], half[name][0]
        if log_z == INF:
            # Diverging sums grow at least linearly in the depth once they do.
            assert partial > 1e3 or partial - before > 0.2 * before > 0 or partial > 1.2 * before
        elif partial - before <= 1e-13 * partial:
            assert math.exp(log_z) == pytest.approx(partial, rel=1e-9)
        else:
            assert partial <= math.exp(log_z) * (1 + 1e-9)


@given(cases.rows_with_trees(0.4))
def test_expectations_are_those_of_all_trees(rows: list[cases.Row]) -> None:
    grammar = cases.build(rows)
    sums, half = cases.iterate_sums(grammar, 2000), cases.iterate_sums(grammar, 1000)
    total, length, logs = sums["S"]
    assume(total > 1e-200 and total < 1e6)
    assume(all(abs(a - b) <= 1e-13 * abs(a) for a, b in zip(sums["S"], half["S"], strict=True)))
    found = diagnoses.expected(grammar)
    assert found.length == pytest.approx(length / total, rel=1e-8, abs=1e-12)
    # H = −Σ (w/Z) log (w/Z) = log Z − Σ w log w / Z
    assert found.entropy == pytest.approx(math.log(total) - logs / total, rel=1e-7, abs=1e-9)
    assert found.rules == pytest.approx(found.rule_counts.sum(), rel=1e-12)
    by_left = np.bincount(grammar.rules.lhs, found.rule_counts, len(grammar.nonterminals))
    np.testing.assert_allclose(by_left, found.nonterminal_counts, rtol=1e-8, atol=1e-12)


@given(cases.rows_with_trees(0.6, 4))
def test_normalised_trees_have_their_share_of_the_weight(rows: list[cases.Row]) -> None:
    grammar = cases.build(rows)
    log_z = diagnoses.log_partition_functions(grammar)[0].item()
    assume(math.isfinite(log_z))
    normalised = grammar.normalised()
    before, after = cases.weighted(grammar), cases.weighted(normalised)
    trees = list(cases.enumerate_trees(grammar, "S", 2, before))
    shares = list(cases.enumerate_trees(grammar, "S", 2, after))
    for (weight, tree), (share, same) in zip(trees, shares, strict=True):
        assert tree == same
        assert share == pytest.approx(weight / math.exp(log_z), rel=1e-6, abs=1e-300)
    for name, total in diagnoses.left_side_sums(normalised).items():
        # A critical component is known to 1e-8 only.
        assert total == 0 or total == pytest.approx(1, abs=1e-6), name


@pytest.mark.parametrize("text", ["S -> S S | 'a'", "S -> S 'a'"])
def test_nothing_finite_to_normalise(text: str) -> None:
    with pytest.raises(ArgumentError, match="finite, positive sum"):
        Grammar.from_text(text).normalised()


@pytest.mark.parametrize("p", [0.1, 0.3, 0.49])
def test_binary_branching_by_hand(p: float) -> None:
    # n inner nodes: Catalan(n) p^n q^(n+1); the expected number of S is 1/(1 − 2p).
    q = 1 - p
    found = diagnoses.expected(Grammar.from_text(f"S -> S S [{p}] | 'a' [{q}]"))
    nodes = 1 / (1 - 2 * p)
    entropy = nodes * -(p * math.log(p) + q * math.log(q))
    assert (found.length, found.rules) == (pytest.approx(nodes * q), pytest.approx(nodes))
    assert found.entropy == pytest.approx(entropy)


def test_expectations_of_a_critical_grammar_are_infinite() -> None:
    found = diagnoses.expected(Grammar.from_text("S -> S S [0.5] | 'a' [0.5]"))
    assert (found.length, found.rules, found.entropy) == (INF, INF, INF)


def test_an_inconsistent_grammar_is_conditioned_on_finite_trees() -> None:
    # Dual to p = 0.4: a supercritical branching process that dies out is a subcritical one.
    twin = diagnoses.expected(Grammar.from_text("S -> S S [0.4] | 'a' [0.6]"))
    found = diagnoses.expected(Grammar.from_text("S -> S S [0.6] | 'a' [0.4]"))
    assert found.length == pytest.approx(twin.length)
    assert found.entropy == pytest.approx(twin.entropy)


@pytest.mark.parametrize(
    ("text", "proper", "radius", "leaking", "consistent"),
    [
        ("S -> S S [0.3] | 'a' [0.7]", True, 0.6, (), True),
        ("S -> S S [0.6] | 'a' [0.4]", True, 1.2, (), False),
        ("S -> S S [0.5] | 'a' [0.5]", True, 1.0, (), None),
        ("S -> S S [0.6] | 'a' [0.5]", False, 1.2, (), None),
        ("S -> X [0.5] | 'a' [0.5]", True, 0.0, ("X",), False),
        ("S -> X [0.5] | 'a' [0.5]\nX -> X", True, 1.0, ("X",), False),
        ("S -> 'a'\nX -> X X [3]", True, 0.0, (), True),  # what is unreachable does not count
        ("S -> X [0] | 'a'\nX -> X X [3]", True, 0.0, (), True),  # nor what weighs nothing
    ],
)
def test_consistency(
    text: str, proper: bool, radius: float, leaking: tuple[str, ...], consistent: bool | None
) -> None:
    found = diagnoses.consistency(Grammar.from_text(text))
    assert (found.proper, found.leaking, found.consistent) == (proper, leaking, consistent)
    assert found.spectral_radius == pytest.approx(radius, abs=1e-12)


@given(st.lists(st.floats(0.05, 1.0), min_size=6, max_size=6))
def test_consistency_agrees_with_the_partition_function(weights: list[float]) -> None:
    a, b, c, d, e, f = weights
    text = f"{a / (a + b + c)} S A S\n{b / (a + b + c)} S x\n{c / (a + b + c)} S A A\n"
    text += f"{d / (d + e + f)} A S A\n{e / (d + e + f)} A y\n{f / (d + e + f)} A A"
    grammar = Grammar.from_text(text)
    found = diagnoses.consistency(grammar)
    assume(abs(found.spectral_radius - 1) > 1e-3)
    log_z = diagnoses.log_partition_functions(grammar)[0].item()
    assert found.consistent == (abs(log_z) < 1e-9)


def test_diagnosis_collects_everything() -> None:
    found = diagnose(Grammar.from_text("S -> A 'x' [0.5] | [0.25]\nA -> A | U\nB -> 'b'"))
    assert (found.undefined, found.unreachable) == (("U",), ("B",))
    assert found.unproductive == ("A", "U")
    assert found.improper == {"S": 0.75, "A": 2.0}
    assert found.log_partition == pytest.approx(math.log(0.25))
    assert found.cycles == ()
    assert found.expectations is not None
    assert found.expectations.length == 0
