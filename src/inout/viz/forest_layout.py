"""Positions for the items, edges and lines of a hypergraph drawn in layers, goals at the top."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from .geometry import BOX_HEIGHT, MARGIN, NOTE_SIZE, Box, box_size, share
from .labels import text_width
from .layers import Layers, coordinates, reduce_crossings
from .model import Graph, NodeId

GAP = 12.0
DOT_RADIUS = 3.0
DOT_DROP = 24.0
LABELLED_EDGES = 6

Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Route:
    """A line from an edge's dot to one of its tails: the points it passes, the tail's top last."""

    points: tuple[Point, ...]
    to_axiom: bool


@dataclass(frozen=True, slots=True)
class ForestLayout:
    """The positions of all elements.

    `boxes` holds (number of the node, its box); an axiom with heads in several rows has a box in
    each. Per edge: its dot, whether its posterior is written out, and a route for each tail.
    """

    width: float
    height: float
    boxes: tuple[tuple[int, Box], ...]
    dots: tuple[Point, ...]
    labelled: tuple[bool, ...]
    routes: tuple[tuple[Route, ...], ...]


def layout(graph: Graph) -> ForestLayout:
    """Positions with few crossings, no two boxes overlapping, and lines that avoid the boxes.

    Items stand in rows by level. Each edge is a dot below its head; a line to a tail several rows
    down passes the rows between at places kept free for it, shared by all lines to that tail.
    """
    if not graph.nodes:
        return ForestLayout(2 * MARGIN, MARGIN, (), (), (), ())
    plan = _Plan(graph)
    layers = plan.layers
    x = coordinates(layers, reduce_crossings(layers), GAP)
    lowest = min(at - left for at, left in zip(x, layers.left, strict=True))
    x = [at - lowest + MARGIN for at in x]
    width = max(at + right for at, right in zip(x, layers.right, strict=True)) + MARGIN
    tops, heights = _rows(plan, x)

    boxes: dict[int, Box] = {}
    for vertex, number in plan.shown.items():
        node, row = graph.nodes[number], layers.layer[vertex] // 2
        box_width, height = box_size(node.label, node.kind)
        y = tops[row] + (heights[row] - height) / 2
        boxes[vertex] = Box(x[vertex] - box_width / 2, y, box_width, height)

    by_row: dict[int, list[Box]] = defaultdict(list)
    for vertex, box in boxes.items():
        by_row[layers.layer[vertex] // 2].append(box)

    def point(vertex: int) -> Point:
        if vertex in boxes:
            return boxes[vertex].centre, boxes[vertex].y
        row, between = divmod(layers.layer[vertex], 2)
        drop = heights[row] + DOT_DROP if between else heights[row] / 2
        return x[vertex], tops[row] + drop

    def room(vertex: int) -> tuple[float, float] | None:
        row, between = divmod(layers.layer[vertex], 2)
        if between:
            return None
        beside = [max(b.x - x[vertex], x[vertex] - b.right) for b in by_row[row]]
        return heights[row] / 2, min(beside, default=width) - 0.4 * GAP

    def route(dot: int, path: list[int]) -> Route:
        points = [point(vertex) for vertex in (dot, *path)]
        is_axiom = graph.nodes[plan.shown[path[-1]]].kind == "axiom"
        rooms = [room(vertex) for vertex in path[:-1]]
        return Route(_thread(points, rooms), is_axiom)

    dots = tuple(point(dot) for dot in plan.dots)
    routes = tuple(
        tuple(route(dot, path) for path in paths)
        for dot, paths in zip(plan.dots, plan.paths, strict=True)
    )
    low = max([box.bottom for box in boxes.values()] + [y for _, y in dots])
    places = tuple((number, boxes[vertex]) for vertex, number in plan.shown.items())
    return ForestLayout(width, low + MARGIN, places, dots, tuple(plan.labelled), routes)


def _thread(points: list[Point], rooms: list[tuple[float, float] | None]) -> tuple[Point, ...]:
    """The points after the first; where a slanting line would touch a box, two make it steeper.

    A room is half the height of a row and how far the line may lean to the side within it.
    """
    threaded: list[Point] = []
    for i, room in enumerate(rooms, 1):
        (x0, y0), (x, y), (x1, y1) = points[i - 1 : i + 2]
        lean = (x1 - x0) / (y1 - y0) * room[0] if room else 0.0
        if room is None or abs(lean) <= room[1]:
            threaded.append((x, y))
        else:
            lean = max(room[1], 0.0) * (1 if lean > 0 else -1)
            threaded += [(x - lean, y - room[0]), (x + lean, y + room[0])]
    return (*threaded, points[-1])


class _Plan:
    """The hypergraph as layers: items in even layers, edges' dots and passing lines between."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.layers = Layers()
        self.labelled = _labelled(graph)
        self.shown: dict[int, int] = {}
        self.rows = _item_rows(graph)
        self.below_heads: dict[NodeId, set[int]] = defaultdict(set)
        for edge in graph.edges:
            for tail in edge.tails:
                self.below_heads[tail].add(self.rows[edge.head] + 1)
        self.vertex: dict[tuple[NodeId, int], int] = {}
        for number, node in enumerate(graph.nodes):
            for row in self._rows_of(node.id):
                half = box_size(node.label, node.kind)[0] / 2
                vertex = self.vertex[node.id, row] = self.layers.add(2 * row, half, half)
                self.shown[vertex] = number
        written = text_width("0.00", NOTE_SIZE) + DOT_RADIUS + 4
        self.dots = [
            self.layers.add(2 * self.rows[e.head] + 1, DOT_RADIUS, written if label else DOT_RADIUS)
            for e, label in zip(graph.edges, self.labelled, strict=True)
        ]
        self.walk: list[int] = []
        self.tails: dict[int, list[int]] = defaultdict(list)
        self.passing: dict[tuple[int, int], int] = {}
        self.paths = [self._paths(j) for j in range(len(graph.edges))]
        self.layers.order = self._first_order()
        self.layers.rank = self._ranks()

    def _rows_of(self, name: NodeId) -> list[int]:
        """The rows where a node is drawn; an axiom has a box just below each of its heads."""
        if name in self.rows:
            return [self.rows[name]]
        return sorted(self.below_heads[name]) or [max(self.rows.values(), default=0)]

    def _paths(self, j: int) -> list[list[int]]:
        """For each tail of edge j, the vertices on the line to it, the tail last."""
        edge, dot = self.graph.edges[j], self.dots[j]
        row = self.rows[edge.head]
        self.layers.link(self.vertex[edge.head, row], dot, 3.0)
        pull = 0.3 + share(edge.weight)
        paths = []
        for name in edge.tails:
            tail = self.vertex[name, self.rows.get(name, row + 1)]
            between = range(2 * row + 2, self.layers.layer[tail])
            path = [*(self._passing(tail, layer) for layer in between), tail]
            self.layers.link(dot, path[0], pull if name in self.rows else 0.2 * pull)
            for upper, lower in pairwise(path):
                self.layers.link(upper, lower, 4.0)
            paths.append(path)
            self.tails[self.vertex[edge.head, row]].append(tail)
        first = list(dict.fromkeys(path[0] for path in paths))
        self.layers.wished.update(pairwise(first))
        return paths

    def _passing(self, tail: int, layer: int) -> int:
        """The vertex at which lines to `tail` pass a layer above it."""
        if (tail, layer) not in self.passing:
            self.passing[tail, layer] = self.layers.add(layer, 1.0, 1.0)
        return self.passing[tail, layer]

    def _first_order(self) -> list[list[int]]:
        """Layers in the order of a walk from the goals, which meets tails from left to right."""
        count = len(self.layers.layer)
        order: list[list[int]] = [[] for _ in range(max(self.layers.layer) + 1)]
        seen = [False] * count
        stack = [*range(count - 1, -1, -1)]
        for goal in reversed(self.graph.goals):
            stack += [self.vertex[goal, row] for row in self._rows_of(goal)]
        while stack:
            vertex = stack.pop()
            if not seen[vertex]:
                seen[vertex] = True
                self.walk.append(vertex)
                order[self.layers.layer[vertex]].append(vertex)
                stack.extend(lower for lower, _ in reversed(self.layers.below[vertex]))
        return order

    def _ranks(self) -> dict[int, float]:
        """For each item its place, or the middle of the leaves below it, as the walk met them.

        For a chart that is the middle of the span. Axioms without a place that several edges share
        (a rule, say) get no rank.
        """
        met = {vertex: float(i) for i, vertex in enumerate(self.walk)}
        uses = Counter(tail for edge in self.graph.edges for tail in edge.tails)
        spans: dict[int, tuple[float, float]] = {}
        # A walk meets a vertex after some head of it, not after all: rows give the safe order.
        for vertex in sorted(self.shown, key=lambda v: -self.layers.layer[v]):
            node = self.graph.nodes[self.shown[vertex]]
            below = [spans[v] for v in self.tails[vertex] if v in spans]
            if node.place is not None:
                spans[vertex] = (node.place, node.place)
            elif below:
                spans[vertex] = (min(lo for lo, _ in below), max(hi for _, hi in below))
            elif node.id in self.rows or uses[node.id] == 1:
                spans[vertex] = (met[vertex], met[vertex])
        # Ties, such as the states at one position of a chain, stand in the order of the walk.
        return {v: (lo + hi) / 2 + met[v] / 1e6 for v, (lo, hi) in spans.items()}


