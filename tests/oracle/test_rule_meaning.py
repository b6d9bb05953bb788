"""Desugared rules mean what the written ones mean: both are run on a small world of facts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from inout._core.errors import ProgramError
from inout.deduction.desugar import isolate
from inout.deduction.syntax import (
    Argument,
    BinaryOperation,
    Comparison,
    Condition,
    Constant,
    Equation,
    Expression,
    ListTerm,
    Operand,
    PairEquation,
    Rule,
    Term,
    Variable,
    WrittenAtom,
    WrittenComparison,
    WrittenRule,
    occurrences,
)
from tests.oracle.rules import assert_inputs_are_bound, list_terms, operations, rule_of
from tests.seeds import examples

# The checked annotations look at random elements of tuples, also where a strategy builds a rule.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")

I, J, K = map(Variable, "IJK")  # noqa: E741
ONE = Constant(1)

Pair = tuple["Value", "Value"]
Value = int | str | tuple[()] | Pair
LISTS: list[Value] = [(), (1, ()), (2, (1, ())), (0, (2, (1, ()))), ((1, ()), ())]
DOMAIN: list[Value] = [*range(-4, 9), "x", *LISTS]
FACTS: dict[str, list[tuple[Value, ...]]] = {
    "p": [(v,) for v in (0, 1, 2, "x", *LISTS)],
    "q": [(0, 1), (1, 2), (2, 2), (1, "x"), ("x", "x"), (1, (1, ())), ((), 2), ((2, (1, ())), 1)],
}


class NoValue(Exception):
    pass


def computed(operator: str, a: Value, b: Value) -> Value:
    if not (isinstance(a, int) and isinstance(b, int)) or (operator == "//" and b == 0):
        raise NoValue
    return {"+": a + b, "-": a - b, "*": a * b, "//": a // (b or 1)}[operator]


def value_of(term: Term | Argument | Expression, binding: dict[str, Value]) -> Value:
    match term:
        case Variable(name):
            return binding[name]
        case Constant(value):
            return value
        case BinaryOperation(operator, left, right):
            return computed(operator, value_of(left, binding), value_of(right, binding))
        case ListTerm(elements, tail):
            result: Value = () if tail is None else value_of(tail, binding)
            for element in reversed(elements):
                result = (value_of(element, binding), result)
            return result
        case _:
            return ()


def holds(operator: str, a: Value, b: Value) -> bool:
    if operator in ("=", "!="):
        return (a == b) == (operator == "=")
    if not (isinstance(a, int) and isinstance(b, int)):
        return False
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]


Derivation = tuple[tuple[Value, ...], ...]


def written_derivations(rule: WrittenRule) -> set[Derivation]:
    """Head and facts of every assignment of values to variables that makes the rule true."""
    names = sorted({v.name for f in (rule.head, *rule.factors) for v in factor_variables(f)})
    found: set[Derivation] = set()
    for values in itertools.product(DOMAIN, repeat=len(names)):
        binding = dict(zip(names, values, strict=True))
        rows: list[tuple[Value, ...]] = []
        try:
            for factor in rule.factors:
                if isinstance(factor, WrittenAtom):
                    row = tuple(value_of(a, binding) for a in factor.arguments)
                    if row not in FACTS[factor.relation]:
                        break
                    rows.append(row)
                elif not holds(
                    factor.operator, value_of(factor.left, binding), value_of(factor.right, binding)
                ):
                    break
            else:
                head = tuple(value_of(a, binding) for a in rule.head.arguments)
                found.add((head, values, *rows))
        except NoValue:
            continue
    return found


def factor_variables(factor: WrittenAtom | WrittenComparison) -> Iterator[Variable]:
    terms = factor.arguments if isinstance(factor, WrittenAtom) else (factor.left, factor.right)
    for term in terms:
        yield from occurrences(term)


def plain_derivations(rule: Rule) -> set[Derivation]:
    """The same from the desugared rule: join the atoms, then one condition after the other."""
    written = {
        v.name for f in (rule.written.head, *rule.written.factors) for v in factor_variables(f)
    }
    found: set[Derivation] = set()
    for rows in itertools.product(*(FACTS[atom.relation] for atom in rule.body)):
        binding: dict[str, Value] = {}
        atoms = zip(rule.body, rows, strict=True)
        matches = all(
            bind(argument, value, binding)
            for atom, row in atoms
            for argument, value in zip(atom.arguments, row, strict=True)
        )
        if matches and all(satisfied(condition, binding) for condition in rule.conditions):
            values = tuple(binding[name] for name in sorted(written))
            if all(value in DOMAIN for value in values):
                head = tuple(value_of(a, binding) for a in rule.head.arguments)
                found.add((head, values, *rows))
    return found


def bind(argument: Argument, value: Value, binding: dict[str, Value]) -> bool:
    if isinstance(argument, Variable) and argument.name not in binding:
        binding[argument.name] = value
        return True
    return value_of(argument, binding) == value


def satisfied(condition: Condition, binding: dict[str, Value]) -> bool:
    try:
        match condition:
            case Comparison(operator, left, right):
                return holds(operator, value_of(left, binding), value_of(right, binding))
            case Equation(variable, expression):
                return bind(variable, value_of(expression, binding), binding)
            case PairEquation(variable, head, tail):
                if variable.name not in binding:
                    pair = (value_of(head, binding), value_of(tail, binding))
                    return bind(variable, pair, binding)
                whole = binding[variable.name]
                return (
                    isinstance(whole, tuple)
                    and len(whole) == 2
                    and bind(head, whole[0], binding)
                    and bind(tail, whole[1], binding)
                )
    except NoValue:
        return False


SMALL_LEAVES: st.SearchStrategy[Operand] = st.sampled_from([I, J, K, I, J, ONE, Constant(2)])
SMALL_OPERANDS: st.SearchStrategy[Operand] = st.recursive(SMALL_LEAVES, operations, max_leaves=3)
SMALL_TERMS: st.SearchStrategy[Term] = st.one_of(
    SMALL_LEAVES,
    SMALL_OPERANDS,
    st.just(Constant("x")),
    st.just(ListTerm(())),
    st.recursive(SMALL_LEAVES, list_terms, max_leaves=2),
)
SMALL_ATOMS = st.one_of(
    st.builds(WrittenAtom, st.just("p"), st.tuples(SMALL_TERMS)),
    st.builds(WrittenAtom, st.just("q"), st.tuples(SMALL_TERMS, SMALL_TERMS)),
    st.builds(WrittenAtom, st.just("q"), st.tuples(SMALL_LEAVES, SMALL_LEAVES)),
)
SMALL_COMPARISONS = st.builds(
    WrittenComparison, st.sampled_from(["=", "=", "=", "!=", "<", ">="]), SMALL_TERMS, SMALL_TERMS
)
SMALL_RULES = st.builds(
    WrittenRule,
    st.builds(WrittenAtom, st.just("goal"), st.lists(SMALL_TERMS, max_size=2).map(tuple)),
    st.lists(SMALL_ATOMS | SMALL_COMPARISONS, min_size=1, max_size=4).map(tuple),
)


@given(SMALL_RULES)
@settings(max_examples=examples(200))
def test_desugared_rules_mean_the_same(written: WrittenRule) -> None:
    try:
        rule = rule_of(str(written))
    except ProgramError:
        assume(False)
        raise
    assert_inputs_are_bound(rule)
    plain = plain_derivations(rule)
    event("derives something" if plain else "derives nothing")
    assert plain == written_derivations(written)


@pytest.mark.parametrize(
    "text",
    [
        "goal(K) += p(I), K = I+1.",
        "goal(I) += p(K), K = I+1.",
        "goal(I) += p(K), K = 3-(I-1).",
        "goal(I) += p(I+1).",
        "goal(I+1) += q(I, I+1).",
        "goal(I+1, J) += p(I+1), q(I, J).",
        "goal(I) += q(I, J), I+1 = 4-J.",
        "goal(I) += p(I), I = (2*J)-1, p(J).",
        "goal(I+1, J+2) += q(I, J), q(I+1, J+1).",
        "goal([I], [J]) += q(I, J).",
        "goal([I|J]) += p([I|J]).",
        "goal(I, J) += p([I,1|J]).",
        "goal([K,J,I,1]) += p([I,J,K]).",
        "goal([1|J]) += p([I|J]), p(I).",
        "goal(I) += p(J), J = [[I]].",
        "goal(J) += p([]), q(I, J), I != [1].",
        "goal(I) += p(I), I < 2.",
    ],
)
def test_chosen_rules_mean_the_same(text: str) -> None:
    rule = rule_of(text)
    plain = plain_derivations(rule)
    assert plain, "the test would see nothing"
    assert plain == written_derivations(rule.written)


@given(st.recursive(st.sampled_from([I, J, Constant(2)]), operations, max_leaves=5), st.data())
def test_isolate_solves_the_equation(expression: Operand, data: st.DataObject) -> None:
    assume([v.name for v in occurrences(expression)].count("I") == 1)
    solution = isolate(K, expression, "I")
    if solution is None:
        return
    values = st.integers(-5, 5)
    binding: dict[str, Value] = {"I": data.draw(values), "J": data.draw(values)}
    try:
        binding["K"] = value_of(expression, binding)
    except NoValue:
        assume(False)
    assert value_of(solution, binding) == binding["I"]
