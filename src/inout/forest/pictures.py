"""Forests as plain data for drawing, and drawn as text and HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from inout.kernels.forest import op
from inout.viz import Graph, HyperEdge, Node, page, svg, text

if TYPE_CHECKING:
    from inout.forest.forest import Forest

# Forests beyond this are cut down before labels are made; nobody reads more in a picture.
MOST_ITEMS = 400


def as_graph(forest: Forest, max_items: int = MOST_ITEMS) -> Graph:
    """The items used most (always with the goals) and the edges between them."""
    arrays = forest.arrays
    with torch.no_grad():
        counts = forest.expected_counts().double().cpu().numpy()
        shares = op.edge_probabilities(arrays, forest.item_weights, forest.tier).cpu().numpy()
    ranks = counts + np.where(np.isin(np.arange(arrays.num_items), arrays.goals), np.inf, 0.0)
    shown = np.sort(np.argsort(-ranks, kind="stable")[:max_items])
    visible = np.zeros(arrays.num_items, dtype=bool)
    visible[shown] = True
    level = np.repeat(np.arange(len(arrays.level_offsets) - 1), np.diff(arrays.level_offsets))
    nodes = [
        Node(
            int(item),
            str(forest.labels[int(item)]),
            "axiom" if item < arrays.num_axioms else "item",
            float(counts[item]),
            int(level[item]),
        )
        for item in shown
    ]
    edges = []
    for item in shown:
        for edge in range(arrays.edge_offsets[item], arrays.edge_offsets[item + 1]):
            tails = arrays.tails[arrays.tail_offsets[edge] : arrays.tail_offsets[edge + 1]]
            if visible[tails].all():
                weight = float(shares[edge] * counts[item])
                edges.append(HyperEdge(int(item), tuple(tails.tolist()), weight))
    return Graph(nodes, edges, arrays.goals.tolist())


def as_text(forest: Forest, max_items: int) -> str:
    """Items from the goals down with their edges and posteriors."""
    return text.forest(as_graph(forest), max_items)


def as_html(forest: Forest) -> str:
    """A fragment for notebooks: a line of facts and the drawing."""
    return page.fragment(page.paragraph(repr(forest)), svg.forest(as_graph(forest)))
