"""Properties of the rules without weights: which symbols derive what, and cycles.

A rule of weight zero is a rule here: it may get another weight.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inout._core.graphs import strong_components
from inout.grammars.table import RuleTable

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class UnaryCycle:
    """Nonterminals that derive each other over the same words.

    `rules` are the numbers of the rules of one shortest cycle, through the first of them.
    """

    nonterminals: tuple[str, ...]
    rules: tuple[int, ...]


def defined(table: RuleTable) -> Mask:
    """Which nonterminals have a rule: [nt]."""
    return np.bincount(table.lhs, minlength=len(table.nonterminals)) > 0


def productive(table: RuleTable, rules: Mask | None = None) -> Mask:
    """Which nonterminals derive a string of terminals (with these rules alone): [nt]. Linear."""
    return _deriving(table, np.ones(len(table), bool) if rules is None else rules)


def nullable(table: RuleTable) -> Mask:
    """Which nonterminals derive the empty string: [nt]. Linear time."""
    words = np.bincount(table.owners, weights=table.rhs < 0, minlength=len(table))
    return _deriving(table, words == 0)


def reachable(table: RuleTable, rules: Mask | None = None) -> Mask:
    """Which nonterminals the start symbol leads to (with these rules alone): [nt]. Linear time."""
    owners, children = _children(table, rules)
    parents = table.lhs[owners]
    order = np.argsort(parents, kind="stable")
    bounds = np.searchsorted(parents[order], np.arange(len(table.nonterminals) + 1))
    below = children[order]
    seen = np.zeros(len(table.nonterminals), dtype=bool)
    seen[0] = True  # the start symbol
    agenda = [0]
    while agenda:
        node = agenda.pop()
        fresh = np.unique(below[bounds[node] : bounds[node + 1]])
        fresh = fresh[~seen[fresh]]
        seen[fresh] = True
        agenda.extend(fresh.tolist())
    return seen


def useful_rules(table: RuleTable, rules: Mask | None = None) -> Mask:
    """Which rules are used in some tree of the grammar (with these rules alone): [r]. Linear."""
    good = rules_within(table, productive(table, rules))
    if rules is not None:
        good &= rules
    return good & reachable(table, good)[table.lhs]


def rules_within(table: RuleTable, symbols: Mask) -> Mask:
    """Which rules have only these nonterminals, left and right: [r]."""
    owners, children = _children(table)
    good = symbols[table.lhs]
    good[owners[~symbols[children]]] = False
    return good


def unary_cycles(table: RuleTable) -> tuple[UnaryCycle, ...]:
    """The groups of nonterminals A with A ⇒⁺ A, where a sentence has infinitely many trees.

    A rule counts as unary where all its other symbols derive the empty string. Rules that stand
    in no tree do not count. O(rules + symbols).
    """
    rules = useful_rules(table)
    empty = nullable(table)
    owners, symbols = table.owners, table.rhs
    solid = (symbols < 0) | ~empty[np.maximum(symbols, 0)]
    solids = np.bincount(owners, weights=solid, minlength=len(table))
    # All symbols but this one can vanish.
    alone = (symbols >= 0) & rules[owners] & (solids[owners] - solid == 0)
    sources, targets = table.lhs[owners[alone]], symbols[alone]
    numbers = owners[alone]
    cycles = []
    for part in strong_components(len(table.nonterminals), sources, targets):
        inside = np.isin(sources, part) & np.isin(targets, part) if len(part) > 1 else None
        if inside is None:
            inside = (sources == part[0]) & (targets == part[0])
        if inside.any():
            path = _shortest_cycle(int(part[0]), sources[inside], targets[inside], numbers[inside])
            cycles.append(UnaryCycle(tuple(table.nonterminals[n] for n in part), path))
    return tuple(sorted(cycles, key=lambda c: c.rules))


def _shortest_cycle(
    start: int, sources: NDArray[np.int32], targets: NDArray[np.int32], rules: NDArray[np.int64]
) -> tuple[int, ...]:
    """The rules along a shortest way from a node of a component back to it."""
    edges: dict[int, list[tuple[int, int]]] = {}
    for source, target, rule in zip(
        sources.tolist(), targets.tolist(), rules.tolist(), strict=True
    ):
        edges.setdefault(source, []).append((target, rule))
    ways: dict[int, tuple[int, ...]] = {}
    agenda: deque[tuple[int, tuple[int, ...]]] = deque([(start, ())])
    while start not in ways:
        node, way = agenda.popleft()
        for target, rule in edges[node]:
            if target not in ways:
                ways[target] = (*way, rule)
                agenda.append((target, ways[target]))
    return ways[start]


def _children(
    table: RuleTable, rules: Mask | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Rule and number of each nonterminal on a right side (of these rules)."""
    keep = table.rhs >= 0
    if rules is not None:
        keep = keep & rules[table.owners]
    return table.owners[keep], table.rhs[keep]


def _deriving(table: RuleTable, allowed: Mask) -> Mask:
    """Which nonterminals have a finite tree of allowed rules; terminals ask for nothing."""
    owners, children = _children(table, allowed)
    missing = np.bincount(owners, minlength=len(table))
    order = np.argsort(children, kind="stable")
    bounds = np.searchsorted(children[order], np.arange(len(table.nonterminals) + 1)).tolist()
    users = owners[order].tolist()
    lhs, waiting = table.lhs.tolist(), missing.tolist()
    done = [False] * len(table.nonterminals)
    agenda = np.unique(table.lhs[allowed & (missing == 0)]).tolist()
    for node in agenda:
        done[node] = True
    while agenda:
        node = agenda.pop()
        for rule in users[bounds[node] : bounds[node + 1]]:
            waiting[rule] -= 1
            if waiting[rule] == 0 and not done[lhs[rule]]:
                done[lhs[rule]] = True
                agenda.append(lhs[rule])
    return np.array(done, dtype=bool)
