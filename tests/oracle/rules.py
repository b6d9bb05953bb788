"""What tests of rules share: reading one, strategies for its terms, and the order of its steps."""

from __future__ import annotations

from hypothesis import strategies as st

from inout.deduction.reading import parse_program
from inout.deduction.syntax import (
    BinaryOperation,
    Comparison,
    Equation,
    ListTerm,
    Operand,
    PairEquation,
    Rule,
    Term,
    condition_variables,
    occurrences,
)


def rule_of(text: str) -> Rule:
    (rule,) = parse_program(text).rules
    return rule


def assert_inputs_are_bound(rule: Rule) -> None:
    bound = {v.name for atom in rule.body for a in atom.arguments for v in occurrences(a)}
    for condition in rule.conditions:
        names = {v.name for v in condition_variables(condition)}
        match condition:
            case Comparison():
                assert names <= bound
            case Equation(expression=expression):
                assert {v.name for v in occurrences(expression)} <= bound
            case PairEquation(variable=variable):
                assert variable.name in bound or names - {variable.name} <= bound
        bound |= names
    for argument in rule.head.arguments:
        assert {v.name for v in occurrences(argument)} <= bound


def operations(operands: st.SearchStrategy[Operand]) -> st.SearchStrategy[Operand]:
    return st.builds(BinaryOperation, st.sampled_from(["+", "-", "*", "//"]), operands, operands)


def list_terms(terms: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    some = st.lists(terms, min_size=1, max_size=3).map(tuple)
    return st.just(ListTerm(())) | st.builds(ListTerm, some, st.none() | terms)
