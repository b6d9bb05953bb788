"""In how many ways the rules of a normal form and its chains come about, at one setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inout._core.graphs import strong_components
from inout.grammars.transforms.base import Vector

if TYPE_CHECKING:
    from inout.grammars.parser.normal_form import NormalForm

Number = int | float  # an int, or math.inf


class Ways:
    """Numbers of trees, of pieces of rules and of chains, none of them with a rule of weight 0.

    `binarised` are the log-weights of the binarised rules, `base` those in empty trees. They
    depend on the grammar alone, so a setting keeps them.
    """

    def __init__(self, form: NormalForm, binarised: Vector, base: Vector, barred: bool) -> None:
        self.form, self.binarised, self.base, self.barred = form, binarised, base, barred

    @cached_property
    def nulls(self) -> list[Number]:
        """The number of empty trees of each binarised symbol."""
        nulls = self.form.removal.nulls
        table = nulls.table
        found: list[Number] = [0] * len(table.nonterminals)
        rules = np.flatnonzero(nulls.rules & (self.base > -np.inf)).tolist()
        rhs, offsets = table.rhs.tolist(), table.offsets.tolist()
        # After as many rounds as there are symbols, only numbers fed by a cycle still change.
        rounds = int(nulls.symbols.sum())
        for attempt in range(2 * rounds + 1):
            new: list[Number] = [0] * len(found)
            for rule in rules:
                below = [found[c] for c in rhs[offsets[rule] : offsets[rule + 1]]]
                new[table.lhs[rule]] += 0 if 0 in below else math.prod(below)
            if new == found:
                break
            if attempt >= rounds:
                new = [math.inf if a != b else b for a, b in zip(found, new, strict=True)]
            found = new
        return found

    @cached_property
    def rules(self) -> list[Number]:
        """The number of pieces of each rule of the form."""
        removal = self.form.removal
        found: list[Number] = [0] * len(self.form.table)
        alive = (self.binarised > -np.inf)[removal.origin_rules]
        rows = zip(removal.new_rules[alive], removal.origin_nulls[alive], strict=True)
        for rule, gone in rows:
            found[rule] += 1 if gone < 0 else self.nulls[gone]
        return found

    @cached_property
    def log_exists(self) -> Vector:
        """0 for each rule of the form with a piece, -inf for the others."""
        return np.where([x > 0 for x in self.rules], 0.0, -np.inf)

    @property
    def is_endless(self) -> bool:
        """Whether there are infinitely many chains."""
        return self.finite_chains[1] is not self.finite_chains[0]

    @cached_property
    def finite_chains(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The numbers of ways of chains, with 1 or with 2 for the infinite ones."""
        if math.inf not in self.chains:
            plain = _whole(self.chains)
            return plain, plain
        once, twice = (
            _whole([endless if x == math.inf else x for x in self.chains]) for endless in (1, 2)
        )
        return once, twice

    @cached_property
    def chains(self) -> list[Number]:
        """The number of ways of each chain of unary rules; of those without constituents if barred.

        From the symbols that chains end in up; whatever a symbol on a cycle leads to, it leads to
        in infinitely many ways.
        """
        closure, own = self.form.closure, self.form.is_original
        step_ways = [self.rules[rule] for rule in closure.rules.tolist()]
        live = np.array([x > 0 for x in step_ways], dtype=bool)
        if self.barred:
            live &= ~(own[closure.heads] | own[closure.children])
        heads, children = closure.heads[live], closure.children[live]
        steps: dict[int, list[tuple[int, Number]]] = {}
        for step in np.flatnonzero(live).tolist():
            row = (int(closure.children[step]), step_ways[step])
            steps.setdefault(int(closure.heads[step]), []).append(row)
        ways: dict[int, dict[int, Number]] = {}
        for part in strong_components(len(own), heads, children):
            members = part.tolist()
            found: dict[int, Number] = {}
            for child, number in [row for a in members for row in steps.get(a, [])]:
                found[child] = found.get(child, 0) + number
                for end, further in ways.get(child, {}).items():
                    found[end] = found.get(end, 0) + number * further
            if any(a in found for a in members):
                found = dict.fromkeys([*members, *found], math.inf)
            for a in members if found else []:
                ways[a] = found
        return [ways.get(head, {}).get(end, 0) for head, end in closure.pairs.tolist()]


def _whole(numbers: Sequence[Number]) -> NDArray[Any]:
    """As machine integers if they fit."""
    small = all(x < 2**63 for x in numbers)
    return np.array([int(x) for x in numbers], dtype=np.int64 if small else object)
