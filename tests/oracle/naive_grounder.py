"""Grounding by trying everything: all combinations of rows, all rules, until nothing changes.

Programs are plain data here (the text is made from it), values are ints, strings and tuples for
lists. Nothing is shared with the library.

A rule makes one edge for every head and choice of rows for its factors that are not filters, if
the filters and conditions can be met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any

Value = Any  # int, str, or a tuple of values
Row = tuple[Value, ...]


@dataclass(frozen=True)
class Var:
    name: str


@dataclass(frozen=True)
class Op:
    operator: str
    left: Any
    right: Any


@dataclass(frozen=True)
class Lst:
    """[elements | tail]; without a tail the list ends there."""

    elements: tuple[Any, ...]
    tail: Any = None


@dataclass(frozen=True)
class Atom:
    relation: str
    arguments: tuple[Any, ...] = ()
    is_filter: bool = False


@dataclass(frozen=True)
class Compare:
    operator: str
    left: Any
    right: Any


@dataclass(frozen=True)
class Rule:
    head: Atom
    body: tuple[Atom | Compare, ...]


ANY = Var("_")


def show(term: Any, inner: bool = True) -> str:
    """The term as the language writes it; a product in a condition needs parentheses."""
    match term:
        case Var(name=name):
            return name
        case Op(operator=operator, left=left, right=right):
            return f"({show(left)}{operator}{show(right)})"
        case Lst(elements=elements, tail=tail):
            rest = "" if tail is None else "|" + show(tail)
            return "[" + ",".join(map(show, elements)) + rest + "]"
        case str():
            return f'"{term}"'
        case _:
            return str(term)


def text(rules: Sequence[Rule]) -> str:
    """The program."""
    lines = []
    for rule in rules:
        parts = []
        for factor in rule.body:
            if isinstance(factor, Compare):
                parts.append(f"{show(factor.left)} {factor.operator} {show(factor.right)}")
            else:
                parts.append(_show_atom(factor))
        lines.append(f"{_show_atom(rule.head)} += {', '.join(parts)}.")
    return "\n".join(lines)


def _show_atom(atom: Atom) -> str:
    arguments = f"({', '.join(map(show, atom.arguments))})" if atom.arguments else ""
    return f"{'?' if atom.is_filter else ''}{atom.relation}{arguments}"


class Stuck(Exception):
    """A rule that binds too little: a mistake in the test."""


def value_of(term: Any, known: Mapping[str, Value]) -> Value | None:
    """The value of a term, None while a variable in it is unknown."""
    match term:
        case Var(name=name):
            return known.get(name)
        case Op(operator=operator, left=left, right=right):
            a, b = value_of(left, known), value_of(right, known)
            if a is None or b is None:
                return None
            assert isinstance(a, int), "arithmetic on something else"
            assert isinstance(b, int), "arithmetic on something else"
            return (
                {"+": a + b, "-": a - b, "*": a * b}.get(operator) if operator != "//" else a // b
            )
        case Lst(elements=elements, tail=tail):
            values = [value_of(e, known) for e in elements]
            rest = () if tail is None else value_of(tail, known)
            if rest is None or any(v is None for v in values):
                return None
            return (*values, *rest) if isinstance(rest, tuple) else None
        case _:
            return term


def equate(term: Any, value: Value, known: dict[str, Value]) -> bool | None:
    """Make the term equal to a value: True if done, False if impossible, None if not yet."""
    mine = value_of(term, known)
    if mine is not None:
        return bool(mine == value and type(mine) is type(value))
    match term:
        case Var(name=name):
            known[name] = value
            return True
        case Lst(elements=elements, tail=tail):
            if not isinstance(value, tuple) or len(value) < len(elements):
                return False
            if tail is None and len(value) != len(elements):
                return False
            pairs = list(zip(elements, value, strict=False))
            if tail is not None:
                pairs.append((tail, value[len(elements) :]))
            results = [equate(part, item, known) for part, item in pairs]
            if any(r is False for r in results):
                return False
            return None if any(r is None for r in results) else True
        case Op(operator="+", left=left, right=right) | Op(operator="-", left=left, right=right):
            a, b = value_of(left, known), value_of(right, known)
            plus = term.operator == "+"
            if a is not None:
                return equate(right, value - a if plus else a - value, known)
            if b is not None:
                return equate(left, value - b if plus else value + b, known)
    return None


COMPARE = {
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def solve(equations: list[tuple[Any, Any]], tests: list[Compare]) -> dict[str, Value] | None:
    """Values of all variables that satisfy everything, None if there are none."""
    known: dict[str, Value] = {}
    waiting = list(equations)
    while waiting:
        stuck = []
        for left, right in waiting:
            done: bool | None = None
            for term, other in ((left, right), (right, left)):
                value = value_of(other, known)
                if value is not None:
                    done = equate(term, value, known)
                    break
            if done is False:
                return None
            if done is None:
                stuck.append((left, right))
        if len(stuck) == len(waiting):
            raise Stuck(stuck)
        waiting = stuck
    for test in tests:
        a, b = value_of(test.left, known), value_of(test.right, known)
        if a is None or b is None:
            raise Stuck(test)
        if not COMPARE[test.operator](a, b):
            return None
    return known


def without_anonymous(rule: Rule) -> Rule:
    """The rule with a name of its own for every `_`."""
    fresh = count()

    def rename(term: Any) -> Any:
        match term:
            case Var(name="_"):
                return Var(f"_{next(fresh)}")
            case Op(operator=operator, left=left, right=right):
                return Op(operator, rename(left), rename(right))
            case Lst(elements=elements, tail=tail):
                return Lst(tuple(map(rename, elements)), None if tail is None else rename(tail))
            case Atom(relation=relation, arguments=arguments, is_filter=is_filter):
                return Atom(relation, tuple(map(rename, arguments)), is_filter)
            case Compare(operator=operator, left=left, right=right):
                return Compare(operator, rename(left), rename(right))
            case _:
                return term

    return Rule(rule.head, tuple(rename(factor) for factor in rule.body))


@dataclass
class NaiveForest:
    """Edges (head, tails) with their numbers; a tail is (relation, row) or a fact's place."""

    items: set[tuple[str, Row]] = field(default_factory=set)
    edges: Counter[tuple[Any, tuple[Any, ...]]] = field(default_factory=Counter)

    def reachable(self, goal: str) -> Counter[tuple[Any, tuple[Any, ...]]]:
        """The edges that derivations of the goal use."""
        wanted = {item for item in self.items if item[0] == goal}
        while True:
            more = {
                tail
                for head, tails in self.edges
                if head in wanted
                for tail in tails
                if tail not in wanted
            }
            if not more:
                break
            wanted |= more
        return Counter({edge: n for edge, n in self.edges.items() if edge[0] in wanted})


