"""An `Answer` as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from inout.cli.equations.solve import Answer, GoalAnswer
from inout.cli.formats import exact, json_line, number
from inout.forest import Derivation, Forest, Item

FORMAT = "inout solve 1"
MOST_ITEMS = 100_000


def as_json(answer: Answer) -> str:
    """The whole answer as one line of JSON.

    Minus infinity is the string "-inf". Counts of derivations beyond 2**53 are strings of digits.
    """
    only = answer.goals[0] if len(answer.goals) == 1 else None
    forest = answer.forest
    items, edges = forest.num_items, forest.num_edges
    document = {
        "format": FORMAT,
        "program": answer.request.program,
        "sentence": answer.request.sentence,
        "goal": answer.request.goal,
        # Of the only goal; null if there are several, each with its own values below.
        "log_partition": None if only is None else number(only.log_partition),
        "count": None if only is None else exact(only.count),
        "entropy": None if only is None else number(only.entropy),
        "goals": [_goal(goal) for goal in answer.goals],
        "expected_counts": {
            name: [
                {
                    "row": _plain(row),
                    "log_weight": number(weight),
                    "log_outside": number(outside),
                    "count": count,
                }
                for row, weight, outside, count in zip(
                    facts.rows,
                    facts.log_weights.tolist(),
                    answer.log_outside[name],
                    answer.counts[name],
                    strict=True,
                )
            ]
            for name, facts in answer.facts.items()
        },
        "items": _items(forest) if items <= MOST_ITEMS else None,
        "notes": answer.notes,
        "sizes": {"items": items, "axioms": forest.arrays.num_axioms, "edges": edges},
        "seconds": {name: round(seconds, 6) for name, seconds in answer.seconds.items()},
    }
    return json_line(document)


def _items(forest: Forest) -> list[dict[str, Any]]:
    """Inside and outside values of the derived items."""
    derived = range(forest.arrays.num_axioms, forest.num_items)
    with torch.no_grad():
        inside, outside, counts = forest.inside(), forest.outside(), forest.expected_counts()
    return [
        {
            **_item(forest.labels[item]),
            "log_inside": number(float(inside[item])),
            "log_outside": number(float(outside[item])),
            "count": float(counts[item]),
        }
        for item in derived
    ]


def _plain(row: Iterable[Any]) -> list[str | int]:
    return [value if isinstance(value, str) else int(value) for value in row]


def _goal(goal: GoalAnswer) -> dict[str, Any]:
    return {
        **_item(goal.label),
        "log_partition": number(goal.log_partition),
        "count": exact(goal.count),
        "entropy": number(goal.entropy),
        "derivations": None if goal.best is None else [_derivation(d, goal) for d in goal.best],
    }


def _derivation(derivation: Derivation, goal: GoalAnswer) -> dict[str, Any]:
    """A tree as its nodes in preorder with their depths, so that no nesting limit applies."""
    labels = derivation.forest.labels
    return {
        "log_weight": derivation.log_weight,
        "probability": math.exp(min(derivation.log_weight - goal.log_partition, 0.0)),
        "items": [{"depth": depth, **_item(labels[item])} for item, depth in derivation.walk()],
    }


def _item(label: Any) -> dict[str, Any]:
    assert isinstance(label, Item)
    return {"item": str(label), "relation": label.relation, "arguments": list(label.arguments)}
