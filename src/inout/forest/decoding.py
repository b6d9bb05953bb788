"""Single derivations of a forest: the best, the k best, all in order, the least risky."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inout.forest.derivation import Derivation, Derivations
from inout.forest.expectations import as_item_values
from inout.kernels.forest import kbest as kernel
from inout.kernels.forest.cpu.kbest import ScoredForest

if TYPE_CHECKING:
    from inout.forest.forest import Forest


def viterbi(forest: Forest, weights: NDArray[np.float64] | None = None) -> ScoredForest:
    """The best derivations by log-weight, or by other weights of the items, for all goals."""
    if weights is None:
        weights = forest.item_weights.detach().double().cpu().contiguous().numpy()
    return kernel.viterbi(forest.arrays.structure, weights)


def kbest(forest: Forest, goal: int, k: int, best: ScoredForest | None = None) -> Derivations:
    """The k heaviest derivations of an item; `best` saves a pass where there are many goals."""
    log_weights, offsets, edges = kernel.kbest(best or viterbi(forest), goal, k)
    return Derivations(forest, goal, offsets, edges, log_weights)


def argmax(forest: Forest, goal: int, best: ScoredForest) -> Derivation | None:
    """The heaviest derivation of an item."""
    found = kbest(forest, goal, 1, best)
    return found[0] if len(found) else None


def derivations(forest: Forest, goal: int) -> Iterator[Derivation]:
    """All derivations of an item in decreasing weight.

    Asks for twice as many each time: a k-best list is a prefix of every longer one, so the whole
    costs at most twice its last request.
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
    num_axioms = forest.arrays.num_axioms
    with torch.no_grad():
        counts = forest._item_counts(goals)
        if gain is None:
            gains = (torch.arange(forest.num_items) >= num_axioms).to(counts)
        else:
            gains = as_item_values(forest, gain)
        # Impossible items must not be chosen, whatever their gain.
        scores = torch.where(counts > 0, gains * counts, -torch.inf).double().cpu().numpy()
    best = viterbi(forest, scores)
    chosen = []
    for goal in goals.tolist():
        _, offsets, edges = kernel.kbest(best, goal, 1)
        found = Derivations(forest, goal, offsets, edges)
        chosen.append(found[0] if len(found) else None)
    return chosen
