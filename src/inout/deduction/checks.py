"""Static checks of desugared rules, and the order in which their conditions can be evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from inout.deduction.desugar import Desugared, Mistake
from inout.deduction.syntax import (
    ANONYMOUS,
    BinaryOperation,
    Comparison,
    Condition,
    Equation,
    Expression,
    Nil,
    Operand,
    PairEquation,
    Variable,
    WrittenAtom,
    WrittenRule,
    condition_variables,
    occurrences,
)


def order_conditions(rule: WrittenRule, plain: Desugared) -> tuple[Condition, ...]:
    """The rule's conditions in an order that binds the inputs of each before it.

    The atoms of the body bind all their variables. A condition is taken as soon as what it needs
    is bound; an equation with one unknown that is reached through `+` and `-` only is solved for
    it (`K = I+1` becomes `I = K-1` when only K is known). Time: quadratic in the conditions.
    """
    bound = {v.name for atom in plain.body for a in atom.arguments for v in occurrences(a)}
    ordered: list[Condition] = []
    waiting = list(plain.conditions)
    while waiting:
        stuck = []
        for condition in waiting:
            step = ready(condition, bound)
            if step is None:
                stuck.append(condition)
            else:
                ordered.append(step)
                bound.update(variable.name for variable in condition_variables(step))
        if len(stuck) == len(waiting):
            break
        waiting = stuck
    mistake = _unbound(rule.head, waiting, bound)
    if mistake is not None:
        raise mistake
    return tuple(ordered)


def arity_mistakes(rules: Sequence[WrittenRule]) -> Iterator[Mistake]:
    """One mistake per atom that disagrees with the first head of the same relation.

    A relation that is never a head is given as facts and may have several arities.
    """
    definitions: dict[str, WrittenAtom] = {}
    for rule in rules:
        definitions.setdefault(rule.head.relation, rule.head)
    for rule in rules:
        for atom in (rule.head, *rule.factors):
            if not isinstance(atom, WrittenAtom) or atom.relation not in definitions:
                continue
            definition = definitions[atom.relation]
            here, there = len(atom.arguments), len(definition.arguments)
            if here != there:
                yield Mistake(
                    f"{atom.relation} has {_counted(here)} here, but {there or 'none'} where it is "
                    f"defined ({definition.position})",
                    atom.position,
                )


def refuse_anonymous_head(rule: WrittenRule) -> None:
    """Raises a Mistake at the first `_` of the head."""
    for term in rule.head.arguments:
        for variable in occurrences(term):
            if variable.name == ANONYMOUS:
                raise Mistake(
                    "'_' is not allowed in the head: derived items need a value for every argument",
                    variable.position,
                )


def isolate(left: Operand, right: Operand, unknown: str) -> Operand | None:
    """What the unknown equals when `left = right`, or None if `*` or `//` stands in the way.

    The unknown occurs exactly once in the two sides.

    >>> from inout.deduction.syntax import Constant
    >>> one = Constant(1)
    >>> print(isolate(Variable("K"), BinaryOperation("+", Variable("I"), one), "I"))
    K-1
    """
    inside, outside = (left, right) if _contains(left, unknown) else (right, left)
    while isinstance(inside, BinaryOperation):
        a, b, position = inside.left, inside.right, inside.position
        in_left = _contains(a, unknown)
        match inside.operator, in_left:
            case "+", _:
                outside = BinaryOperation("-", outside, b if in_left else a, position=position)
            case "-", True:
                outside = BinaryOperation("+", outside, b, position=position)
            case "-", False:
                outside = BinaryOperation("-", a, outside, position=position)
            case _:
                return None
        inside = a if in_left else b
    return outside


def ready(condition: Condition, bound: set[str]) -> Condition | None:
    """The condition in the form that can be evaluated once `bound` is known, else None."""
    unknown = [v for v in condition_variables(condition) if v.name not in bound]
    if not unknown:
        return condition
    match condition:
        case Comparison(operator="=", left=left, right=right):
            return _solved(left, right, unknown, condition)
        case Comparison():
            return None
        case Equation(variable=variable, expression=expression):
            if all(v.name in bound for v in occurrences(expression)):
                return condition
            return _solved(variable, expression, unknown, condition)
        case PairEquation(variable=variable, head=head, tail=tail):
            parts = [*occurrences(head), *occurrences(tail)]
            known_parts = all(part.name in bound for part in parts)
            return condition if variable.name in bound or known_parts else None
        case _:
            assert_never(condition)


def _solved(
    left: Expression, right: Expression, unknown: list[Variable], condition: Comparison | Equation
) -> Equation | None:
    # Desugaring refuses arithmetic that is compared with a list.
    if len(unknown) > 1 or isinstance(left, Nil) or isinstance(right, Nil):
        return None
    solution = isolate(left, right, unknown[0].name)
    return None if solution is None else Equation(unknown[0], solution, position=condition.position)


def _unbound(head: WrittenAtom, stuck: list[Condition], bound: set[str]) -> Mistake | None:
    """The mistake to report for variables that nothing binds: the head's first, if any."""
    way_out = "or be computed from variables that do (equations are solved through + and - only)"
    for term in head.arguments:
        for variable in occurrences(term):
            if variable.name not in bound:
                return Mistake(
                    f"variable {variable} of the head is not bound by the body; it must occur in "
                    f"a relation there {way_out}",
                    variable.position,
                )
    # A fresh name for a term is unknown only because of the variables in that term.
    culprits = [
        variable
        for condition in stuck
        for variable in condition_variables(condition)
        if variable.name not in bound and not variable.name.startswith("$")
    ]
    if not culprits:
        return None
    first = min(culprits, key=lambda variable: variable.position)
    return Mistake(
        f"variable {first} is not bound; it must occur in a relation of the body {way_out}",
        first.position,
    )


def _contains(operand: Operand, name: str) -> bool:
    return any(variable.name == name for variable in occurrences(operand))


def _counted(arity: int) -> str:
    return "1 argument" if arity == 1 else f"{arity or 'no'} arguments"
