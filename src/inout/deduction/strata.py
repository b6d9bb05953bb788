"""The order in which relations are computed, and the rules prepared for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from inout.deduction.checks import ready
from inout.deduction.syntax import Atom, ParsedProgram, Rule, Variable, condition_variables


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


def repeats_edges(rule: Rule) -> bool:
    """Whether filters may be met in several ways by the same head and tails: one edge all the same.

    They can where a filter has a variable that neither the head nor the tails determine.
    """
    fixed = _variables(rule.head).union(*(_variables(a) for a in rule.body if not a.is_filter))
    waiting = list(rule.conditions)
    while True:
        steps = [step for step in (ready(c, fixed) for c in waiting) if step is not None]
        fixed |= {v.name for step in steps for v in condition_variables(step)}
        stuck = [c for c in waiting if ready(c, fixed) is None]
        if len(stuck) == len(waiting):
            break
        waiting = stuck
    return any(not _variables(a) <= fixed for a in rule.body if a.is_filter)


def stratify(rules: tuple[Rule, ...]) -> list[Stratum]:
    """The strongly connected components of the relations, each after those it depends on."""
    defined = {rule.head.relation for rule in rules}
    needs: dict[str, list[str]] = {name: [] for name in sorted(defined)}
    for rule in rules:
        needs[rule.head.relation] += [a.relation for a in rule.body if a.relation in defined]
    strata = []
    for component in _components(needs):
        own = tuple(rule for rule in rules if rule.head.relation in component)
        strata.append(Stratum(frozenset(component), own))
    return strata


def _components(needs: dict[str, list[str]]) -> list[list[str]]:
    """Tarjan's algorithm: strongly connected components, dependencies first."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in needs[name]:
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            place = stack.index(name)
            found.append(stack[place:])
            del stack[place:]

    for name in needs:
        if name not in number:
            visit(name)
    return found


def weighted_relations(rules: tuple[Rule, ...], goal: str) -> set[str]:
    """The derived relations whose weights can reach the goal; the others need no edges."""
    reached, waiting = {goal}, [goal]
    while waiting:
        name = waiting.pop()
        for rule in rules:
            if rule.head.relation != name:
                continue
            for atom in rule.body:
                if not atom.is_filter and atom.relation not in reached:
                    reached.add(atom.relation)
                    waiting.append(atom.relation)
    return reached
