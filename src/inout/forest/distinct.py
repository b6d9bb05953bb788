"""Derivations sampled without replacement, and what estimators need to know of such samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inout.forest.derivation import Derivations
from inout.kernels.forest import op
from inout.kernels.forest.cpu.without_replacement import ForestChoices, search
from inout.kernels.math.without_replacement import Leaves, no_leaves, sample_leaves

if TYPE_CHECKING:
    from inout.forest.forest import Forest

# Below this, the chance of being drawn is its own expansion to rounding: q = exp(x) (1 - exp(x)/2).
_RARE = -37.0


class DistinctSamples(NamedTuple):
    """k different events, in the order of sampling without replacement.

    The key of an event is its log-probability plus a Gumbel variable. Those of the k events are the
    largest, and `threshold` is the next one, -inf if there is no other event. Where there are fewer
    than k events, the log-probabilities and keys of the rest are -inf.
    """

    events: Any  # [k *b ...]; of a forest `Derivations`
    log_probs: Float[Tensor, " k *b"]  # differentiable
    keys: Float[Tensor, " k *b"]  # decreasing
    threshold: Float[Tensor, "*b"]

    def log_inclusion(self) -> Float[Tensor, " k *b"]:
        """log q of each event: how likely its key is above the threshold.

        q = 1 - exp(-exp(log p - threshold)); 1 where there is no other event.
        """
        missing = self.log_probs == -torch.inf
        x = torch.where(missing, 0.0, self.log_probs - self.threshold)
        # Both branches must be differentiable everywhere, so the other one gets harmless numbers.
        rare = x < _RARE
        chance = -torch.expm1(-torch.where(rare, 0.0, x).exp())
        return torch.where(missing, -torch.inf, torch.where(rare, x, chance.log()))

    def weights(self, normalised: bool = False) -> Float[Tensor, " k *b"]:
        """w = p / q of each event: the sum of w · f(event) is an unbiased estimate of E[f].

        Their gradient is that of p alone, so that of this sum is unbiased as well. `normalised`
        weights add up to 1: slightly biased, with less variance. 0 where there is no event.

        Kool, van Hoof & Welling, "Stochastic beams and where to find them" (2019), section 4.2.
        """
        missing = self.log_probs == -torch.inf
        log_chance = self.log_inclusion().detach()
        logs = torch.where(missing, -torch.inf, self.log_probs - log_chance.where(~missing, 0.0))
        if not normalised:
            return logs.exp()
        none = missing.all(0)
        return torch.where(missing, 0.0, logs.where(~none, 0.0).softmax(0))


def sample_derivations(forest: Forest, k: int, seed: int) -> list[tuple[Derivations, Leaves]]:
    """The derivations of each goal, and their keys."""
    arrays = forest.arrays
    items = torch.arange(forest.num_items, device=forest.log_weights.device)
    with torch.no_grad():
        weights = forest.item_weights.double()
        inside = op.log_values(arrays, weights, items, forest.tier).cpu().contiguous().numpy()
    width = int(np.diff(arrays.edge_offsets).max(initial=1))
    found = []
    for number, goal in enumerate(arrays.goals.tolist()):
        leaves = no_leaves()
        if inside[goal] > -np.inf:
            problem = ForestChoices(arrays.structure, inside, goal)
            leaves = sample_leaves(search, problem, width, k, seed, number)
        found.append((Derivations(forest, goal, leaves.offsets, leaves.choices), leaves))
    return found


def sample_without_replacement(forest: Forest, k: int, seed: int) -> list[DistinctSamples]:
    """See `Forest.sample_without_replacement`; for each goal."""
    weights, goals = forest.item_weights, forest.goal_items
    log_z = op.log_values(forest.arrays, weights, goals, forest.tier, forest.memory)
    results = []
    for number, (trees, leaves) in enumerate(sample_derivations(forest, k, seed)):
        owners, items = (torch.from_numpy(x).to(weights.device) for x in trees.nodes())
        scores = weights.new_zeros(len(trees)).index_add(0, owners, weights[items])
        keys = torch.from_numpy(leaves.keys).to(scores)
        threshold = torch.tensor(leaves.threshold).to(scores)
        results.append(DistinctSamples(trees, scores - log_z[number], keys, threshold))
    return results
