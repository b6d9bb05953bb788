"""Names of items: `Item`, and sequences that make them only when someone looks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from inout._core.lazy import LazySequence


@dataclass(frozen=True, slots=True)
class Item:
    """A ground term such as beta("S",0,5)."""

    relation: str
    arguments: tuple[Hashable, ...] = ()

    def __str__(self) -> str:
        if not self.arguments:
            return self.relation
        return f"{self.relation}({','.join(format_value(a) for a in self.arguments)})"


def format_value(value: Hashable) -> str:
    """A constant as the equation language writes it."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        return "[" + ",".join(format_value(v) for v in value) + "]"
    return str(value)


class LazyLabels(LazySequence[Hashable]):
    """Base of label sequences that compute one label at a time."""

    def label(self, index: int) -> Hashable:
        """The label of item `index`, 0 <= index < len."""
        raise NotImplementedError

    def _made(self, index: int) -> Hashable:
        return self.label(index)


class NumberLabels(LazyLabels):
    """Items called by their numbers."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def label(self, index: int) -> Hashable:
        """The number itself."""
        return index


class SelectedLabels(LazyLabels):
    """Some labels of another sequence, in another order."""

    def __init__(self, labels: Sequence[Hashable], chosen: np.ndarray) -> None:
        self._labels, self._chosen = labels, chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def label(self, index: int) -> Hashable:
        """The label of the chosen item."""
        return self._labels[int(self._chosen[index])]


@dataclass(frozen=True, slots=True)
class BatchedItem:
    """An item of the `element`-th forest of a batch."""

    element: int
    item: Hashable

    def __str__(self) -> str:
        return f"{self.element}:{self.item}"


class BatchLabels(LazyLabels):
    """Labels of a disjoint union: which forest, which item."""

    def __init__(
        self, parts: list[Sequence[Hashable]], elements: np.ndarray, places: np.ndarray
    ) -> None:
        self._parts, self._elements, self._places = parts, elements, places

    def __len__(self) -> int:
        return len(self._elements)

    def label(self, index: int) -> Hashable:
        """The item with the number of its forest."""
        element = int(self._elements[index])
        return BatchedItem(element, self._parts[element][int(self._places[index])])
