"""Forests made of some of a forest's edges."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from inout._core.errors import ArgumentError
from inout.forest.labels import SelectedLabels
from inout.kernels.forest import op
from inout.kernels.forest.ordering import order_forest

if TYPE_CHECKING:
    from inout.forest.forest import Forest

ROUNDING = 1e-9


def restrict(forest: Forest, keep: NDArray[np.bool_]) -> Forest:
    """The forest of the edges marked in `keep` [e], trimmed to what the goals still use."""
    arrays = forest.arrays
    lengths = np.diff(arrays.tail_offsets)
    tail_offsets = np.concatenate([[0], np.cumsum(lengths[keep])])
    is_axiom = np.arange(arrays.num_items) < arrays.num_axioms
    ordered = order_forest(
        arrays.heads[keep],
        tail_offsets,
        arrays.tails[np.repeat(keep, lengths)],
        is_axiom,
        arrays.goals,
    )
    assert isinstance(ordered, tuple), "edges of an acyclic forest cannot form a cycle"
    smaller, old = ordered
    kept = torch.from_numpy(old.astype(np.int64))
    owners = forest.goal_of_item
    return replace(
        forest,
        arrays=smaller,
        axiom_rows=forest.axiom_rows[kept[: smaller.num_axioms]],
        labels=SelectedLabels(forest.labels, old),
        goal_of_item=None if owners is None else owners[kept],
    )


def prune(forest: Forest, threshold: float) -> Forest:
    """The forest of the edges with posterior of at least `threshold`; see `Forest.prune`."""
    if not 0 <= threshold <= 1:
        raise ArgumentError("threshold", f"must be a probability in [0, 1]. Got {threshold!r}")
    with torch.no_grad():
        counts = forest._item_counts().double().cpu().numpy()
        shares = op.edge_probabilities(forest.arrays, forest.item_weights, forest.tier)
    posteriors = shares.cpu().numpy() * counts[forest.arrays.heads]
    # An edge of every derivation has a posterior of one only up to rounding.
    return restrict(forest, (posteriors >= threshold * (1 - ROUNDING)) & (posteriors > 0))
