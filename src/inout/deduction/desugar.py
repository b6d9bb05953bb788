"""Desugaring: terms become fresh variables and conditions. Checks of the plain rules."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, floordiv, mul, sub
from typing import assert_never

from inout.deduction.syntax import (
    ANONYMOUS,
    NIL,
    Argument,
    ArithmeticOperator,
    Atom,
    BinaryOperation,
    Comparison,
    Condition,
    Constant,
    Equation,
    Expression,
    ListTerm,
    Nil,
    Operand,
    PairEquation,
    Position,
    Term,
    Total,
    Use,
    Variable,
    WrittenAtom,
    WrittenComparison,
    WrittenRule,
    condition_variables,
    named,
    occurrences,
)

_COMPUTE = {"+": add, "-": sub, "*": mul, "//": floordiv}
# Terms are walked by recursion; real programs nest two or three deep.
NESTING_LIMIT = 100


class Mistake(Exception):
    """Something wrong at one place; it becomes a ProgramError where the text is known."""

    def __init__(self, message: str, position: Position) -> None:
        super().__init__(message)
        self.message, self.position = message, position


@dataclass(frozen=True)
class Desugared:
    """A rule of plain atoms and conditions, the latter not yet in an order of evaluation."""

    head: Atom
    body: tuple[Atom, ...]
    conditions: tuple[Condition, ...]


def desugar(rule: WrittenRule) -> Desugared:
    """The rule with plain arguments only; raises a Mistake where a term makes no sense.

    Equal terms of a rule share one fresh variable: in `g(I+1) += g(I) * word(W, I, I+1)` the
    head and the body then meet in the same `$1`, which is one join key more for the grounder.
    """
    _refuse_deep_nesting(rule)
    fresh = _Fresh()
    head = fresh.atom(rule.head)
    body = tuple(fresh.atom(f) for f in rule.factors if isinstance(f, WrittenAtom))
    for factor in rule.factors:
        if isinstance(factor, WrittenComparison):
            fresh.comparison(factor)
    return Desugared(head, body, tuple(fresh.conditions))


@dataclass
class _Fresh:
    """The fresh variables of one rule and the conditions that define them."""

    conditions: list[Condition] = field(default_factory=list)
    names: dict[Hashable, Variable] = field(default_factory=dict)
    count: int = 0

    def variable(self, prefix: str, position: Position) -> Variable:
        self.count += 1
        return Variable(f"{prefix}{self.count}", position=position)

    def atom(self, atom: WrittenAtom) -> Atom:
        arguments = tuple(self.argument(term) for term in atom.arguments)
        return Atom(atom.relation, arguments, position=atom.position, is_filter=atom.is_filter)

    def argument(self, term: Term) -> Argument:
        """The term as a plain argument; conditions that define a fresh variable are added."""
        if isinstance(term, ListTerm):
            if not term.elements:
                return NIL
            return self.cons(*self.pair(term), term.position)
        operand = self.operand(term)
        if isinstance(operand, BinaryOperation):
            if operand not in self.names:
                variable = self.names[operand] = self.variable("$", operand.position)
                self.conditions.append(Equation(variable, operand, position=operand.position))
            return self.names[operand]
        return operand

    def cons(self, head: Argument, tail: Argument, position: Position) -> Variable:
        """The variable of the list [head|tail]."""
        if (head, tail) not in self.names:
            variable = self.names[head, tail] = self.variable("$", position)
            self.conditions.append(PairEquation(variable, head, tail, position=position))
        return self.names[head, tail]

    def pair(self, term: ListTerm) -> tuple[Argument, Argument]:
        """The first element and the rest of a list that is not empty."""
        elements = [self.argument(element) for element in term.elements]
        tail: Argument = NIL if term.tail is None else self.argument(term.tail)
        for element in reversed(elements[1:]):
            tail = self.cons(element, tail, term.position)
        return elements[0], tail

    def operand(self, term: Operand) -> Operand:
        """The arithmetic of a term, with constant parts computed and a name for every `_`."""
        match term:
            case Variable():
                return self.variable("_$", term.position) if term.name == ANONYMOUS else term
            case Constant():
                return _fitting(term)
            case BinaryOperation():
                left, right = self.operand(term.left), self.operand(term.right)
                for side in (left, right):
                    if isinstance(side, Constant) and isinstance(side.value, str):
                        message = f"arithmetic needs integers, but {side} is a string"
                        raise Mistake(message, side.position)
                if term.operator == "//" and right == Constant(0):
                    raise Mistake("division by zero", right.position)
                return _operation(term.operator, left, right, term.position)
            case _:
                assert_never(term)

    def comparison(self, written: WrittenComparison) -> None:
        _refuse_kinds(written)
        operator, left, right = written.operator, written.left, written.right
        if operator == "=":
            if isinstance(left, ListTerm):
                left, right = right, left
            if isinstance(right, ListTerm) and right.elements:
                whole = self.argument(left)
                if not isinstance(whole, Variable):
                    raise Mistake(f"{left} is never equal to the list {right}", written.position)
                head, tail = self.pair(right)
                self.conditions.append(PairEquation(whole, head, tail, position=written.position))
                return
        sides = (self.side(left), self.side(right))
        if operator == "=":
            for variable, expression in (sides, sides[::-1]):
                if isinstance(variable, Variable):
                    self.conditions.append(
                        Equation(variable, expression, position=written.position)
                    )
                    return
        self.conditions.append(Comparison(operator, *sides, position=written.position))

    def side(self, term: Term) -> Operand | Nil:
        return self.argument(term) if isinstance(term, ListTerm) else self.operand(term)


def _operation(
    operator: ArithmeticOperator, left: Operand, right: Operand, position: Position
) -> Operand:
    if not (isinstance(left, Constant) and isinstance(right, Constant)):
        return BinaryOperation(operator, left, right, position=position)
    value = _COMPUTE[operator](int(left.value), int(right.value))
    return _fitting(Constant(value, position=position))


def _fitting(constant: Constant) -> Constant:
    value = constant.value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Mistake("the integer does not fit in 64 bits", constant.position)
    return constant


def _refuse_kinds(written: WrittenComparison) -> None:
    """Raises a Mistake where a string or a list stands against something that is an integer."""
    sides = (written.left, written.right)
    if written.operator not in ("=", "!="):
        reason = f"'{written.operator}' compares integers"
    elif any(isinstance(side, BinaryOperation) for side in sides):
        reason = "arithmetic gives an integer"
    else:
        return
    for side in sides:
        if isinstance(side, ListTerm):
            raise Mistake(f"{reason}, but {side} is a list", side.position)
        if isinstance(side, Constant) and isinstance(side.value, str):
            raise Mistake(f"{reason}, but {side} is a string", side.position)


def _refuse_deep_nesting(rule: WrittenRule) -> None:
    for factor in (rule.head, *rule.factors):
        terms = factor.arguments if isinstance(factor, WrittenAtom) else (factor.left, factor.right)
        for term in terms:
            level: list[Term] = [term]
            for _ in range(NESTING_LIMIT):
                level = [part for whole in level for part in _parts(whole)]
            if level:
                raise Mistake(f"the term is nested more than {NESTING_LIMIT} deep", term.position)


def _parts(term: Term) -> tuple[Term, ...]:
    match term:
        case BinaryOperation():
            return (term.left, term.right)
        case ListTerm():
            return term.elements if term.tail is None else (*term.elements, term.tail)
        case _:
            return ()


def order_conditions(rule: WrittenRule, plain: Desugared) -> tuple[Condition, ...]:
    """The rule's conditions in an order that binds the inputs of each before it.

    The atoms of the body bind all their variables. A condition is taken as soon as what it needs
    is bound; an equation with one unknown that is reached through `+` and `-` only is solved for
    it (`K = I+1` becomes `I = K-1` when only K is known). Time: quadratic in the conditions.
    """
    bound = {v.name for atom in plain.body for a in atom.arguments for v in occurrences(a)}
    waiting = list(plain.conditions)
    ordered = take_ready(waiting, bound)
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


def check_totals(used: Mapping[str, Use], totals: Iterable[Total]) -> None:
    """Raises a Mistake where a sum is not one of facts that the rules use, each at most once."""
    known: set[tuple[str, int]] = set()
    for total in totals:
        first = {variable.name for variable in named(total.atoms[0])}
        for atom in total.atoms:
            shape = atom.relation, atom.arity
            if atom.relation not in used or atom.arity not in used[atom.relation].arities:
                message = f"no rule uses {atom.relation} with {_counted(atom.arity)}"
                raise Mistake(message, atom.position)
            if shape in known:
                message = f"{atom.relation} with {_counted(atom.arity)} is in two sums"
                raise Mistake(message, atom.position)
            names = [variable.name for variable in named(atom)]
            if not all(isinstance(term, Variable) for term in atom.arguments):
                raise Mistake("the arguments of a sum are variables and '_' only", atom.position)
            if len(set(names)) < len(names) or set(names) != first:
                raise Mistake(
                    "each relation of a sum has the same variables, each once: there is one sum "
                    "for each value of them; what is summed over is written '_'",
                    atom.position,
                )
            known.add(shape)


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


def take_ready(conditions: list[Condition], bound: set[str]) -> list[Condition]:
    """Remove and return the conditions that can be evaluated, in order; `bound` grows."""
    taken: list[Condition] = []
    progress = True
    while progress:
        progress = False
        for condition in list(conditions):
            step = ready(condition, bound)
            if step is not None:
                conditions.remove(condition)
                taken.append(step)
                bound |= {v.name for v in condition_variables(step)}
                progress = True
    return taken


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
