"""The plain data that is drawn: trees, and graphs of items and hyperedges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from inout._core.checks import expect
from inout._core.errors import ArgumentError

NodeId: TypeAlias = int | str


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node of a tree to draw: a label, an optional short note, and children left to right.

    >>> TreeNode("NP", (TreeNode("I", kind="axiom"),), note="0.5").children[0].label
    'I'
    """

    label: str
    # Out of the repr: a derivation can be thousands deep, and a repr that recurses would fail.
    children: tuple[TreeNode, ...] = field(default=(), repr=False)
    note: str = ""
    kind: str = "item"

    def __post_init__(self) -> None:
        _check_kind(self.kind)


@dataclass(frozen=True, slots=True)
class Node:
    """One item of a graph; `weight` is its expected count, None if unknown.

    `note` is for its tooltip.
    Nodes with a `place`, such as the middle of a span, stand in its order from left to right.
    """

    id: NodeId
    label: str
    kind: str = "item"
    weight: float | None = None
    level: int = 0
    place: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        _check_kind(self.kind)


@dataclass(frozen=True, slots=True)
class HyperEdge:
    """One way to derive `head` from `tails`; `weight` is its posterior, None if unknown."""

    head: NodeId
    tails: tuple[NodeId, ...]
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """An acyclic hypergraph to draw: every tail has a lower level than its head.

    Without `goals`, the items that derive nothing further are the goals. If the nodes are only a
    part of a larger graph, `items_in_all` and `edges_in_all` are its size, for captions.

    >>> graph = Graph([Node(0, "a", "axiom"), Node(1, "S", level=1)], [HyperEdge(1, (0,))])
    >>> graph.goals
    (1,)
    """

    nodes: Sequence[Node]
    edges: Sequence[HyperEdge]
    goals: Sequence[NodeId] = ()
    items_in_all: int | None = None
    edges_in_all: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "edges", tuple(self.edges))
        self._check()
        goals = tuple(dict.fromkeys(self.goals)) or self._roots()
        object.__setattr__(self, "goals", goals)

    def _check(self) -> None:
        levels = {node.id: node.level for node in self.nodes}
        if len(levels) < len(self.nodes):
            (twice, count), *_ = Counter(node.id for node in self.nodes).most_common(1)
            raise ArgumentError("nodes", f": node ids must differ. Got {twice!r} {count} times")
        for edge in self.edges:
            for name in (edge.head, *edge.tails):
                expect(name in levels, "edges", "must join nodes of the graph", name)
            for tail in edge.tails:
                if levels[tail] >= levels[edge.head]:
                    upper, lower = (f"{n!r} of level {levels[n]}" for n in (edge.head, tail))
                    wanted = ": a tail must have a lower level than its head"
                    raise ArgumentError("edges", f"{wanted}. Got {lower} below {upper}")
        for whole, part in ((self.items_in_all, self.nodes), (self.edges_in_all, self.edges)):
            if whole is not None and whole < len(part):
                raise ArgumentError(None, f"the whole must be at least its part. Got {whole}")
        for goal in self.goals:
            expect(goal in levels, "goals", "must be nodes of the graph", goal)

    def _roots(self) -> tuple[NodeId, ...]:
        used = {tail for edge in self.edges for tail in edge.tails}
        free = [node for node in self.nodes if node.id not in used]
        derived = [node for node in free if node.kind != "axiom"]
        return tuple(node.id for node in derived or free)


def _check_kind(kind: str) -> None:
    expect(kind in ("item", "axiom"), "kind", "must be 'item' or 'axiom'", kind)
