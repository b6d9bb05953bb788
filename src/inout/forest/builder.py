"""`ForestBuilder`: forests from axioms and edges given one at a time, in any order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from inout._core.checks import as_log_weights
from inout._core.errors import ForestError
from inout.forest.assembly import assemble
from inout.forest.forest import Forest


class ForestBuilder:
    """Collects axioms and edges in any order; `build` sorts, trims and checks them.

    Labels are any hashable values. A label that is only ever a tail has no derivation.

    >>> builder = ForestBuilder()
    >>> builder.edge("S", ["rule", "NP", "VP"])
    >>> for name, weight in [("rule", -0.5), ("NP", -1.0), ("VP", -1.5)]:
    ...     _ = builder.axiom(name, weight)
    >>> builder.build(goal="S").log_partition().item()
    -3.0
    """

    def __init__(self) -> None:
        self._relations: dict[str, list[float]] = {}
        self._axioms: dict[Hashable, tuple[str, int]] = {}
        self._edges: list[tuple[Hashable, tuple[Hashable, ...]]] = []

    def axiom(self, label: Hashable, log_weight: float = 0.0, relation: str = "axioms") -> Hashable:
        """Declare a leaf item with its log-weight, as the next row of `relation`."""
        if label in self._axioms:
            raise ForestError(f"axiom {label!s} is declared twice")
        rows = self._relations.setdefault(relation, [])
        self._axioms[label] = (relation, len(rows))
        rows.append(log_weight)
        return label

    def edge(self, head: Hashable, tails: Iterable[Hashable] = ()) -> None:
        """Say that `head` can be derived from all of `tails` together."""
        if isinstance(tails, str):
            raise ForestError(f"tails must be a list of labels. Got the string {tails!r}")
        self._edges.append((head, tuple(tails)))

    def build(
        self,
        goal: Hashable = None,
        goals: Sequence[Hashable] | None = None,
        log_weights: Mapping[str, Tensor] | None = None,
    ) -> Forest:
        """The forest below one `goal`, or below several `goals`.

        `log_weights` replaces the weights of whole relations by tensors, so that gradients reach
        them: {"axioms": tensor of one value per axiom in the order declared}.
        """
        if (goal is None) == (goals is None):
            raise ForestError("build needs either goal= or goals=")
        chosen = [goal] if goals is None else list(goals)
        if not chosen:
            raise ForestError("build needs at least one goal")
        numbers = {label: i for i, label in enumerate(self._axioms)}
        for head, tails in self._edges:
            if head in self._axioms:
                raise ForestError(f"{head!s} is an axiom and cannot also be derived by an edge")
            for label in (head, *tails):
                numbers.setdefault(label, len(numbers))
        for label in chosen:
            if label not in numbers:
                raise ForestError(f"goal {label!s} is neither an axiom nor the head of an edge")

        relations = self._weights(log_weights or {})
        firsts = dict(
            zip(relations, np.cumsum([0, *(len(r) for r in relations.values())]), strict=False)
        )
        rows = [int(firsts[name]) + row for name, row in self._axioms.values()]
        lengths = [len(tails) for _, tails in self._edges]
        fields = assemble(
            np.array([numbers[head] for head, _ in self._edges], dtype=np.int32),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.array([numbers[t] for _, tails in self._edges for t in tails], dtype=np.int32),
            relations,
            np.array(rows, dtype=np.int64),
            np.array([numbers[label] for label in chosen], dtype=np.int64),
            list(numbers),
        )
        return Forest(**fields, single_goal=goals is None)

    def _weights(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if unknown := set(given) - set(self._relations):
            raise ForestError(f"log_weights names relations without axioms: {sorted(unknown)}")
        weights = {
            name: as_log_weights(f"log_weights of {name!r}", given.get(name, values), len(values))
            for name, values in self._relations.items()
        }
        return weights or {"axioms": torch.zeros(0, dtype=torch.float64)}
