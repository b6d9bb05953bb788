"""Names of items: `Item`, and sequences that compute them lazily."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np
from numpy.typing import NDArray

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


class BlockLabels(LazySequence[Hashable]):
    """Items numbered block by block: item number (i, j, …) of a block is called name(i, j, …)."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = dict(shapes)
        sizes = [prod(shape) for shape in self.shapes.values()]
        self._firsts = dict(zip(self.shapes, accumulate([0, *sizes]), strict=False))
        self._size = sum(sizes)

    def __len__(self) -> int:
        return self._size

    def numbers(self, name: str) -> NDArray[np.int64]:
        """The numbers of a block's items, in its shape."""
        shape = self.shapes[name]
        numbers: NDArray[np.int64] = self._firsts[name] + np.arange(prod(shape)).reshape(shape)
        return numbers

    def _made(self, index: int) -> Hashable:
        name = [name for name, first in self._firsts.items() if first <= index][-1]
        place = np.unravel_index(index - self._firsts[name], self.shapes[name])
        return Item(name, tuple(int(x) for x in place))


class SelectedLabels(LazySequence[Hashable]):
    """Some labels of another sequence, in another order."""

    def __init__(self, labels: Sequence[Hashable], chosen: np.ndarray) -> None:
        self.labels, self.chosen = labels, chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def _made(self, index: int) -> Hashable:
        return self.labels[int(self.chosen[index])]


@dataclass(frozen=True, slots=True)
class BatchedItem:
    """An item of the `element`-th forest of a batch."""

    element: int
    item: Hashable

    def __str__(self) -> str:
        return f"{self.element}:{self.item}"


class BatchLabels(LazySequence[Hashable]):
    """Labels of a disjoint union: which forest, which item."""

    def __init__(
        self, parts: list[Sequence[Hashable]], elements: np.ndarray, places: np.ndarray
    ) -> None:
        self._parts, self._elements, self._places = parts, elements, places

    def __len__(self) -> int:
        return len(self._elements)

    def _made(self, index: int) -> Hashable:
        element = int(self._elements[index])
        return BatchedItem(element, self._parts[element][int(self._places[index])])
