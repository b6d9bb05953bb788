"""Forests as JSON, as Graphviz text, and as pictures in text and HTML."""

from __future__ import annotations

import heapq
import json
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from inout._core.checks import as_log_weights
from inout._core.errors import ArgumentError, FileError
from inout.forest.assembly import assemble
from inout.forest.expectations import item_and_edge_posteriors
from inout.forest.labels import Item
from inout.kernels.forest.arrays import ForestArrays
from inout.viz import Graph, HyperEdge, Node
from inout.viz.labels import log_values

if TYPE_CHECKING:
    from inout.forest.forest import Forest

FORMAT = "inout forest 1"
# Larger forests are cut down before labels are made; nobody reads more in a picture.
MOST_ITEMS = 400
MOST_EDGES_WITH_VALUES = 10**6  # larger forests are drawn without inside and outside values
MOST_EDGES_OF_AN_ITEM = 32


def to_json(forest: Forest) -> str:
    """Items with their labels, axioms' weights and rows, edges, goals."""
    arrays = forest.arrays
    document = {
        "format": FORMAT,
        "items": [_write_label(label) for label in forest.labels],
        "relations": {
            name: [w if w > -torch.inf else "-inf" for w in weights.detach().double().tolist()]
            for name, weights in forest.relations.items()
        },
        "axiom_rows": forest.axiom_rows.tolist(),
        "edges": [[head, _tails(arrays, e)] for e, head in enumerate(arrays.heads.tolist())],
        "goals": arrays.goals.tolist(),
        "single_goal": forest.single_goal,
    }
    return json.dumps(document, ensure_ascii=False)


def from_json(document: str) -> dict[str, Any]:
    """The fields of the `Forest` that `to_json` wrote."""
    try:
        data = json.loads(document)
        if data["format"] != FORMAT:
            raise FileError(f"expected a document of format {FORMAT!r}. Got {data['format']!r}")
        labels = [_read_label(label) for label in data["items"]]
        relations = {
            name: as_log_weights(f"relations[{name!r}]", [float(w) for w in values], len(values))
            for name, values in data["relations"].items()
        }
        tails = [edge[1] for edge in data["edges"]]
        numbers = [number for edge in data["edges"] for number in (edge[0], *edge[1])]
        if any(not 0 <= number < len(labels) for number in [*numbers, *data["goals"]]):
            raise FileError("an edge or goal names an item that is not in the document")
        axiom_rows, num_rows = data["axiom_rows"], sum(len(rows) for rows in relations.values())
        if any(not 0 <= row < num_rows for row in axiom_rows) or len(axiom_rows) > len(labels):
            raise FileError(f"axiom_rows must name rows of the relations. Got {axiom_rows!r:.80}")
        if any(edge[0] < len(axiom_rows) for edge in data["edges"]):
            raise FileError("an edge has an axiom for its head")
        fields = assemble(
            np.array([edge[0] for edge in data["edges"]], dtype=np.int32),
            np.concatenate([[0], np.cumsum([len(t) for t in tails])]).astype(np.int64),
            np.array([item for t in tails for item in t], dtype=np.int32),
            relations or {"axioms": torch.zeros(0, dtype=torch.float64)},
            np.array(axiom_rows, dtype=np.int64),
            np.array(data["goals"], dtype=np.int64),
            labels,
        )
        return {**fields, "single_goal": bool(data["single_goal"])}
    except (ValueError, KeyError, TypeError, IndexError, ArgumentError) as error:
        raise FileError(f"this is not a forest written by to_json: {error!r}") from error


def _write_label(label: Hashable) -> Any:
    if isinstance(label, Item):
        return {"relation": label.relation, "arguments": list(label.arguments)}
    return label if isinstance(label, str | int | float | tuple) else str(label)


def _read_label(label: Any) -> Hashable:
    if isinstance(label, dict):
        return Item(label["relation"], tuple(map(_read_label, label["arguments"])))
    return tuple(map(_read_label, label)) if isinstance(label, list) else label


def to_graphviz(forest: Forest) -> str:
    """A digraph: boxes for items (grey for axioms, double for goals), points for edges."""
    arrays = forest.arrays
    goals = set(arrays.goals.tolist())
    lines = ["digraph forest {", "  node [shape=box, fontname=sans];"]
    for item, label in enumerate(forest.labels):
        name = str(label).replace("\\", "\\\\").replace('"', '\\"')
        style = ", style=filled, fillcolor=gray92" if item < arrays.num_axioms else ""
        style += ", peripheries=2" if item in goals else ""
        lines.append(f'  i{item} [label="{name}"{style}];')
    for edge, head in enumerate(arrays.heads.tolist()):
        lines.append(f"  e{edge} [shape=point];")
        lines.append(f"  i{head} -> e{edge} [arrowhead=none];")
        lines.extend(
            f'  e{edge} -> i{tail} [taillabel="{k}"];'
            for k, tail in enumerate(_tails(arrays, edge), 1)
        )
    return "\n".join([*lines, "}"]) + "\n"


def as_graph(forest: Forest, max_items: int = MOST_ITEMS) -> Graph:
    """The likeliest part of the forest, by best-first search from the goals."""
    arrays = forest.arrays
    counts, posteriors = item_and_edge_posteriors(forest)
    shown = _likeliest_items(arrays, posteriors, max_items)
    level = np.searchsorted(arrays.level_offsets, shown, side="right") - 1
    kinds = ["axiom" if item < arrays.num_axioms else "item" for item in shown]
    notes = [""] * len(shown)
    if arrays.num_edges <= MOST_EDGES_WITH_VALUES:
        with torch.no_grad():
            values = torch.stack([forest.inside(), forest.outside()])[:, shown].T.tolist()
        notes = [log_values(*pair) for pair in values]
    nodes = [
        Node(item, str(forest.labels[item]), kind, float(counts[item]), int(height), note=note)
        for item, kind, height, note in zip(shown, kinds, level, notes, strict=True)
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
    """At most `max_items` items by best-first search from the goals, in topological order."""
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
