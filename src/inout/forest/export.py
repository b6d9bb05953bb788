"""Forests as JSON and as Graphviz text."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from inout._core.checks import as_log_weights
from inout._core.errors import ArgumentError, FileError
from inout.forest.assembly import assemble
from inout.forest.labels import Item

if TYPE_CHECKING:
    from inout.forest.forest import Forest

FORMAT = "inout forest 1"


def to_json(forest: Forest) -> str:
    """Items with their labels, axioms' weights and rows, edges, goals."""
    arrays = forest.arrays
    document = {
        "format": FORMAT,
        "items": [_write_label(label) for label in forest.labels],
        "relations": {
            name: [_write_number(w) for w in weights.detach().double().tolist()]
            for name, weights in forest.relations.items()
        },
        "axiom_rows": forest.axiom_rows.tolist(),
        "edges": [
            [int(head), arrays.tails[first:last].tolist()]
            for head, first, last in zip(
                arrays.heads, arrays.tail_offsets[:-1], arrays.tail_offsets[1:], strict=True
            )
        ],
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


def _write_number(number: float) -> float | str:
    return number if number > -torch.inf else "-inf"


def _write_label(label: Hashable) -> Any:
    if isinstance(label, Item):
        return {"relation": label.relation, "arguments": list(label.arguments)}
    return label if isinstance(label, str | int | float | tuple) else str(label)


def _read_label(label: Any) -> Hashable:
    if isinstance(label, dict):
        return Item(label["relation"], tuple(_read_value(v) for v in label["arguments"]))
    return _read_value(label)


def _read_value(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(_read_value(v) for v in value)
    return value  # type: ignore[no-any-return]


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
        first, last = arrays.tail_offsets[edge], arrays.tail_offsets[edge + 1]
        lines.extend(
            f'  e{edge} -> i{tail} [taillabel="{k}"];'
            for k, tail in enumerate(arrays.tails[first:last].tolist(), 1)
        )
    return "\n".join([*lines, "}"]) + "\n"