def _item_rows(graph: Graph) -> dict[NodeId, int]:
    """The row of each derived item and goal: unused goals at the top, the rest by level."""
    used = {tail for edge in graph.edges for tail in edge.tails}
    heads = {edge.head for edge in graph.edges}
    top = {goal for goal in graph.goals if goal not in used}
    derived = {n.id for n in graph.nodes if n.kind != "axiom" or n.id in heads} - top
    levels = sorted({n.level for n in graph.nodes if n.id in derived}, reverse=True)
    row_of = {level: row for row, level in enumerate(levels, 1 if top else 0)}
    rows = {n.id: row_of[n.level] for n in graph.nodes if n.id in derived}
    return rows | dict.fromkeys(top, 0)


def _labelled(graph: Graph) -> list[bool]:
    """Whether an edge's posterior is written beside its dot: only if its head has a few edges."""
    ways: dict[NodeId, int] = defaultdict(int)
    for edge in graph.edges:
        ways[edge.head] += 1
    return [e.weight is not None and 1 < ways[e.head] <= LABELLED_EDGES for e in graph.edges]


def _rows(plan: _Plan, x: list[float]) -> tuple[list[float], list[float]]:
    """Top and height of each row; the further the lines below it reach, the more room there is."""
    layers = plan.layers
    count = max(layers.layer) // 2 + 1
    heights = [BOX_HEIGHT["axiom"]] * count
    for vertex, number in plan.shown.items():
        row = layers.layer[vertex] // 2
        heights[row] = max(heights[row], BOX_HEIGHT[plan.graph.nodes[number].kind])
    reach = [0.0] * count
    for upper, links in enumerate(layers.below):
        row, between = divmod(layers.layer[upper], 2)
        if between:
            reach[row] = max([reach[row], *(abs(x[upper] - x[lower]) for lower, _ in links)])
    tops = [MARGIN]
    for row in range(count - 1):
        fall = min(max(28.0, 14.0 + reach[row] / 7), 90.0)
        tops.append(tops[row] + heights[row] + DOT_DROP + fall)
    return tops, heights
