"""All derivations of a small forest, one by one, in plain Python; shares no code with the library.

The numbers may be of any type: floats or `Fraction`s with `operator.mul`, log-weights with
`operator.add`.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any


@dataclass(frozen=True)
class Derivation:
    """One tree: its weight, its edges and its items in preorder (parents first, left to right)."""

    weight: Any
    edges: tuple[int, ...]
    items: tuple[int, ...]

    def item_counts(self, num_items: int) -> list[int]:
        """How often every item occurs in the tree; the root and the axioms are items too."""
        counts = Counter(self.items)
        return [counts[item] for item in range(num_items)]


class EnumeratedForest:
    """The derivations of every item of a forest given as arrays, made when asked for.

    `weights` has one number for every item. The weight of a derivation is the product of the
    weights of its item occurrences, so that of an edge is one.
    """

    def __init__(
        self,
        num_axioms: int,
        edge_offsets: Sequence[int],
        tail_offsets: Sequence[int],
        tails: Sequence[int],
        weights: Sequence[Any],
        times: Callable[[Any, Any], Any] = operator.mul,
        one: Any = 1,
    ) -> None:
        self.num_axioms = num_axioms
        self.weights = list(weights)
        self.times, self.one = times, one
        self.tails = [
            tuple(int(t) for t in tails[tail_offsets[e] : tail_offsets[e + 1]])
            for e in range(len(tail_offsets) - 1)
        ]
        self.edges = [
            range(int(edge_offsets[i]), int(edge_offsets[i + 1]))
            for i in range(len(edge_offsets) - 1)
        ]
        self._derivations: dict[int, list[Derivation]] = {}
        self._ordered: dict[int, list[Derivation]] = {}

    def derivations(self, item: int) -> list[Derivation]:
        """Every derivation of the item, those of weight zero too."""
        if item not in self._derivations:
            self._derivations[item] = list(self._make(item))
        return self._derivations[item]

    def _make(self, item: int) -> Iterator[Derivation]:
        if item < self.num_axioms:
            yield Derivation(self.weights[item], (), (item,))
            return
        for edge in self.edges[item]:
            for children in product(*(self.derivations(t) for t in self.tails[edge])):
                yield self._join(item, edge, children)

    def _join(self, item: int, edge: int, children: Sequence[Derivation]) -> Derivation:
        weight = self.weights[item]
        for child in children:
            weight = self.times(weight, child.weight)
        return Derivation(
            weight,
            (edge, *(e for child in children for e in child.edges)),
            (item, *(i for child in children for i in child.items)),
        )

    def ordered(self, item: int) -> list[Derivation]:
        """Every derivation of the item in the order the k-best list promises.

        Decreasing weight, then the edge at the top, then the places of the children in their own
        lists from left to right. The weights must be exact (integers, fractions).
        """
        if item not in self._ordered:
            if item < self.num_axioms:
                result = self.derivations(item)
            else:
                keyed = []
                for edge in self.edges[item]:
                    ranked = (list(enumerate(self.ordered(t))) for t in self.tails[edge])
                    for children in product(*ranked):
                        tree = self._join(item, edge, [child for _, child in children])
                        ranks = tuple(rank for rank, _ in children)
                        keyed.append(((-tree.weight, edge, ranks), tree))
                result = [tree for _, tree in sorted(keyed, key=lambda pair: pair[0])]
            self._ordered[item] = result
        return self._ordered[item]

    def total(self, item: int, zero: Any = 0) -> Any:
        """The sum of the weights of all derivations of the item."""
        return sum((tree.weight for tree in self.derivations(item)), zero)


def count_derivations(
    num_axioms: int, edge_offsets: Sequence[int], tail_offsets: Sequence[int], tails: Sequence[int]
) -> list[int]:
    """Number of derivations of every item, an exact integer, without making them."""
    counts = [1] * num_axioms
    for item in range(num_axioms, len(edge_offsets) - 1):
        total = 0
        for edge in range(edge_offsets[item], edge_offsets[item + 1]):
            ways = 1
            for t in tails[tail_offsets[edge] : tail_offsets[edge + 1]]:
                ways *= counts[t]
            total += ways
        counts.append(total)
    return counts
