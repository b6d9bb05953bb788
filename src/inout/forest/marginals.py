"""`Marginals`: expected counts looked up by label."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property

from jaxtyping import Float
from torch import Tensor


class Marginals(Mapping[Hashable, float]):
    """Expected count of each item by label; `tensor` [v] holds them by number, with gradient.

    Items with the same label (a fact given twice) are added up.
    """

    def __init__(self, labels: Sequence[Hashable], tensor: Float[Tensor, " v"]) -> None:
        self.labels, self.tensor = labels, tensor

    @cached_property
    def _by_label(self) -> dict[Hashable, float]:
        table: dict[Hashable, float] = {}
        for label, count in zip(self.labels, self.tensor.tolist(), strict=True):
            table[label] = table.get(label, 0.0) + count
        return table

    def __getitem__(self, label: Hashable) -> float:
        return self._by_label[label]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._by_label)

    def __len__(self) -> int:
        return len(self._by_label)

    def __repr__(self) -> str:
        rows = ", ".join(f"{label}: {count:.4g}" for label, count in list(self.items())[:6])
        return f"Marginals({{{rows}{', …' if len(self) > 6 else ''}}})"
