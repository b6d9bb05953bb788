"""The syntax trees of deduction programs: as written, and desugared into plain rules.

Equality of terms, atoms and conditions ignores their place in the text. Two rules are equal
only at the same place: duplicate rules count twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar, assert_never

from inout._core.errors import ProgramError

ArithmeticOperator: TypeAlias = Literal["+", "-", "*", "//"]
ComparisonOperator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]

ANONYMOUS = "_"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a program's text; lines and columns count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


NOWHERE = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Located:
    """Anything with a place in the text."""

    position: Position = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Variable(Located):
    """A variable. Names with a `$` were made by desugaring and cannot be written by a user."""

    name: str

    def __str__(self) -> str:
        # A fresh name for `_` occurs only once, so `_` says the same.
        return ANONYMOUS if self.name.startswith("_$") else self.name


@dataclass(frozen=True, slots=True)
class Constant(Located):
    """An integer or a string."""

    value: int | str

    def __str__(self) -> str:
        return quote(self.value) if isinstance(self.value, str) else str(self.value)


@dataclass(frozen=True, slots=True)
class Nil:
    """The empty list; use the one instance `NIL`."""

    def __str__(self) -> str:
        return "[]"


NIL = Nil()


@dataclass(frozen=True, slots=True)
class BinaryOperation(Located):
    """Integer arithmetic on two operands; `-x` is `0 - x`, and `//` rounds down."""

    operator: ArithmeticOperator
    left: Operand
    right: Operand

    def __str__(self) -> str:
        return _show(self, level=1, stars=True)


@dataclass(frozen=True, slots=True)
class ListTerm(Located):
    """A list as written, `[a, B]` or `[a, B | Rest]`; `tail` is None for the former."""

    elements: tuple[Term, ...]
    tail: Term | None = None

    def __str__(self) -> str:
        tail = "" if self.tail is None else f"|{self.tail}"
        return f"[{','.join(map(str, self.elements))}{tail}]"


Operand: TypeAlias = Variable | Constant | BinaryOperation
Argument: TypeAlias = Variable | Constant | Nil
Expression: TypeAlias = Variable | Constant | Nil | BinaryOperation
Term: TypeAlias = Variable | Constant | BinaryOperation | ListTerm


T = TypeVar("T")  # what stands in atoms and comparisons: terms as written, or desugared ones


@dataclass(frozen=True, slots=True)
class _Atom(Located, Generic[T]):
    """A relation applied to arguments; `is_filter` marks `?relation(...)`."""

    relation: str
    arguments: tuple[T, ...]
    is_filter: bool = False

    @property
    def arity(self) -> int:
        return len(self.arguments)

    def __str__(self) -> str:
        arguments = f"({', '.join(map(str, self.arguments))})" if self.arguments else ""
        return f"{'?' if self.is_filter else ''}{self.relation}{arguments}"


@dataclass(frozen=True, slots=True)
class _Comparison(Located, Generic[T]):
    """Two sides and the operator between them."""

    operator: ComparisonOperator
    left: T
    right: T

    def __str__(self) -> str:
        return f"{_show_side(self.left)} {self.operator} {_show_side(self.right)}"


class WrittenAtom(_Atom[Term]):
    """A relation applied to terms, as written."""

    __slots__ = ()


class WrittenComparison(_Comparison[Term]):
    """A condition as written."""

    __slots__ = ()


class Atom(_Atom[Argument]):
    """A relation applied to variables and constants; the weight of a filter is not used."""

    __slots__ = ()


class Comparison(_Comparison[Expression]):
    """A test of two expressions whose variables are all bound before it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class WrittenRule(Located):
    """A rule as written; factors keep their order, `text` is the slice of the program."""

    head: WrittenAtom
    factors: tuple[WrittenAtom | WrittenComparison, ...]
    text: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        parts = [f"{self.head} += {self.factors[0]}"]
        for factor in self.factors[1:]:
            parts.append(f" * {factor}" if isinstance(factor, WrittenAtom) else f", {factor}")
        return "".join(parts) + "."


