"""`ForestArrays`: an acyclic hypergraph in topological order; and what kernels read of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Structure(NamedTuple):
    """What every CPU kernel reads of `ForestArrays`."""

    num_axioms: int
    edge_offsets: NDArray[np.int64]  # [v+1]
    tail_offsets: NDArray[np.int64]  # [e+1]
    tails: NDArray[np.int32]  # [t]


@dataclass(frozen=True, eq=False)
class ForestArrays:
    """Items 0..v-1 stand in topological order, level by level, the axioms first (level 0).

    The edges of item i are `edge_offsets[i]:edge_offsets[i+1]`; the tails of edge j are
    `tails[tail_offsets[j]:tail_offsets[j+1]]`, left to right. An edge has no weight of its own:
    it is worth the product of its tails, and an item is worth the sum of its edges.
    """

    num_axioms: int
    edge_offsets: NDArray[np.int64]  # [v+1]
    tail_offsets: NDArray[np.int64]  # [e+1]
    tails: NDArray[np.int32]  # [t]
    level_offsets: NDArray[np.int64]  # [levels+1]
    goals: NDArray[np.int64]  # [g]

    @property
    def num_items(self) -> int:
        """Number of items, axioms included."""
        return len(self.edge_offsets) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.tail_offsets) - 1

    @property
    def structure(self) -> Structure:
        """The first argument of every CPU kernel."""
        return Structure(self.num_axioms, self.edge_offsets, self.tail_offsets, self.tails)

    @cached_property
    def heads(self) -> NDArray[np.int32]:
        """Head of every edge, [e]."""
        counts = np.diff(self.edge_offsets)
        return np.repeat(np.arange(self.num_items, dtype=np.int32), counts)


def segments(offsets: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places offsets[r]:offsets[r+1] of each row, one after another."""
    starts, lengths = offsets[rows], np.diff(offsets)[rows]
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(lengths.sum())
