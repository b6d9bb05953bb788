"""One rule evaluated on the relations' present rows: joins, conditions, then head rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import GroundingError
from inout.deduction.engine import all_pairs, match_rows
from inout.deduction.facts import FIRST_STRING, INTEGER_LIMIT, Codes, Vocabulary
from inout.deduction.plan import ConditionStep, JoinStep, Plan
from inout.deduction.relation import View
from inout.deduction.syntax import (
    Argument,
    BinaryOperation,
    Comparison,
    Constant,
    Equation,
    Expression,
    Nil,
    PairEquation,
    Variable,
)

COMPARE = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
COMPUTE = {"+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide}


@dataclass
class Bindings:
    """A table of variable assignments, and which row of each joined atom they came from."""

    size: int
    columns: dict[str, Codes]
    tails: dict[int, NDArray[np.int64]]

    def select(self, rows: NDArray[np.int64] | NDArray[np.bool_], keep: frozenset[str]) -> None:
        """Keep some rows, and of the columns only those still wanted."""
        self.columns = {name: c[rows] for name, c in self.columns.items() if name in keep}
        self.tails = {place: numbers[rows] for place, numbers in self.tails.items()}
        self.size = int(rows.sum()) if rows.dtype == bool else len(rows)


def evaluate_rule(
    plan: Plan, view_of: Callable[[int], View], vocabulary: Vocabulary, limit: int
) -> tuple[Codes, list[NDArray[np.int64]]] | None:
    """(head rows [n, arity], row numbers [n] of every atom that is no filter), None if empty.

    `view_of(place)` gives the rows that the atom at a place of the body ranges over.
    """
    bindings = Bindings(1, {}, {})
    for step in plan.steps:
        if isinstance(step, JoinStep):
            _join(bindings, step, view_of(step.place), vocabulary, limit)
        else:
            _apply(bindings, step, vocabulary)
        if bindings.size == 0:
            return None
    head = np.empty((bindings.size, plan.rule.head.arity), dtype=np.int64)
    for column, argument in enumerate(plan.rule.head.arguments):
        head[:, column] = (
            bindings.columns[argument.name]
            if isinstance(argument, Variable)
            else vocabulary.constant(argument)
        )
    return head, [bindings.tails[place] for place in sorted(bindings.tails)]


def _join(
    bindings: Bindings, step: JoinStep, view: View, vocabulary: Vocabulary, limit: int
) -> None:
    rows, numbers = view.rows, view.numbers
    if step.constants or step.repeats:
        fits = np.ones(len(rows), dtype=bool)
        for column, constant in step.constants:
            assert not isinstance(constant, Variable)
            fits &= rows[:, column] == vocabulary.constant(constant)
        for first, second in step.repeats:
            fits &= rows[:, first] == rows[:, second]
        rows, numbers = rows[fits], numbers[fits]
    if step.keys:
        left, right = match_rows(
            [bindings.columns[name] for name, _ in step.keys],
            [rows[:, column] for _, column in step.keys],
            limit,
        )
        bindings.select(left, step.keep)
    elif bindings.size == 1 and not bindings.columns:
        # The first atom: take its rows as they are.
        right = np.arange(len(rows))
        bindings.tails = {p: np.repeat(t, len(rows)) for p, t in bindings.tails.items()}
        bindings.size = len(rows)
    else:
        left, right = all_pairs(bindings.size, len(rows), limit)
        bindings.select(left, step.keep)
    for name, column in step.binds:
        if name in step.keep:
            bindings.columns[name] = rows[right, column]
    if not step.atom.is_filter:
        bindings.tails[step.place] = numbers[right]


def _apply(bindings: Bindings, step: ConditionStep, vocabulary: Vocabulary) -> None:
    match step.condition:
        case Comparison(operator=operator, left=left, right=right):
            order = operator not in ("=", "!=")
            sides = [_value(e, bindings, vocabulary, order) for e in (left, right)]
            bindings.select(_spread(COMPARE[operator](*sides), bindings), step.keep)
        case Equation(variable=variable, expression=expression):
            value = _spread(_value(expression, bindings, vocabulary), bindings)
            _bind_or_test(bindings, variable, value, step.keep)
        case PairEquation(variable=variable, head=head, tail=tail):
            if variable.name in bindings.columns:
                _take_apart(bindings, variable, (head, tail), vocabulary, step.keep)
            else:
                parts = [_spread(_value(a, bindings, vocabulary), bindings) for a in (head, tail)]
                _bind_or_test(bindings, variable, vocabulary.pairs(*parts), step.keep)
        case _:
            assert_never(step.condition)


def _take_apart(
    bindings: Bindings,
    variable: Variable,
    parts: tuple[Argument, Argument],
    vocabulary: Vocabulary,
    keep: frozenset[str],
) -> None:
    """Bind or test the head and the tail of a list; rows where it is no list fall out."""
    *values, fits = vocabulary.split(bindings.columns[variable.name])
    for part, value in zip(parts, values, strict=True):
        if isinstance(part, Variable) and part.name not in bindings.columns:
            bindings.columns[part.name] = value
        else:
            fits = fits & (value == _value(part, bindings, vocabulary))
    bindings.select(fits, keep)


def _bind_or_test(
    bindings: Bindings, variable: Variable, value: Codes, keep: frozenset[str]
) -> None:
    if variable.name in bindings.columns:
        bindings.select(bindings.columns[variable.name] == value, keep)
        return
    columns = bindings.columns | {variable.name: value}
    bindings.columns = {name: column for name, column in columns.items() if name in keep}


def _spread(value: NDArray[Any] | np.generic, bindings: Bindings) -> NDArray[Any]:
    """`value` with one entry for each row, also where it is a constant."""
    return np.broadcast_to(value, (bindings.size,))


def _value(
    expression: Expression, bindings: Bindings, vocabulary: Vocabulary, number: bool = False
) -> Codes:
    """The codes of an expression, one a row or a single one; `number` refuses other things."""
    match expression:
        case Variable(name=name):
            codes = bindings.columns[name]
        case Constant() | Nil():
            codes = np.array(vocabulary.constant(expression))
        case BinaryOperation(operator=operator, left=left, right=right):
            sides = [_value(side, bindings, vocabulary, number=True) for side in (left, right)]
            if operator == "//" and (sides[1] == 0).any():
                raise GroundingError(f"division by zero in {expression} ({expression.position})")
            # Both sides are below 2**40, so a product may wrap around: try it in floats first.
            if operator == "*":
                _refuse_large(np.multiply(*(s.astype(np.float64) for s in sides)), expression)
            # Of two constants numpy makes a scalar.
            codes = np.asarray(COMPUTE[operator](*sides))
            _refuse_large(codes, expression)
        case _:
            assert_never(expression)
    if number and (codes >= FIRST_STRING).any():
        bad = vocabulary.decode(int(codes[codes >= FIRST_STRING][0]))
        raise GroundingError(f"{expression} must be an integer here, but can be {bad!r}")
    return codes


def _refuse_large(values: NDArray[Any] | np.number[Any], expression: BinaryOperation) -> None:
    if np.any(np.abs(values) >= INTEGER_LIMIT):
        raise GroundingError(
            f"{expression} ({expression.position}) leaves the range of integers, ±2**40; "
            "is a recursive rule missing a bound?"
        )