@dataclass(frozen=True, slots=True)
class Total(Located):
    """`1 = rule(X,_,_) + rule(X,_).`: for each X the weights of these facts sum to one."""

    atoms: tuple[WrittenAtom, ...]

    @property
    def conditions(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """For each relation and arity, the places of the named variables, in the same order."""
        names = sorted(v.name for v in named(self.atoms[0]))
        return {
            (atom.relation, atom.arity): tuple(
                [getattr(term, "name", None) for term in atom.arguments].index(name)
                for name in names
            )
            for atom in self.atoms
        }

    def __str__(self) -> str:
        return f"1 = {' + '.join(map(str, self.atoms))}."


def named(atom: WrittenAtom) -> list[Variable]:
    """The arguments that are variables with a name."""
    return [v for v in atom.arguments if isinstance(v, Variable) and v.name != ANONYMOUS]


@dataclass(frozen=True, slots=True)
class Equation(Located):
    """`variable = expression`: binds the variable, or tests it when it is bound already."""

    variable: Variable
    expression: Expression

    def __str__(self) -> str:
        return f"{self.variable} = {_show_side(self.expression)}"


@dataclass(frozen=True, slots=True)
class PairEquation(Located):
    """`variable = [head|tail]`: takes a list apart, puts one together, or tests it."""

    variable: Variable
    head: Argument
    tail: Argument

    def __str__(self) -> str:
        return f"{self.variable} = [{self.head}|{self.tail}]"


Condition: TypeAlias = Comparison | Equation | PairEquation


@dataclass(frozen=True, slots=True)
class Rule:
    """One equation `head += body, conditions`, desugared and checked.

    The conditions stand in an order in which the inputs of each are bound by the atoms of the
    body and the conditions before it. `str(rule)` is the rule as written, in one line; `text` is
    the slice of the program it came from.
    """

    head: Atom
    body: tuple[Atom, ...]
    conditions: tuple[Condition, ...]
    position: Position
    text: str = field(compare=False, repr=False)
    written: WrittenRule = field(compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.written)


@dataclass(frozen=True, slots=True)
class Use:
    """How bodies use one relation: its sorted arities, and the first place of each."""

    arities: tuple[int, ...]
    positions: tuple[Position, ...]

    @property
    def position(self) -> Position:
        """The place of the first use of all."""
        return min(self.positions)


@dataclass(frozen=True, slots=True)
class ParsedProgram:
    """A whole program: its rules in order, its text, its name in messages, sums of facts."""

    rules: tuple[Rule, ...]
    text: str = field(repr=False)
    source: str
    totals: tuple[Total, ...] = ()

    @property
    def derived(self) -> dict[str, int]:
        """The arity of every relation that is the head of a rule, in order of appearance."""
        return {rule.head.relation: rule.head.arity for rule in self.rules}

    @property
    def used(self) -> dict[str, Use]:
        """How bodies use each relation, derived or not, in order of appearance."""
        first: dict[str, dict[int, Position]] = {}
        for rule in self.rules:
            for atom in rule.body:
                first.setdefault(atom.relation, {}).setdefault(atom.arity, atom.position)
        return {
            relation: Use(
                arities=tuple(sorted(positions)),
                positions=tuple(positions[arity] for arity in sorted(positions)),
            )
            for relation, positions in first.items()
        }

    def error(self, message: str, position: Position) -> ProgramError:
        """An error that shows the line at `position` with a caret; for the caller to raise."""
        return ProgramError(message, self.text, position.line, position.column, self.source)

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in (*self.rules, *self.totals))


def occurrences(term: Term | Expression | None) -> Iterator[Variable]:
    """Every occurrence of a variable in a term, from left to right.

    >>> plus = BinaryOperation("+", Variable("I"), Variable("J"))
    >>> [v.name for v in occurrences(BinaryOperation("*", plus, Variable("I")))]
    ['I', 'J', 'I']
    """
    pending: list[Term | Expression | None] = [term]
    while pending:
        current = pending.pop()
        match current:
            case Variable():
                yield current
            case BinaryOperation():
                pending += [current.right, current.left]
            case ListTerm():
                pending += [current.tail, *reversed(current.elements)]
            case Constant() | Nil() | None:
                pass
            case _:
                assert_never(current)


def condition_variables(condition: Condition) -> Iterator[Variable]:
    """Every occurrence of a variable in a condition, from left to right."""
    match condition:
        case Comparison(left=left, right=right):
            yield from occurrences(left)
            yield from occurrences(right)
        case Equation(variable=variable, expression=expression):
            yield variable
            yield from occurrences(expression)
        case PairEquation(variable=variable, head=head, tail=tail):
            yield variable
            yield from occurrences(head)
            yield from occurrences(tail)
        case _:
            assert_never(condition)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quote(value: str) -> str:
    """The string as a constant of the language, in double quotes.

    >>> print(quote('say "hi"'))
    "say \\"hi\\""
    """
    return '"' + "".join(_ESCAPES.get(character, character) for character in value) + '"'


def _show_side(side: object) -> str:
    if isinstance(side, BinaryOperation):
        return _show(side, level=1, stars=False)
    return str(side)


def _show(operand: Operand, level: int, stars: bool) -> str:
    """The operand with the parentheses that its place asks for.

    Level 1 takes sums, 2 products, 3 only what needs no parentheses; without `stars` a `*`
    needs them too, as it would separate factors.
    """
    if not isinstance(operand, BinaryOperation):
        return str(operand)
    left, right = operand.left, operand.right
    # `-3` would be read back as one constant.
    if operand.operator == "-" and left == Constant(0) and not isinstance(right, Constant):
        return f"-{_show(right, 3, stars)}"
    own_level = 1 if operand.operator in ("+", "-") else 2
    if own_level < level or (operand.operator == "*" and not stars):
        return f"({_show(operand, 1, stars=True)})"
    return f"{_show(left, own_level, stars)}{operand.operator}{_show(right, own_level + 1, stars)}"
