"""The part of a large graph that is worth drawing, and a caption about the rest."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from inout._core.checks import expect

from .model import Graph, NodeId


@dataclass(frozen=True, slots=True)
class Part:
    """A graph cut down for drawing; `more[head]` counts the edges of `head` left out."""

    graph: Graph
    items_in_all: int
    edges_in_all: int
    more: Mapping[NodeId, int]

    @property
    def caption(self) -> str:
        """What was left out; empty if nothing was."""
        nodes, edges = len(self.graph.nodes), len(self.graph.edges)
        if nodes == self.items_in_all and edges == self.edges_in_all:
            return ""
        return (
            f"{nodes:,} of {self.items_in_all:,} items shown, "
            f"with {edges:,} of {self.edges_in_all:,} edges: those with the highest posteriors"
        )


def best_part(graph: Graph, max_nodes: int, max_edges: int | None = None) -> Part:
    """The part of the graph with the highest expected counts, within both limits.

    It grows from the goals: repeatedly, the edge with the highest posterior below a chosen item
    is added with its tails, so that the result is connected. (The items with the highest counts
    need not be: every word of a sentence has count one, and words without a tree would fill the
    picture.) Then all edges between chosen items are shown, or the
    best of them, `max_edges` in all (by default four per item). O((e + v) log e) time.

    >>> from .model import HyperEdge, Node
    >>> nodes = [Node(0, "a", "axiom"), Node(1, "b", "axiom"), Node(2, "S", level=1)]
    >>> part = best_part(Graph(nodes, [HyperEdge(2, (0,), 0.9), HyperEdge(2, (1,), 0.1)]), 2)
    >>> part.caption
    '2 of 3 items shown, with 1 of 2 edges: those with the highest posteriors'
    """
    expect(max_nodes >= 1, "max_nodes", "must be at least 1", max_nodes)
    limit = 4 * max_nodes if max_edges is None else max_edges
    items_in_all = len(graph.nodes) if graph.items_in_all is None else graph.items_in_all
    edges_in_all = len(graph.edges) if graph.edges_in_all is None else graph.edges_in_all
    if len(graph.nodes) <= max_nodes and len(graph.edges) <= limit:
        return Part(graph, items_in_all, edges_in_all, {})
    ranks = _ranks(graph)
    chosen = _grow(graph, ranks, max_nodes)
    inner = [
        j
        for j, edge in enumerate(graph.edges)
        if edge.head in chosen and chosen.issuperset(edge.tails)
    ]
    edges = [graph.edges[j] for j in _best_edges(graph, ranks, inner, limit)]
    nodes = [node for node in graph.nodes if node.id in chosen]
    goals = [goal for goal in graph.goals if goal in chosen]
    more = Counter(edge.head for edge in graph.edges if edge.head in chosen)
    more.subtract(edge.head for edge in edges)
    hidden = {head: count for head, count in more.items() if count}
    return Part(Graph(nodes, edges, goals), items_in_all, edges_in_all, hidden)


def _ranks(graph: Graph) -> list[float]:
    """The importance of each edge: its posterior or, if unknown, its tails' smallest count."""
    weights = {node.id: node.weight for node in graph.nodes}
    ranks = []
    for edge in graph.edges:
        known = [edge.weight] if edge.weight is not None else [weights[t] for t in edge.tails]
        # A NaN would make the order of the heap depend on chance.
        ranks.append(min((w for w in known if w is not None and not math.isnan(w)), default=0.0))
    return ranks


def _grow(graph: Graph, ranks: list[float], max_nodes: int) -> set[NodeId]:
    if len(graph.nodes) <= max_nodes:
        return {node.id for node in graph.nodes}
    below: dict[NodeId, list[int]] = defaultdict(list)
    for j, edge in enumerate(graph.edges):
        below[edge.head].append(j)
    chosen: set[NodeId] = set()
    heap: list[tuple[float, int]] = []

    def add(name: NodeId) -> None:
        chosen.add(name)
        for j in below[name]:
            heapq.heappush(heap, (-ranks[j], j))

    for goal in graph.goals[:max_nodes]:
        add(goal)
    while heap and len(chosen) < max_nodes:
        _, j = heapq.heappop(heap)
        new = [t for t in dict.fromkeys(graph.edges[j].tails) if t not in chosen]
        if len(chosen) + len(new) <= max_nodes:
            for tail in new:
                add(tail)
    return chosen


def _best_edges(graph: Graph, ranks: list[float], inner: list[int], limit: int) -> list[int]:
    """At most `limit` of the inner edges, in their order: the best of each head, then the rest."""
    by_rank = sorted(inner, key=lambda j: -ranks[j])
    best = {graph.edges[j].head: j for j in reversed(by_rank)}
    first = set(best.values())
    return sorted(sorted(by_rank, key=lambda j: j not in first)[:limit])
