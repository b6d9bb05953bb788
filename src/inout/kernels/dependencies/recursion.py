"""Eisner's algorithm over any algebra of items in torch: the readable one, by width.

See `cpu/chart.py` for the items. An item of all places, a tuple of tensors [... count], holds
i..i+width at its last index i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from inout.kernels.shapes import Lengths

Item = tuple[Tensor, ...]


@runtime_checkable
class Algebra(Protocol):
    """Sums and products of items."""

    def one(self, count: int) -> Item:
        """The unit."""

    def sum(self, terms: Sequence[Sequence[Item]]) -> Item:
        """The sum of the products of the factors of each term."""

    def link(self, offset: int) -> Item:
        """Weights of the arcs from i to i + offset, or from i - offset to i, for all i."""

    def sibling(self, offset: int, inner: int) -> Item:
        """Weights of siblings: head i, dependent i + offset, and i + inner between them.

        As for `link`, i is the dependent if the offset is negative, and inner is from there.
        """

    def without_first(self, item: Item) -> Item:
        """The item, zero at the first place."""


def cut(item: Item, first: int, count: int) -> Item:
    """Places first..first+count-1 of an item."""
    return tuple(x[..., first : first + count] for x in item)


def eisner(algebra: Algebra, n: int, single_root: bool, siblings: bool) -> list[Item]:
    """The items right(0, j) for j = 0..n, each with one place."""
    right, left = [algebra.one(n + 1)], [algebra.one(n + 1)]
    gap: list[Item] = [()]
    outer: list[Item] = [()]  # arcs to the right, by width
    back: list[Item] = [()]  # arcs to the left
    # What may follow in row 0: nothing but the first dependent, if there is only one root.
    halves: list[Item] = [right[0]]
    chains: list[Item] = [()]
    for width in range(1, n + 1):
        count = n + 1 - width
        terms = [
            (cut(halves[k], 0, count), cut(left[width - 1 - k], k + 1, count)) for k in range(width)
        ]
        gap.append(algebra.sum(terms))
        ahead, behind = algebra.link(width), algebra.link(-width)
        if siblings:
            first: list[Sequence[Item]] = [(ahead, cut(left[width - 1], 1, count))]
            first += [
                (ahead, algebra.sibling(width, k), cut(chains[k], 0, count),
                 cut(gap[width - k], k, count))
                for k in range(1, width)
            ]  # fmt: skip
            outer.append(algebra.sum(first))
            last: list[Sequence[Item]] = [(behind, cut(right[width - 1], 0, count))]
            last += [
                (behind, algebra.sibling(-width, k), cut(back[width - k], k, count),
                 cut(gap[k], 0, count))
                for k in range(1, width)
            ]  # fmt: skip
            back.append(algebra.sum(last))
        else:
            outer.append(algebra.sum([(ahead, gap[-1])]))
            back.append(algebra.sum([(behind, gap[-1])]))
        chains.append(algebra.without_first(outer[-1]) if single_root else outer[-1])
        right.append(
            algebra.sum(
                [
                    (cut(outer[k], 0, count), cut(right[width - k], k, count))
                    for k in range(1, width + 1)
                ]
            )
        )
        left.append(
            algebra.sum(
                [(cut(left[k], 0, count), cut(back[width - k], k, count)) for k in range(width)]
            )
        )
        halves.append(algebra.without_first(right[-1]) if single_root else right[-1])
    return [cut(item, 0, 1) for item in right]


def of_lengths(items: Sequence[Tensor], lengths: Lengths) -> Tensor:
    """Tensors [... b 1] for each number of words -> [... b], those of the elements' lengths."""
    element = torch.arange(len(lengths), device=lengths.device)
    return torch.stack([x[..., 0] for x in items], -1)[..., element, lengths]


def placed(table: Tensor, offset: int) -> Tensor:
    """Entries [i, i + offset], or [i - offset, i], of the last two dimensions of a table."""
    return table.diagonal(offset, -2, -1)


def placed_siblings(table: Tensor, offset: int, inner: int) -> Tensor:
    """Entries (head, dependent, sibling) of a table [... N N N] as in `Algebra.sibling`."""
    place = torch.arange(table.shape[-1] - abs(offset), device=table.device)
    if offset > 0:
        return table[..., place, place + offset, place + inner]
    return table[..., place - offset, place, place + inner]
