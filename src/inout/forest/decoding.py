"""Single derivations of a forest: the best, the k best, all in order, the least risky, samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import ForestError
from inout._core.randomness import random_seed
from inout.forest.derivation import Derivation, Derivations
from inout.forest.expectations import as_item_values
from inout.kernels.forest import kbest as kernel
from inout.kernels.forest import op
from inout.kernels.forest.cpu.kbest import ScoredForest
from inout.kernels.forest.cpu.sample import Tables
from inout.kernels.forest.sample import alias_tables, sample

if TYPE_CHECKING:
    from inout.forest.forest import Forest


def viterbi(forest: Forest, weights: NDArray[np.float64] | None = None) -> ScoredForest:
    """The best derivations by log-weight, or by other weights of the items, for all goals."""
    if weights is None:
        weights = forest.item_weights.detach().double().cpu().contiguous().numpy()
    return kernel.viterbi(forest.arrays.structure, weights)


def kbest(forest: Forest, goal: int, k: int, best: ScoredForest | None = None) -> Derivations:
    """The k heaviest derivations of an item; `best` saves a pass if there are many goals."""
    log_weights, offsets, edges = kernel.kbest(best or viterbi(forest), goal, k)
    return Derivations(forest, goal, offsets, edges, log_weights)


def derivations(forest: Forest, goal: int) -> Iterator[Derivation]:
    """All derivations of an item in decreasing weight.

    k doubles each time: a k-best list is a prefix of every longer one, so the total cost is at
    most twice that of the last list.
    """
    done, k, best = 0, 16, viterbi(forest)
    while True:
        found = kbest(forest, goal, k, best)
        yield from found[done:]
        if len(found) < k:
            return
        done, k = k, 2 * k


def min_risk(forest: Forest, gain: Any | None) -> list[Derivation | None]:
    """The derivation with the highest expected gain, for each goal."""
    goals = forest.goal_items
    # Goals that share no items share a pass instead: each item's count is that of its own goal.
    together = forest.goal_of_item is not None
    groups = [goals] if together else [goal[None] for goal in goals]
    return [tree for group in groups for tree in _min_risk(forest, group, gain)]


def _min_risk(forest: Forest, goals: Tensor, gain: Any | None) -> list[Derivation | None]:
    with torch.no_grad():
        counts = forest._item_counts(goals)
        if gain is None:
            gains = (torch.arange(forest.num_items) >= forest.arrays.num_axioms).to(counts)
        else:
            gains = as_item_values(forest, gain)
        # Impossible items must not be chosen, whatever their gain.
        scores = torch.where(counts > 0, gains * counts, -torch.inf).double().cpu().numpy()
    best = viterbi(forest, scores)
    # Only the edges count: the log-weights are those of the forest, not these scores.
    found = [Derivations(forest, goal, *kernel.kbest(best, goal, 1)[1:]) for goal in goals.tolist()]
    return [next(iter(trees), None) for trees in found]


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
