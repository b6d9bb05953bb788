"""`LocalForest`: the forest as a PCFG over its own items, ready to be sampled from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from inout._core.errors import ForestError
from inout._core.randomness import random_seed
from inout.forest.derivation import Derivations
from inout.kernels.forest import op
from inout.kernels.forest.cpu.sample import Tables
from inout.kernels.forest.sample import alias_tables, sample

if TYPE_CHECKING:
    from inout.forest.forest import Forest


@dataclass(frozen=True, eq=False)
class LocalForest:
    """Edge probabilities given their heads (equations 17-18 of Eisner 2016) with alias tables.

    A sample takes O(1) at every node (Vose 1991), whatever the number of edges of its item.
    """

    forest: Forest
    probabilities: NDArray[np.float64]  # [e]
    tables: Tables

    @staticmethod
    def of(forest: Forest) -> LocalForest:
        """The normalised forest: two passes over the edges."""
        weights = forest.item_weights.detach()
        shares = op.edge_probabilities(forest.arrays, weights, forest.tier).cpu().numpy()
        return LocalForest(forest, shares, alias_tables(forest.arrays.edge_offsets, shares))

    def sample(self, goal: int, n: int, generator: torch.Generator | None = None) -> Derivations:
        """n independent derivations of the item `goal`; see `Forest.sample`."""
        arrays, seed = self.forest.arrays, random_seed(generator)
        if n and not self._derivable(goal):
            raise ForestError(f"{self.forest.labels[goal]} has no derivation to sample")
        roots = np.full(n, goal, dtype=np.int64)
        offsets, edges = sample(arrays.structure, self.tables, roots, seed)
        return Derivations(self.forest, goal, offsets, edges)

    def _derivable(self, goal: int) -> bool:
        arrays = self.forest.arrays
        if goal < arrays.num_axioms:
            return bool(self.forest.log_weights[goal] > -torch.inf)
        first, last = arrays.edge_offsets[goal], arrays.edge_offsets[goal + 1]
        return bool(self.probabilities[first:last].any())
