"""`Levels`: a forest's edges as torch index matrices, level by level and arity by arity."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from inout.kernels.forest.arrays import ForestArrays


@dataclass(frozen=True, eq=False)
class EdgeGroup:
    """Edges of one level with the same number of tails."""

    edges: Int[Tensor, " n"]
    heads: Int[Tensor, " n"]  # counted from the first item of the level
    tails: Int[Tensor, "n arity"]


@dataclass(frozen=True, eq=False)
class Level:
    """Derived items first..last-1 and all their edges."""

    first: int
    last: int
    groups: tuple[EdgeGroup, ...]


_CACHE: WeakKeyDictionary[ForestArrays, dict[torch.device, tuple[Level, ...]]] = WeakKeyDictionary()


def levels_of(arrays: ForestArrays, device: torch.device) -> tuple[Level, ...]:
    """The derived levels of a forest, lowest first, on `device` (kept as long as the forest)."""
    per_device = _CACHE.setdefault(arrays, {})
    if device not in per_device:
        per_device[device] = tuple(_build(arrays, device))
    return per_device[device]


def _build(arrays: ForestArrays, device: torch.device) -> list[Level]:
    arities = np.diff(arrays.tail_offsets)
    levels = []
    for first, last in zip(arrays.level_offsets[1:-1], arrays.level_offsets[2:], strict=True):
        edges = np.arange(arrays.edge_offsets[first], arrays.edge_offsets[last])
        groups = []
        for arity in np.unique(arities[edges]):
            chosen = edges[arities[edges] == arity]
            places = arrays.tail_offsets[chosen][:, None] + np.arange(arity)
            groups.append(
                EdgeGroup(
                    torch.from_numpy(chosen).to(device),
                    torch.from_numpy(arrays.heads[chosen].astype(np.int64) - first).to(device),
                    torch.from_numpy(arrays.tails[places].astype(np.int64)).to(device),
                )
            )
        levels.append(Level(int(first), int(last), tuple(groups)))
    return levels
