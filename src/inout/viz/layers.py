"""Layered drawing (Sugiyama, Tagawa and Toda 1981): order within layers, then x coordinates."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

SWEEPS = 24
ROUNDS = 40
# The number of crossings that one wish outweighs.
WISH = 4


@dataclass(slots=True)
class Layers:
    """Vertices in layers from the top, and links that join a layer to the next one below.

    A vertex is a number with an extent to the left and to the right of its axis. The
    weight of a link says how short it should be. `wished[a, b]` counts the wishes for a to the left
    of b, in the same layer. Vertices with a `rank` always stay in the order of their ranks. The
    search for a good order starts from `order`.
    """

    layer: list[int] = field(default_factory=list)
    left: list[float] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
    above: list[list[tuple[int, float]]] = field(default_factory=list)
    below: list[list[tuple[int, float]]] = field(default_factory=list)
    wished: Counter[tuple[int, int]] = field(default_factory=Counter)
    rank: dict[int, float] = field(default_factory=dict)
    order: list[list[int]] = field(default_factory=list)

    def add(self, layer: int, left: float, right: float) -> int:
        """The number of a new vertex."""
        self.layer.append(layer)
        self.left.append(left)
        self.right.append(right)
        self.above.append([])
        self.below.append([])
        return len(self.layer) - 1

    def link(self, upper: int, lower: int, weight: float) -> None:
        """Join two vertices of neighbouring layers, unless they are joined already."""
        if all(other != lower for other, _ in self.below[upper]):
            self.below[upper].append((lower, weight))
            self.above[lower].append((upper, weight))


def reduce_crossings(layers: Layers) -> list[list[int]]:
    """Orders of the layers with few crossings: barycentre sweeps and swaps, the best one kept.

    The first sweep goes upwards, so that the order at the bottom, where the walk that made
    `layers.order` met the leaves, decides the rest. O(sweeps * links * log links) time without
    the swaps, which take the product of the neighbours' degrees.
    """
    order = [list(layer) for layer in layers.order]
    for layer in order:
        _restore_ranks(layers, layer)
    best, least = [list(layer) for layer in order], _cost(layers, order)
    for sweep in range(SWEEPS):
        if least == 0:
            break
        down = sweep % 2 == 1
        neighbours = layers.above if down else layers.below
        turns = range(1, len(order)) if down else range(len(order) - 2, -1, -1)
        for turn in turns:
            fixed = order[turn - 1] if down else order[turn + 1]
            place = {vertex: i for i, vertex in enumerate(fixed)}
            _sort_by_mean(order[turn], neighbours, place)
            _restore_ranks(layers, order[turn])
        _swap_neighbours(layers, order)
        cost = _cost(layers, order)
        if cost < least:
            best, least = [list(layer) for layer in order], cost
    return best


def _sort_by_mean(
    layer: list[int], neighbours: list[list[tuple[int, float]]], place: dict[int, int]
) -> None:
    means: dict[int, float] = {}
    last = -1.0
    for vertex in layer:
        near = [place[other] for other, _ in neighbours[vertex]]
        # A vertex without neighbours stays beside the one before it.
        last = means[vertex] = sum(near) / len(near) if near else last
    layer.sort(key=means.__getitem__)


def _restore_ranks(layers: Layers, layer: list[int]) -> None:
    """Sort the ranked vertices by rank, within the places that they hold."""
    places = [i for i, vertex in enumerate(layer) if vertex in layers.rank]
    ranked = sorted((layer[i] for i in places), key=layers.rank.__getitem__)
    for i, vertex in zip(places, ranked, strict=True):
        layer[i] = vertex


def _swap_neighbours(layers: Layers, order: list[list[int]]) -> None:
    """Swap neighbours wherever that saves crossings."""
    place = {vertex: i for layer in order for i, vertex in enumerate(layer)}
    wished = layers.wished
    for layer in order:
        for i in range(len(layer) - 1):
            a, b = layer[i], layer[i + 1]
            if a in layers.rank and b in layers.rank:
                continue
            saved = WISH * (wished[b, a] - wished[a, b])
            for links in (layers.above, layers.below):
                for x, _ in links[a]:
                    for y, _ in links[b]:
                        saved += (place[x] > place[y]) - (place[x] < place[y])
            if saved > 0:
                layer[i], layer[i + 1] = b, a
                place[a], place[b] = i + 1, i


def _cost(layers: Layers, order: list[list[int]]) -> int:
    """The number of crossings, plus a penalty for each wish that is not met."""
    total = 0
    for upper, lower in pairwise(order):
        place = {vertex: i for i, vertex in enumerate(lower)}
        seen: list[int] = []
        for vertex in upper:
            ends = [place[other] for other, _ in layers.below[vertex]]
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    place = {vertex: i for layer in order for i, vertex in enumerate(layer)}
    against = sum(n for (a, b), n in layers.wished.items() if place[a] > place[b])
    return total + WISH * against


def coordinates(layers: Layers, order: list[list[int]], gap: float) -> list[float]:
    """The x of every vertex: close to its neighbours' mean, in order, at least `gap` apart.

    Each layer in turn is solved exactly as a least-squares problem with the distances as
    constraints (isotonic regression by pooling), O(vertices) per layer.
    """
    x = [0.0] * len(layers.layer)
    for layer in order:
        _place(layers, layer, [0.0] * len(layer), [1.0] * len(layer), gap, x)
    for turn in range(ROUNDS):
        down = turn % 2 == 0
        # First one side at a time, to travel far; then both sides, to come to rest.
        both = turn >= ROUNDS // 3
        for layer in order if down else reversed(order):
            wanted, weights = [], []
            for vertex in layer:
                near = layers.above[vertex] if down else layers.below[vertex]
                if both:
                    near = layers.above[vertex] + layers.below[vertex]
                total = sum(weight for _, weight in near)
                wanted.append(sum(x[v] * w for v, w in near) / total if total else x[vertex])
                weights.append(total or 0.01)
            _place(layers, layer, wanted, weights, gap, x)
    return x


def _place(
    layers: Layers,
    layer: Sequence[int],
    wanted: Sequence[float],
    weights: Sequence[float],
    gap: float,
    x: list[float],
) -> None:
    """Write into x the places nearest to those wanted that keep order and distances."""
    starts = [0.0]
    for a, b in pairwise(layer):
        starts.append(starts[-1] + layers.right[a] + gap + layers.left[b])
    # Groups of vertices that touch: (mean, weight, number of vertices).
    groups: list[tuple[float, float, int]] = []
    for want, start, weight in zip(wanted, starts, weights, strict=False):
        mean, mass, count = want - start, weight, 1
        while groups and groups[-1][0] > mean:
            before = groups.pop()
            mean = (before[0] * before[1] + mean * mass) / (before[1] + mass)
            mass += before[1]
            count += before[2]
        groups.append((mean, mass, count))
    position = 0
    for mean, _, count in groups:
        for _ in range(count):
            x[layer[position]] = mean + starts[position]
            position += 1
