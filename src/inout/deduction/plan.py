"""How a rule is evaluated: an order of joins and conditions, chosen greedily."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inout.deduction.checks import ready
from inout.deduction.syntax import Argument, Atom, Condition, Rule, Variable, condition_variables

# Estimated number of partners of a row: (atom, columns that are already bound) -> rows.
FanOut = Callable[[Atom, tuple[int, ...]], float]


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
        order += _take_ready(conditions, bound)
        if not atoms:
            break
        if first is not None and first in atoms:
            place = first
        else:
            place = min(atoms, key=lambda p: fan_out(rule.body[p], _known(rule.body[p], bound)))
        atoms.remove(place)
        order.append((place, rule.body[place]))
        bound |= {a.name for a in rule.body[place].arguments if isinstance(a, Variable)}
    if conditions:
        raise AssertionError(f"conditions left over in {rule}: the checks let them pass")
    return Plan(rule, tuple(_with_live_variables(rule, order)))


def _take_ready(conditions: list[Condition], bound: set[str]) -> list[Condition]:
    """Remove and return the conditions that can be evaluated, in a working order."""
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
    wanted = {a.name for a in rule.head.arguments if isinstance(a, Variable)}
    keeps = []
    for entry in reversed(order):
        keeps.append(frozenset(wanted))
        if isinstance(entry, tuple):
            wanted |= {a.name for a in entry[1].arguments if isinstance(a, Variable)}
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
        bound |= {a.name for a in atom.arguments if isinstance(a, Variable)}
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
