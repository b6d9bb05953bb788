"""Forests as plain data for drawing, and drawn as text and HTML."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from inout.kernels.forest import op
from inout.kernels.forest.arrays import ForestArrays
from inout.viz import Graph, HyperEdge, Node, page, svg, text

if TYPE_CHECKING:
    from inout.forest.forest import Forest

# Larger forests are cut down before labels are made; nobody reads more in a picture.
MOST_ITEMS = 400
MOST_EDGES_OF_AN_ITEM = 32


def as_graph(forest: Forest, max_items: int = MOST_ITEMS) -> Graph:
    """The part of the forest met first from the goals along its likeliest edges."""
    arrays = forest.arrays
    with torch.no_grad():
        counts = forest.expected_counts().double().cpu().numpy()
        shares = op.edge_probabilities(arrays, forest.item_weights, forest.tier).cpu().numpy()
    posteriors = shares * counts[arrays.heads]
    shown = _likeliest_items(arrays, posteriors, max_items)
    level = np.searchsorted(arrays.level_offsets, shown, side="right") - 1
    nodes = [
        Node(
            item,
            str(forest.labels[item]),
            "axiom" if item < arrays.num_axioms else "item",
            float(counts[item]),
            int(height),
        )
        for item, height in zip(shown, level, strict=True)
    ]
    visible = set(shown)
    edges = [
        HyperEdge(item, tails, float(posteriors[edge]))
        for item in shown
        for edge in _likeliest_edges(arrays, posteriors, item)
        if visible.issuperset(tails := _tails(arrays, edge))
    ]
    goals = arrays.goals.tolist()
    return Graph(nodes, edges, goals, arrays.num_items, arrays.num_edges)


def _tails(arrays: ForestArrays, edge: int) -> tuple[int, ...]:
    first, last = arrays.tail_offsets[edge], arrays.tail_offsets[edge + 1]
    return tuple(arrays.tails[first:last].tolist())


def _likeliest_edges(arrays: ForestArrays, posteriors: NDArray[np.float64], item: int) -> list[int]:
    first, last = arrays.edge_offsets[item], arrays.edge_offsets[item + 1]
    best = np.argsort(-posteriors[first:last], kind="stable")[:MOST_EDGES_OF_AN_ITEM]
    return sorted((first + best).tolist())


def _likeliest_items(
    arrays: ForestArrays, posteriors: NDArray[np.float64], max_items: int
) -> list[int]:
    """At most `max_items` items, best first search from the goals, in topological order."""
    waiting = [(-np.inf, goal) for goal in arrays.goals.tolist()]
    found: set[int] = set()
    while waiting and len(found) < max_items:
        _, item = heapq.heappop(waiting)
        if item in found:
            continue
        found.add(item)
        for edge in _likeliest_edges(arrays, posteriors, item):
            for tail in _tails(arrays, edge):
                heapq.heappush(waiting, (-float(posteriors[edge]), tail))
    return sorted(found | set(arrays.goals.tolist()))


def as_text(forest: Forest, max_items: int) -> str:
    """Items from the goals down with their edges and posteriors."""
    return text.forest(as_graph(forest), max_items)


def as_html(forest: Forest) -> str:
    """A fragment for notebooks: a line of facts and the drawing."""
    return page.fragment(page.paragraph(repr(forest)), svg.forest(as_graph(forest)))
