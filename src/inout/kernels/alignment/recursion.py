"""The inside pass over a lattice in torch, over any algebra: logs, or lanes of moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Inexact, Int
from torch import Tensor

from inout.kernels.alignment.lattice import Lattice, Move, Plane

# Of all lanes of a step and a layer: tensors [... b lanes].
Item = Any


@runtime_checkable
class Algebra(Protocol):
    """What is made for nodes."""

    def start(self) -> Item:
        """The first step: lane 0 is alive, the others are dead."""

    def dead(self) -> Item:
        """A step at which nothing is alive."""

    def sum(self, step: int, terms: Sequence[tuple[int, Item]]) -> Item:
        """The sum over moves, given by number with their sources, moved to the targets' lanes."""

    def moved(self, item: Item) -> Item:
        """Lane j at lane j + 1; the first is dead."""


def sweep(lattice: Lattice, rows: int, columns: int, algebra: Algebra) -> list[list[Item]]:
    """The layers' items at each step."""
    dead = [algebra.dead()] * lattice.layers
    found = [[algebra.start(), *dead[1:]]]
    for step in range(1, lattice.steps(rows, columns) + 1):
        items = []
        for layer in range(lattice.layers):
            terms = []
            for number, move in enumerate(lattice.moves):
                before = step - _length(lattice, move)
                if move.target == layer and before >= 0:
                    item = found[before][move.source]
                    terms.append((number, algebra.moved(item) if move.columns else item))
            items.append(algebra.sum(step, terms) if terms else algebra.dead())
        found.append(items)
    return found


def _length(lattice: Lattice, move: Move) -> int:
    return move.rows + lattice.slope * move.columns


def by_step(
    lattice: Lattice,
    table: Inexact[Tensor, "*k b r c"],
    plane: Plane,
    sizes: Int[Tensor, "b 2"],
    end: int,
) -> tuple[Inexact[Tensor, "*k b s j"], Bool[Tensor, "b s j"]]:
    """What the nodes read in a table, by step and lane up to the last lane; and which read any.

    Entries that no node of an element reads may be anything.
    """
    row, column, more_rows, more_columns = plane
    steps = lattice.steps(int(sizes[:, 0].max()), int(sizes[:, 1].max())) if len(sizes) else 0
    lane = torch.arange(end + 1, device=table.device)
    rank = torch.arange(steps + 1, device=table.device)[:, None]
    i, j = rank - lattice.slope * lane - row, lane.expand(steps + 1, -1) - column
    n, m = (x[:, None, None] for x in sizes.unbind(1))
    real = (i >= 0) & (i < n + more_rows) & (j >= 0) & (j < m + more_columns)
    places = [
        x.clamp(min=0, max=max(size - 1, 0)) * (size > 1)
        for x, size in zip((i, j), table.shape[-2:], strict=True)
    ]
    flat = (places[0] * table.shape[-1] + places[1]).reshape(-1)
    if table.shape[-2:].numel() == 0:
        return table.new_zeros(*table.shape[:-2], steps + 1, end + 1), real
    found = table.flatten(-2).index_select(-1, flat)
    return found.reshape(*table.shape[:-2], steps + 1, end + 1), real


def at_ends(
    lattice: Lattice, found: Sequence[Inexact[Tensor, "*k b j"]], sizes: Int[Tensor, "b 2"]
) -> Inexact[Tensor, "*k b"]:
    """What the last node of each element has, of what all steps have."""
    steps = torch.stack(list(found), -2)
    place = (sizes[:, 0] + lattice.slope * sizes[:, 1]) * steps.shape[-1] + sizes[:, 1]
    flat = steps.flatten(-2)
    return flat.gather(-1, place[:, None].expand(*flat.shape[:-1], 1))[..., 0]
