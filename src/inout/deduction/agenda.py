"""Best-first grounding: items in the order of what their best derivations may be worth.

Knuth, "A generalization of Dijkstra's algorithm" (1977); with a heuristic, A* parsing (Klein &
Manning, "A* parsing: fast exact Viterbi parse selection", 2003). Items are taken in batches, and
values are corrected if a better derivation turns up later, so that joins stay joins of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError
from inout.deduction.facts import Facts
from inout.deduction.relation import EdgeChunk, Part, Relation, View
from inout.forest import Derivations, Forest, Item
from inout.kernels.forest.kbest import viterbi
from inout.kernels.forest.outer import with_outer_items

Heuristic = Callable[[Item], float]
WAITING, NEW, OLD = 0, 1, 2
BATCH, SHARE = 16, 8  # at least so many items at a time, and one in so many of those that wait


@dataclass(frozen=True)
class Search:
    """What a best-first search has explored.

    `forest` holds all derivations from the items explored: its queries are those of this part of
    the whole, and its log Z is the mass found so far. No derivation outside of it is heavier than
    exp(`bound`); `finished` says that the k best are all in it.
    """

    forest: Forest
    bound: float
    finished: bool


@dataclass
class Queue(Relation):
    """A relation whose rows wait until they are chosen."""

    states: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    values: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # of best derivations
    hopes: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    chosen: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def grow(self, hope: Callable[[Relation, int], float]) -> None:
        """Take up the rows found since."""
        known, size = len(self.states), len(self)
        if known < size:
            new = np.arange(known, size)
            self.states = np.append(self.states, np.full(len(new), WAITING, np.int8))
            self.values = np.append(self.values, np.full(len(new), -np.inf))
            self.hopes = np.append(self.hopes, [hope(self, int(row)) for row in new])

    def view(self, part: Part) -> View:
        """The rows of one part."""
        if self.given is not None:
            return self.given
        states = {"old": (OLD,), "new": (NEW,), "all": (NEW, OLD)}[part]
        numbers = np.nonzero(np.isin(self.states, states))[0]
        return View(self.table.rows[numbers], numbers)

    def advance(self) -> bool:
        """Make the chosen rows the new ones; whether there are any."""
        self.states[self.states == NEW] = OLD
        self.states[self.chosen] = NEW
        return len(self.chosen) > 0


@dataclass
class Agenda:
    """Chooses the items with the best prospects, until the k best derivations are certain."""

    goal: str
    k: int
    heuristic: Heuristic | None
    max_items: int | None
    eager: set[str] = field(init=False)  # relations of which every item is needed
    label: Callable[[Relation, int], Item] = field(init=False)
    found: Callable[[], Forest] = field(init=False)
    fact_weights: NDArray[np.float64] = field(init=False)
    edges: dict[tuple[str, ...], EdgeChunk] = field(default_factory=dict)
    explored: int = 0
    checked: int = 0
    kth: float = -np.inf
    bound: float = np.inf

    def start(self, derived: Mapping[str, Relation], fact_weights: NDArray[np.float64]) -> None:
        """Take up the weights of the facts."""
        self.fact_weights = fact_weights
        if (fact_weights > 0).any():
            raise ArgumentError("facts", "must have weights of at most 1 for a best-first search")

    def add(self, chunk: EdgeChunk) -> None:
        """Take up new edges, together with those of the same relations."""
        key = (chunk.head.name, *(f"{r.name}/{r.arity}" for r, _ in chunk.tails))
        known = self.edges.get(key)
        if known is not None:
            pairs = zip(known.tails, chunk.tails, strict=True)
            tails = tuple((r, np.append(rows, more)) for (r, rows), (_, more) in pairs)
            chunk = EdgeChunk(chunk.head, np.append(known.heads, chunk.heads), tails)
        self.edges[key] = chunk

    def _hope(self, relation: Relation, row: int) -> float:
        return 0.0 if self.heuristic is None else self.heuristic(self.label(relation, row))

    def _settle(self) -> None:
        """Bring the values of all items up to date."""
        changed = True
        while changed:
            changed = False
            for edge in self.edges.values():
                total = np.zeros(len(edge.heads))
                for relation, rows in edge.tails:
                    given = relation.given is not None
                    total += (self.fact_weights if given else relation.values)[rows]  # type: ignore[attr-defined]
                head = edge.head
                assert isinstance(head, Queue)
                better = total > head.values[edge.heads]
                changed = changed or bool(better.any())
                np.maximum.at(head.values, edge.heads[better], total[better])

    def select(self, relations: list[Relation]) -> None:
        """Choose the items to be joined next; none if the search is over."""
        queues = [relation for relation in relations if isinstance(relation, Queue)]
        for queue in queues:
            queue.grow(self._hope)
            eager = queue.name in self.eager
            queue.chosen = np.nonzero((queue.states == WAITING) & eager)[0]
        if any(len(queue.chosen) for queue in queues):
            return
        self._settle()
        # What an edge leads to is known already: an item that no rule uses need not be chosen.
        waiting = [np.nonzero(q.states == WAITING)[0] for q in queues]
        prospects = np.concatenate(
            [(q.values + q.hopes)[rows] for q, rows in zip(queues, waiting, strict=True)]
        )
        of_goal = np.repeat([q.name == self.goal for q in queues], [len(w) for w in waiting])
        self.bound = float(prospects[~of_goal].max(initial=-np.inf))
        best = next(q for q in queues if q.name == self.goal).values.max(initial=-np.inf)
        self._find_kth(float(best))
        if self.finished or (self.max_items is not None and self.explored >= self.max_items):
            return
        promising = np.nonzero((prospects > self.kth) & ~of_goal)[0]
        size = max(BATCH, len(promising) // SHARE)
        first = promising[np.argsort(-prospects[promising], kind="stable")[:size]]
        self.explored += len(first)
        ends = np.cumsum([len(w) for w in waiting])
        for queue, rows, end in zip(queues, waiting, ends, strict=True):
            mine = first[(first >= end - len(rows)) & (first < end)]
            queue.chosen = rows[mine - (end - len(rows))]

    def _find_kth(self, best: float) -> None:
        """The weight of the k-th best derivation so far; not looked for in vain, or too often."""
        if self.k == 1:
            self.kth = best
        elif best > -np.inf and self.explored >= 1.25 * self.checked:
            self.checked = self.explored
            trees = self.found().kbest(self.k)
            assert isinstance(trees, Derivations)
            self.kth = float(trees.log_weights[-1]) if len(trees) == self.k else -np.inf

    @property
    def finished(self) -> bool:
        """Whether nothing that is still unexplored can be among the k best."""
        return self.kth >= self.bound or self.bound == -np.inf


def outside_bounds(forest: Forest, project: Callable[[Item], Hashable]) -> Heuristic:
    """A heuristic for best-first search from the forest of a coarser program.

    `project` maps an item to the label of a coarser one. What can surround an item is worth at
    most what can surround that one, if the coarser facts weigh at least as much as those that
    they stand for: see `coarser`.
    """
    larger = with_outer_items(forest.arrays)
    logs = forest.log_weights.detach().double().cpu().numpy()
    weights = np.pad(logs, (0, larger.num_items - len(logs)))
    outside = viterbi(larger.structure, weights).best[larger.goals]
    bounds = dict(zip(forest.labels, outside.tolist(), strict=True))
    return lambda item: bounds.get(project(item), -np.inf)


def coarser(facts: Mapping[str, Any], project: Callable[[Item], Item | None]) -> dict[str, Facts]:
    """Facts for `outside_bounds`: the projections of facts, with the largest of their weights.

    Facts for which `project` returns None are left out: a coarser program may not use them.
    """
    best: dict[str, dict[tuple[Any, ...], float]] = {}
    for name, rows in facts.items():
        given = Facts.of(rows)
        for row, weight in zip(given.rows, given.log_weights.tolist(), strict=True):
            item = project(Item(name, tuple(row)))
            if item is not None:
                known = best.setdefault(item.relation, {})
                known[item.arguments] = max(weight, known.get(item.arguments, -np.inf))
    return {name: Facts.of(rows) for name, rows in best.items()}
