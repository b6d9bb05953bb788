"""Single derivations of a forest: the best, the k best, all in order, the least risky."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from inout.forest.derivation import Derivation, Derivations
from inout.forest.expectations import as_item_values
from inout.kernels import kbest as kernel

if TYPE_CHECKING:
    from inout.forest.forest import Forest


def _weights(forest: Forest) -> NDArray[np.float64]:
    return forest.item_weights.detach().double().cpu().contiguous().numpy()


def kbest(forest: Forest, goal: int, k: int) -> Derivations:
    """The k heaviest derivations of an item."""
    weights = _weights(forest)
    structure = forest.arrays.structure
    best, pointer = kernel.viterbi(*structure, weights)
    log_weights, offsets, edges = kernel.kbest(*structure, weights, best, pointer, goal, k)
    return Derivations(forest, goal, offsets, edges, log_weights)


def argmax(forest: Forest, goal: int) -> Derivation | None:
    """The heaviest derivation of an item."""
    best = kbest(forest, goal, 1)
    return best[0] if len(best) else None


def derivations(forest: Forest, goal: int) -> Iterator[Derivation]:
    """All derivations of an item in decreasing weight.

    Asks for twice as many each time: a k-best list is a prefix of every longer one, so the whole
    costs at most twice its last request.
    """
    done, k = 0, 16
    while True:
        found = kbest(forest, goal, k)
        yield from found[done:]
        if len(found) < k:
            return
        done, k = k, 2 * k


def min_risk(forest: Forest, goal: int, gain: Any | None) -> Derivation | None:
    """The derivation of an item with the highest expected gain."""
    num_axioms = forest.arrays.num_axioms
    with torch.no_grad():
        counts = forest._item_counts(torch.tensor([goal], device=forest.log_weights.device))
        if gain is None:
            gains = (torch.arange(forest.num_items) >= num_axioms).to(counts)
        else:
            gains = as_item_values(forest, gain)
        # What never occurs must not be chosen, whatever gain it is promised.
        scores = torch.where(counts > 0, gains * counts, -torch.inf).double().cpu().numpy()
    structure = forest.arrays.structure
    best, pointer = kernel.viterbi(*structure, scores)
    _, offsets, edges = kernel.kbest(*structure, scores, best, pointer, goal, 1)
    chosen = Derivations(forest, goal, offsets, edges)
    return chosen[0] if len(chosen) else None
