"""How rules are evaluated: strata of relations, and the order of joins in each rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from inout._core.graphs import strong_components
from inout.deduction.desugar import take_ready
from inout.deduction.syntax import (
    Argument,
    Atom,
    Condition,
    ParsedProgram,
    Rule,
    Variable,
    condition_variables,
)

# Estimated number of partners of a row: (atom, columns that are already bound) -> rows.
FanOut = Callable[[Atom, tuple[int, ...]], float]


@dataclass(frozen=True)
class Stratum:
    """Relations that depend on each other, with the rules that define them."""

    relations: frozenset[str]
    rules: tuple[Rule, ...]


def existential_filters(program: ParsedProgram) -> tuple[Rule, ...]:
    """The rules with every filter that could match twice replaced by one that cannot.

    A filter asks *whether* something holds. Where it has variables of its own, or is about given
    facts (which may repeat), it becomes a filter on a helper relation of distinct rows.
    """
    derived = program.derived
    rules: list[Rule] = []
    helpers: list[Rule] = []
    for rule in program.rules:
        uses = Counter(name for atom in (rule.head, *rule.body) for name in _variables(atom))
        uses.update(v.name for condition in rule.conditions for v in condition_variables(condition))
        body = []
        for atom in rule.body:
            variables = [a for a in atom.arguments if isinstance(a, Variable)]
            shared = [v for v in variables if uses[v.name] > 1]
            own = len(shared) < len(variables)
            if atom.is_filter and (own or atom.relation not in derived):
                helper = Atom(f"{atom.relation}?{len(helpers)}", tuple(dict.fromkeys(shared)))
                helpers.append(replace(rule, head=helper, body=(atom,), conditions=()))
                atom = replace(helper, position=atom.position, is_filter=True)
            body.append(atom)
        rules.append(replace(rule, body=tuple(body)))
    return (*rules, *helpers)


def _variables(atom: Atom) -> set[str]:
    return {a.name for a in atom.arguments if isinstance(a, Variable)}


def existential_variables(rule: Rule) -> set[str]:
    """The variables of filters that neither the head nor the tails determine."""
    fixed = _variables(rule.head).union(*(_variables(a) for a in rule.body if not a.is_filter))
    take_ready(list(rule.conditions), fixed)
    return set().union(*(_variables(a) for a in rule.body if a.is_filter)) - fixed


def repeats_edges(rule: Rule) -> bool:
    """Whether filters may be met in several ways by the same head and tails: one edge all the same.

    They can where a filter has a variable that neither the head nor the tails determine.
    """
    return bool(existential_variables(rule))


def stratify(rules: tuple[Rule, ...]) -> list[Stratum]:
    """The strongly connected components of the relations, each after those it depends on."""
    defined = {rule.head.relation for rule in rules}
    needs: dict[str, list[str]] = {name: [] for name in sorted(defined)}
    for rule in rules:
        needs[rule.head.relation] += [a.relation for a in rule.body if a.relation in defined]
    names, numbers = list(needs), {name: number for number, name in enumerate(needs)}
    edges = [(numbers[name], numbers[other]) for name in needs for other in needs[name]]
    sources, targets = np.array(edges, np.int64).reshape(-1, 2).T
    strata = []
    for part in strong_components(len(names), sources, targets):
        component = frozenset(names[number] for number in part)
        own = tuple(rule for rule in rules if rule.head.relation in component)
        strata.append(Stratum(component, own))
    return strata


def weighted_relations(rules: tuple[Rule, ...], goal: str) -> set[str]:
    """The relations whose weights can reach the goal; the others need no edges."""
    return _needed(rules, {goal}, lambda atom: not atom.is_filter)


def filtered_relations(rules: tuple[Rule, ...]) -> set[str]:
    """The relations that filters ask for, and all that these are derived from."""
    asked = {atom.relation for rule in rules for atom in rule.body if atom.is_filter}
    return _needed(rules, asked, lambda atom: True)


def _needed(rules: tuple[Rule, ...], first: set[str], follow: Callable[[Atom], bool]) -> set[str]:
    reached, waiting = set(first), list(first)
    while waiting:
        name = waiting.pop()
        body = [atom for rule in rules if rule.head.relation == name for atom in rule.body]
        new = {atom.relation for atom in body if follow(atom)} - reached
        reached |= new
        waiting += new
    return reached


@dataclass(frozen=True)
class JoinStep:
    """Join with one atom of the body."""

    place: int
    atom: Atom
    keys: tuple[tuple[str, int], ...]  # bound variable, column it must equal
    binds: tuple[tuple[str, int], ...]  # new variable, column it is read from
    constants: tuple[tuple[int, Argument], ...]  # column, value it must have
    repeats: tuple[tuple[int, int], ...]  # columns that must be equal
    keep: frozenset[str]  # variables that later steps or the head need


@dataclass(frozen=True)
class ConditionStep:
    """Test a condition, or compute a variable from it."""

    condition: Condition
    keep: frozenset[str]


@dataclass(frozen=True)
class Plan:
    """The steps of one rule, beginning with a given atom."""

    rule: Rule
    steps: tuple[JoinStep | ConditionStep, ...]


def make_plan(rule: Rule, first: int | None, fan_out: FanOut) -> Plan:
    """A plan that starts from atom `first` (None: from whichever is smallest).

    Conditions come as early as they can; of the atoms left, the one with the fewest expected
    partners for each row comes next.
    """
    bound: set[str] = set()
    atoms = list(range(len(rule.body)))
    conditions = list(rule.conditions)
    order: list[tuple[int, Atom] | Condition] = []
    while True:
        order += take_ready(conditions, bound)
        if not atoms:
            break
        if first is not None and first in atoms:
            place = first
        else:
            place = min(atoms, key=lambda p: fan_out(rule.body[p], _known(rule.body[p], bound)))
        atoms.remove(place)
        order.append((place, rule.body[place]))
        bound |= _variables(rule.body[place])
    if conditions:
        raise AssertionError(f"conditions left over in {rule}: the checks let them pass")
    return Plan(rule, tuple(_with_live_variables(rule, order)))


def _known(atom: Atom, bound: set[str]) -> tuple[int, ...]:
    """The columns whose values are known when `bound` is."""
    return tuple(
        column
        for column, a in enumerate(atom.arguments)
        if not isinstance(a, Variable) or a.name in bound
    )


def _with_live_variables(
    rule: Rule, order: list[tuple[int, Atom] | Condition]
) -> list[JoinStep | ConditionStep]:
    """Steps that know which variables are still wanted after them."""
    wanted = _variables(rule.head)
    keeps = []
    for entry in reversed(order):
        keeps.append(frozenset(wanted))
        if isinstance(entry, tuple):
            wanted |= _variables(entry[1])
        else:
            wanted |= {v.name for v in condition_variables(entry)}
    steps: list[JoinStep | ConditionStep] = []
    bound: set[str] = set()
    for entry, keep in zip(order, reversed(keeps), strict=True):
        if not isinstance(entry, tuple):
            steps.append(ConditionStep(entry, keep))
            bound |= {v.name for v in condition_variables(entry)}
            continue
        place, atom = entry
        steps.append(_join_step(place, atom, bound, keep))
        bound |= _variables(atom)
    return steps


def _join_step(place: int, atom: Atom, bound: set[str], keep: frozenset[str]) -> JoinStep:
    keys, constants, repeats = [], [], []
    binds: dict[str, int] = {}
    for column, argument in enumerate(atom.arguments):
        if not isinstance(argument, Variable):
            constants.append((column, argument))
        elif argument.name in bound:
            keys.append((argument.name, column))
        elif argument.name in binds:
            repeats.append((binds[argument.name], column))
        else:
            binds[argument.name] = column
    return JoinStep(
        place, atom, tuple(keys), tuple(binds.items()), tuple(constants), tuple(repeats), keep
    )