def has_cycle(edges: Counter[tuple[Any, tuple[Any, ...]]]) -> bool:
    """Whether some item is needed to derive itself."""
    heads = {head for head, _ in edges}
    done: set[Any] = set()
    while True:
        ready = {
            head
            for head in heads - done
            if all(t in done or t not in heads for h, tails in edges if h == head for t in tails)
        }
        if not ready:
            return done != heads
        done |= ready


def ground(
    rules: Sequence[Rule], facts: Mapping[str, Sequence[tuple[Row, bool]]], limit: int = 200
) -> NaiveForest | None:
    """All items and edges; facts are (row, whether it has a weight). None beyond the limit."""
    rules = [without_anonymous(rule) for rule in rules]
    derived = {rule.head.relation for rule in rules}
    given = {
        name: [(("fact", name, place), row) for place, (row, live) in enumerate(rows) if live]
        for name, rows in facts.items()
    }
    forest = NaiveForest()
    found: set[Any] = set()  # (rule, head, tails)
    for name in derived & given.keys():
        for fact, row in given[name]:
            forest.items.add((name, row))
            found.add((("given", fact), (name, row), (fact,)))

    def rows_of(atom: Atom) -> list[tuple[Any, Row]]:
        if atom.relation in derived:
            return [(item, item[1]) for item in forest.items if item[0] == atom.relation]
        rows = given.get(atom.relation, [])
        return [(fact, row) for fact, row in rows if len(row) == len(atom.arguments)]

    while True:
        before = len(found), len(forest.items)
        for number, rule in enumerate(rules):
            for head, tails in _firings(rule, rows_of):
                found.add((number, head, tails))
                forest.items.add(head)
                if len(forest.items) > limit:
                    return None
        if (len(found), len(forest.items)) == before:
            break
    forest.edges = Counter((head, tails) for _, head, tails in found)
    return forest


def _firings(rule: Rule, rows_of: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    atoms = [factor for factor in rule.body if isinstance(factor, Atom)]
    comparisons = [factor for factor in rule.body if isinstance(factor, Compare)]
    for chosen in list(product(*(rows_of(atom) for atom in atoms))):
        equations: list[tuple[Any, Any]] = [
            (term, value)
            for atom, (_, row) in zip(atoms, chosen, strict=True)
            for term, value in zip(atom.arguments, row, strict=True)
        ]
        equations += [(c.left, c.right) for c in comparisons if c.operator == "="]
        known = solve(equations, [c for c in comparisons if c.operator != "="])
        if known is None:
            continue
        row = tuple(value_of(term, known) for term in rule.head.arguments)
        if any(value is None for value in row):
            raise Stuck(rule.head)
        pairs = zip(atoms, chosen, strict=True)
        tails = tuple(item for atom, (item, _) in pairs if not atom.is_filter)
        yield (rule.head.relation, row), tails
