"""Outside values of a forest as inside values of a larger one, so that one kernel computes both.

An item's outside value, ∂Z/∂(its value), is the sum over its uses as a tail of the outside value
of the head times the values of the other tails. That is a sum of products: a forest. It divides by
nothing, so items of weight zero have outside values too.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inout.kernels.forest.arrays import ForestArrays, segments
from inout.kernels.forest.op import log_values
from inout.kernels.tiers import Tier

_CACHE: WeakKeyDictionary[ForestArrays, ForestArrays] = WeakKeyDictionary()


def outside_log_values(
    arrays: ForestArrays, log_weights: Float[Tensor, " a"], tier: Tier | None = None
) -> Float[Tensor, " v"]:
    """log ∂(sum of the goals' values)/∂(value of each item), given the axioms' log-weights.

    Differentiable to any order. An edge with k tails becomes k edges with k tails each: O(e) where
    edges are short.
    """
    larger = _CACHE.get(arrays)
    if larger is None:
        larger = _CACHE[arrays] = with_outer_items(arrays)
    weights = torch.nn.functional.pad(log_weights, (0, larger.num_items - arrays.num_axioms))
    outer = torch.from_numpy(larger.goals).to(weights.device)
    return log_values(larger, weights, outer, tier)


def with_outer_items(arrays: ForestArrays) -> ForestArrays:
    """The forest with one more axiom, of weight one, and an outer item for each item: the goals.

    First the axioms, then the new one, the derived items, and the outer items, in reverse order.
    """
    a, v = arrays.num_axioms, arrays.num_items
    inner, outer = np.arange(v) + (np.arange(v) >= a), 2 * v - np.arange(v)
    # A goal is used once more, by an edge whose outer head is the new axiom.
    count, size = len(arrays.goals), len(arrays.tails)
    tails = np.concatenate([arrays.tails, arrays.goals])
    offsets = np.concatenate([arrays.tail_offsets, size + 1 + np.arange(count)])
    outer_heads = np.concatenate([outer[arrays.heads], np.full(count, a)])
    lengths = np.diff(offsets)
    # Each use of an item, that is each tail, is an edge of its outer item.
    uses = np.argsort(outer[tails], kind="stable")
    edges = np.repeat(np.arange(len(lengths)), lengths)[uses]
    ends = np.cumsum(lengths[edges])
    own = ends - lengths[edges] + uses - offsets[edges]  # where the used item itself would be
    outer_tails = inner[tails[segments(offsets, edges)]]
    outer_tails[own] = outer_heads[edges]
    num_edges, levels = np.diff(arrays.edge_offsets), np.diff(arrays.level_offsets)
    num_uses = np.bincount(tails, minlength=v)[::-1]
    num_edges = np.concatenate([[0], num_edges[:a], [0], num_edges[a:], num_uses])
    return ForestArrays(
        num_axioms=a + 1,
        edge_offsets=np.cumsum(num_edges),
        tail_offsets=np.concatenate([arrays.tail_offsets, size + ends]),
        tails=np.concatenate([inner[arrays.tails], outer_tails]).astype(np.int32),
        level_offsets=np.cumsum(np.concatenate([[0, levels[0] + 1], levels[1:], levels[::-1]])),
        goals=outer,
    )
