"""Folding: long rules in steps through new relations, so that fewer variables meet in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count

from inout.deduction.desugar import desugar, take_ready
from inout.deduction.plan import existential_variables
from inout.deduction.syntax import (
    ANONYMOUS,
    ParsedProgram,
    Rule,
    Variable,
    WrittenAtom,
    WrittenComparison,
    WrittenRule,
    occurrences,
)

Factor = WrittenAtom | WrittenComparison
# The search tries 3^m ways for a body of m relations: a second for ten of them.
MOST_RELATIONS = 10


def fold(program: ParsedProgram) -> str:
    """The text of the folded program; see `Program.folded`."""
    taken = {*program.derived, *program.used}
    before, after = [0], [0]
    lines: list[str] = []
    for rule in program.rules:
        search = _Search(rule)
        before.append(search.exponent(search.variables))
        best = search.best() if 1 < len(search.atoms) <= MOST_RELATIONS else None
        if best is not None and best.cost[0] < before[-1]:
            after.append(best.cost[0])
            lines += map(str, search.rules(best, rule.written.head, taken))
        else:
            after.append(before[-1])
            lines.append(str(rule))
    lines += map(str, program.totals)
    comment = f"% Folded: at most {max(after)} variables in a rule, {max(before)} before.\n"
    return comment + "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class _Part:
    """The best way found to multiply some of the factors of a body.

    A part that sums variables out is a step, with a rule of its own; any other is written out
    where it is used.
    """

    cost: tuple[int, ...]  # variables of every step in it, the most first
    variables: frozenset[str]  # those that remain
    factors: tuple[Factor | _Part, ...]
    tests: frozenset[int] = frozenset()  # comparisons made in it
    is_step: bool = False
    is_filter: bool = False

    def flat(self) -> Iterator[Factor | _Part]:
        """Its factors, with those of parts that are no steps."""
        for factor in self.factors:
            if isinstance(factor, _Part) and not factor.is_step:
                yield from factor.flat()
            else:
                yield factor


class _Search:
    """All ways to multiply the factors of one rule; sets of relations are bit masks."""

    def __init__(self, rule: Rule) -> None:
        factors = rule.written.factors
        self.atoms = [f for f in factors if isinstance(f, WrittenAtom)]
        self.tests = [f for f in factors if isinstance(f, WrittenComparison)]
        self.head = _names(rule.written.head)
        self.existential = existential_variables(rule)
        self.full = (1 << len(self.atoms)) - 1
        names = [_names(rule.written.head), *map(_names, factors)]
        self.variables = dict.fromkeys(name for some in names for name in some)
        self.part = cache(self._part)
        self.closed = cache(self._closed)

    def best(self) -> _Part | None:
        return self.part(self.full)

    def exponent(self, variables: Iterable[str]) -> int:
        """The number of variables that can be chosen freely: an equation determines one."""
        given = frozenset(variables)
        equations = [_names(t) for t in self.tests if t.operator == "="]
        return max(0, len(given) - sum(bool(e) and e.keys() <= given for e in equations))

    def _members(self, mask: int) -> list[WrittenAtom]:
        return [atom for place, atom in enumerate(self.atoms) if mask >> place & 1]

    def _closed(self, mask: int) -> frozenset[int] | None:
        """The comparisons that can be made with these relations alone.

        None if they do not bind all their own variables, as in r(2*I).
        """
        if mask == self.full:
            return frozenset(range(len(self.tests)))
        atoms, made = self._members(mask), frozenset[int]()
        if not _binds(atoms):
            return None
        while True:
            more = {
                t
                for t in range(len(self.tests))
                if t not in made and _binds([*atoms, *(self.tests[i] for i in (*made, t))])
            }
            if not more:
                return made
            made |= more

    def _remaining(self, mask: int, tests: frozenset[int]) -> frozenset[str]:
        """The variables of these relations and comparisons that occur elsewhere in the rule."""
        inside: set[str] = set()
        outside = set(self.head)
        for place, atom in enumerate(self.atoms):
            (inside if mask >> place & 1 else outside).update(_names(atom))
        for place, test in enumerate(self.tests):
            (inside if place in tests else outside).update(_names(test))
        return frozenset(inside & outside)

    def _part(self, mask: int) -> _Part | None:
        if mask.bit_count() == 1:
            (atom,) = self._members(mask)
            whole = _Part((), frozenset(_names(atom)), (atom,), is_filter=atom.is_filter)
            # The grounder itself sums the variables that only a filter has.
            step = None if atom.is_filter else self._joined(mask, (whole,))
            return step if step is not None and step.is_step else whole
        candidates = []
        rest = mask & (mask - 1)
        right = rest
        while right:
            parts = [self.part(mask ^ right), self.part(right)]
            if None not in parts:
                candidates.append(self._joined(mask, [p for p in parts if p is not None]))
            right = (right - 1) & rest
        return min((c for c in candidates if c is not None), key=lambda c: c.cost, default=None)

    def _joined(self, mask: int, parts: Sequence[_Part]) -> _Part | None:
        """The product of the parts, with all comparisons that it allows; None if it is no step."""
        closed = self.closed(mask)
        tests = closed or frozenset()
        new = sorted(tests.difference(*(part.tests for part in parts)))
        factors: tuple[Factor | _Part, ...] = (*parts, *(self.tests[i] for i in new))
        met = frozenset[str]().union(
            *(part.variables for part in parts), *(_names(self.tests[i]) for i in new)
        )
        cost = [c for part in parts for c in part.cost]
        if mask == self.full:
            cost.append(self.exponent(met | self.head.keys()))
            return _Part(tuple(sorted(cost, reverse=True)), met, factors, tests, is_step=True)
        variables = self._remaining(mask, tests)
        is_filter = all(part.is_filter for part in parts)
        if met <= variables:
            return _Part(
                tuple(sorted(cost, reverse=True)), met, factors, tests, is_filter=is_filter
            )
        # A variable that only filters bind must not become one of a weighted relation.
        if closed is None or not (is_filter or variables.isdisjoint(self.existential)):
            return None
        cost = sorted([*cost, self.exponent(met)], reverse=True)
        return _Part(tuple(cost), variables, factors, tests, is_step=True, is_filter=is_filter)

    def rules(self, part: _Part, head: WrittenAtom, taken: set[str]) -> Iterator[WrittenRule]:
        """The rule of a step, and those of the steps in it."""
        factors: list[Factor] = []
        steps: list[tuple[_Part, WrittenAtom]] = []
        for factor in part.flat():
            if isinstance(factor, _Part):
                stem = head.relation.rstrip("0123456789").rstrip("_")
                name = next(n for i in count(1) if (n := f"{stem}_{i}") not in taken)
                taken.add(name)
                columns = tuple(Variable(v) for v in self.variables if v in factor.variables)
                steps.append((factor, WrittenAtom(name, columns)))
                factor = replace(steps[-1][1], is_filter=factor.is_filter)
            factors.append(factor)
        factors.sort(key=lambda factor: isinstance(factor, WrittenComparison))
        yield WrittenRule(head, tuple(factors))
        for inner, atom in steps:
            yield from self.rules(inner, atom, taken)


def _names(factor: Factor) -> dict[str, None]:
    """The variables of a factor in order; every `_` of a weighted relation is one of its own."""
    terms = factor.arguments if isinstance(factor, WrittenAtom) else (factor.left, factor.right)
    keeps = isinstance(factor, WrittenAtom) and not factor.is_filter
    names: dict[str, None] = {}
    for variable in (v for term in terms for v in occurrences(term)):
        if variable.name != ANONYMOUS:
            names[variable.name] = None
        elif keeps:
            names[f"_ at {variable.position}"] = None
    return names


def _binds(factors: Sequence[Factor]) -> bool:
    """Whether the factors alone bind all their variables."""
    plain = desugar(WrittenRule(WrittenAtom("step", ()), tuple(factors)))
    waiting = list(plain.conditions)
    take_ready(waiting, {v.name for a in plain.body for t in a.arguments for v in occurrences(t)})
    return not waiting
