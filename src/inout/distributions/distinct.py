"""Samples without replacement: from the forest of a distribution; the results for all of them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout.forest.distinct import DistinctSamples, sample_derivations
from inout.forest.labels import BlockLabels, SelectedLabels
from inout.kernels.math.without_replacement import empty_batch

if TYPE_CHECKING:
    from inout.distributions.base import StructuredDistribution

# For a block of items [b ...]: the number of the event, then the place in the block, element first.
Used = dict[str, tuple[NDArray[np.int64], ...]]


def by_forest(
    d: StructuredDistribution, k: int, seed: int
) -> tuple[Tensor, Float[Tensor, "k b"], Float[Tensor, " b"]]:
    """Events [k b ...], keys and thresholds from the explicit forest."""
    b, device = d.batch_shape.numel(), d.lengths.device
    events = np.full((k, b, *d.event_shape), d._blank, np.int64)
    keys, thresholds = empty_batch(k, b)
    forest = d.forest()
    ranks: list[NDArray[np.int64]] = []
    items: list[NDArray[np.int64]] = []
    for element, (trees, leaves) in enumerate(sample_derivations(forest, k, seed)):
        count = len(leaves.keys)
        keys[:count, element], thresholds[element] = leaves.keys, leaves.threshold
        events[:count, element] = -1
        for pieces, own in zip((ranks, items), trees.nodes(), strict=True):
            pieces.append(own)
    if ranks:
        used = _places(forest.labels, np.concatenate(ranks), np.concatenate(items))
        d._write_events(events, used)
    found, own_keys, following = (
        torch.from_numpy(x).to(device) for x in (events, keys, thresholds)
    )
    return found, own_keys, following


def _places(labels: object, ranks: NDArray[np.int64], items: NDArray[np.int64]) -> Used:
    """The items of a chart's forest by block."""
    assert isinstance(labels, SelectedLabels)
    blocks = labels.labels
    assert isinstance(blocks, BlockLabels)
    numbers, used, first = labels.chosen[items], {}, 0
    for name, shape in blocks.shapes.items():
        end = first + prod(shape)
        here = (numbers >= first) & (numbers < end)
        used[name] = (ranks[here], *np.unravel_index(numbers[here] - first, shape))
        first = end
    return used


def as_samples(
    d: StructuredDistribution,
    found: Tensor,
    keys: Float[Tensor, "k b"],
    threshold: Float[Tensor, " b"],
) -> DistinctSamples:
    """What was drawn from the flat batch, in the shape of the batch and the potentials' dtype."""
    events = d._events(found)
    log_probs = d.log_prob(events)
    own = keys.reshape(log_probs.shape).to(log_probs)
    log_probs = torch.where(own == -torch.inf, -torch.inf, log_probs)
    return DistinctSamples(events, log_probs, own, threshold.reshape(d.batch_shape).to(own))
