"""Rules without weights: useless symbols, empty strings, cycles, trimming, components."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from inout import ArgumentError
from inout._core.graphs import strong_components
from inout.grammars import Grammar, Rule, RuleTable, Terminal, UnaryCycle, structure
from inout.grammars import diagnostics as diagnoses
from inout.grammars.partition import spectral_radius
from tests.oracle import grammar_cases as cases
from tests.support import assert_close


@given(cases.rows())
def test_useless_symbols_are_those_of_the_definitions(rows: list[cases.Row]) -> None:
    grammar = cases.build(rows)
    names = set(grammar.nonterminals)
    lefts = {rule.lhs for rule in grammar.rules}
    found = diagnoses.diagnose(grammar)
    assert set(found.undefined) == names - lefts
    assert set(found.unproductive) == names - cases.naive_productive(grammar)
    reached = cases.naive_reachable(grammar, list(grammar.rules))
    assert set(found.unreachable) == names - reached
    empty = {grammar.nonterminals[a] for a in np.flatnonzero(structure.nullable(grammar.rules))}
    assert empty == cases.naive_nullable(grammar)


@given(cases.rows())
def test_trimming_keeps_the_rules_of_trees_and_their_numbers(rows: list[cases.Row]) -> None:
    grammar = cases.build(rows)
    trimmed = grammar.trimmed()
    assert trimmed.original_rules.tolist() == cases.naive_useful(grammar)
    kept = [grammar.rules[n] for n in trimmed.original_rules]
    assert list(trimmed.grammar.rules) == kept
    assert trimmed.grammar.start == grammar.start
    assert torch.equal(trimmed.grammar.log_weights, grammar.log_weights[trimmed.original_rules])
    assert trimmed.grammar.rules == Grammar("S", kept).rules
    ones = torch.ones(len(kept), dtype=torch.float64)
    expected = [float(n in trimmed.original_rules) for n in range(len(grammar))]
    assert trimmed.to_original(ones).tolist() == expected


@given(cases.rows())
def test_cycles_are_the_symbols_that_derive_themselves(rows: list[cases.Row]) -> None:
    grammar = cases.build(rows)
    cycles = diagnoses.unary_cycles(grammar)
    found = [name for cycle in cycles for name in cycle.nonterminals]
    assert sorted(found) == sorted(cases.naive_self_deriving(grammar))
    for cycle in cycles:
        rules = [grammar.rules[n] for n in cycle.rules]
        assert rules[0].lhs == cycle.nonterminals[0]
        for rule, after in zip(rules, [*rules[1:], rules[0]], strict=True):
            assert after.lhs in rule.rhs


def test_a_cycle_names_its_rules() -> None:
    grammar = Grammar.from_text("S -> A 'x'\nA -> B E | 'a'\nB -> C\nC -> A | 'c'\nE -> ")
    assert diagnoses.unary_cycles(grammar) == (UnaryCycle(("A", "B", "C"), (1, 3, 4)),)


def test_a_cycle_that_no_tree_uses_is_no_cycle() -> None:
    assert diagnoses.unary_cycles(Grammar.from_text("S -> 'x'\nA -> A | 'a'")) == ()


@given(st.integers(1, 12), st.data())
def test_components_come_after_those_they_point_to(size: int, data: st.DataObject) -> None:
    node = st.integers(0, size - 1)
    edges = np.array(data.draw(st.lists(st.tuples(node, node), max_size=40)), dtype=np.int64)
    sources, targets = edges.reshape(-1, 2).T
    parts = strong_components(size, sources, targets)
    place = {int(n): i for i, part in enumerate(parts) for n in part}
    assert len(place) == size == sum(map(len, parts))
    assert all(place[int(t)] <= place[int(s)] for s, t in zip(sources, targets, strict=True))
    graph = sparse.csr_array((np.ones(len(sources)), (sources, targets)), shape=(size, size))
    _, labels = sparse.csgraph.connected_components(graph, connection="strong")
    assert {frozenset(p.tolist()) for p in parts} == {
        frozenset(np.flatnonzero(labels == k).tolist()) for k in set(labels.tolist())
    }


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_spectral_radius_is_that_of_all_eigenvalues(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.random((size, size)) * (generator.random((size, size)) < 0.4)
    # Eigenvalues of the whole of a defective matrix are good to 1e-3 or so, not better.
    assert spectral_radius(sparse.csr_array(matrix)) == pytest.approx(
        np.abs(np.linalg.eigvals(matrix)).max(), abs=2e-3
    )
    power = np.linalg.matrix_power(matrix + np.eye(size), 4096 // 8)
    bound = np.linalg.norm(power, 2) ** (8 / 4096) - 1
    assert spectral_radius(sparse.csr_array(matrix)) <= bound + 1e-9


@pytest.mark.parametrize("period", [1, 7])
def test_spectral_radius_of_large_components(period: int) -> None:
    size = 300 - 300 % period
    columns = (np.arange(size) + 1) % size
    matrix = sparse.csr_array((np.full(size, 0.9), (np.arange(size), columns)), shape=(size, size))
    if period == 1:
        matrix = matrix + sparse.diags_array(np.full(size, 0.05))
    assert spectral_radius(matrix) == pytest.approx(0.95 if period == 1 else 0.9, rel=1e-9)


def test_spectral_radius_of_a_reducible_chain_has_no_rounding() -> None:
    size = 50  # one Jordan block, which defeats eigenvalues of the whole matrix
    matrix = sparse.csr_array(np.diag(np.full(size, 0.5)) + np.diag(np.full(size - 1, 9.0), 1))
    assert spectral_radius(matrix) == 0.5


def test_terminals_are_no_nonterminals_of_the_same_name() -> None:
    grammar = Grammar("S", [Rule("S", ("S", Terminal("S"))), Rule("S", (Terminal("S"),))])
    assert grammar.nonterminals == ("S",)
    assert grammar.terminals == ("S",)
    assert grammar.lexical_rules.tolist() == [1]
    assert len({Terminal("S"), "S"}) == 2


def test_the_table_is_a_sequence_of_rules() -> None:
    rules = [Rule("A", ()), Rule("S", ("A", Terminal("x"), "A")), Rule("S", (Terminal("y"),))]
    table = RuleTable.of("S", rules)
    assert list(table) == rules == [table[0], table[1], table[-1]]
    assert table[1:] == tuple(rules[1:])
    assert rules[1] in table
    assert Rule("A", ("A",)) not in table
    assert table.rule_numbers[rules[2]] == 2
    assert table.nonterminals == ("S", "A")
    assert table.terminals == ("x", "y")
    with pytest.raises(IndexError):
        table[3]
    with pytest.raises(ValueError, match="read-only"):
        table.rhs[0] = 1


def test_a_rule_given_twice_is_refused() -> None:
    with pytest.raises(ArgumentError, match="S -> A as rule 0 and as rule 2"):
        Grammar("S", [Rule("S", ("A",)), Rule("A", ()), Rule("S", ("A",))])


def test_gradients_flow_through_the_weights() -> None:
    values = torch.zeros(2, requires_grad=True)  # float32
    grammar = Grammar.from_text("S -> 'a' | 'b'").with_log_weights(values)
    assert grammar.log_weights.dtype == torch.float64
    (grammar.log_weights * torch.tensor([1.0, 3.0])).sum().backward()
    assert_close(values.grad, torch.tensor([1.0, 3.0]))


def test_weights_are_the_grammars_own() -> None:
    values = torch.zeros(1, dtype=torch.float64)
    grammar = Grammar("S", [Rule("S", ())], values)
    values[0] = 5.0
    assert grammar.log_weights.tolist() == [0.0]


@pytest.mark.parametrize("weights", [[0.0], [0.0, float("nan")], [float("inf"), 0.0], "ab"])
def test_bad_weights_are_refused(unchecked: None, weights: object) -> None:
    with pytest.raises(ArgumentError, match="log_weights must"):
        Grammar("S", [Rule("S", ()), Rule("S", ("S",))], weights)  # type: ignore[arg-type]


@pytest.mark.parametrize(("lhs", "rhs"), [(3, ()), ("S", (3,))])
def test_bad_rules_are_refused(unchecked: None, lhs: object, rhs: tuple[object, ...]) -> None:
    with pytest.raises(ArgumentError, match="must be"):
        Grammar("S", [Rule(lhs, rhs)])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="must be Rules"):
        Grammar("S", [(lhs, rhs)])  # type: ignore[list-item]


def test_a_grammar_may_have_no_rules() -> None:
    grammar = Grammar.from_text("S -> S").trimmed().grammar
    assert (len(grammar), grammar.nonterminals) == (0, ("S",))
    assert diagnoses.diagnose(grammar).undefined == ("S",)
    assert diagnoses.log_partition_functions(grammar).tolist() == [-float("inf")]
