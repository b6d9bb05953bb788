"""Random forests of any size, as edges in random order."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
import torch
from numpy.typing import NDArray

from inout import Forest
from inout.forest.assembly import assemble


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of a forest whose items are numbered tails before heads, axioms first."""

    num_items: int
    heads: NDArray[np.int32]  # [e]
    tail_offsets: NDArray[np.int64]  # [e+1]
    tails: NDArray[np.int32]  # [t]
    log_weights: NDArray[np.float64]  # [a], of the axioms

    def build(self) -> Forest:
        """The forest of these edges; its goal is the last item."""
        fields = assemble(
            self.heads,
            self.tail_offsets,
            self.tails,
            {"axioms": torch.from_numpy(self.log_weights)},
            np.arange(len(self.log_weights)),
            np.array([self.num_items - 1]),
            range(self.num_items),
        )
        return Forest(**fields)


def random_edges(
    num_items: int, num_edges: int, arity: int, seed: int, axiom_share: float = 0.5
) -> Edges:
    """Edges of one arity, all of them of use to the last item; a tenth of the items are axioms.

    The first tail is drawn from all items below the head, the others with probability
    `axiom_share` from the axioms. Edges are spread over heads about evenly. The axioms' weights
    are such that values neither grow nor shrink from level to level, and likely derivations have
    some tens of nodes.
    """
    rng = np.random.default_rng(seed)
    num_axioms = num_items // 10
    derived = np.arange(num_axioms, num_items)
    # One edge makes each item derivable, a second one has it as a tail, the rest are free.
    used = derived[:-1]
    users = used + 1 + (rng.random(len(used)) * (num_items - 1 - used)).astype(np.int64)
    free = rng.integers(num_axioms, num_items, num_edges - len(derived) - len(used))
    heads = np.concatenate([derived, users, free])
    tails = np.empty((num_edges, arity), dtype=np.int32)
    for place in range(arity):
        drawn = (rng.random(num_edges) * heads).astype(np.int32)
        if place:
            from_axioms = rng.random(num_edges) < axiom_share
            drawn = np.where(from_axioms, drawn % num_axioms, drawn)
        tails[:, place] = drawn
    tails[len(derived) : len(derived) + len(used), 0] = used
    order = rng.permutation(num_edges)
    typical = -log(num_edges / len(derived)) / (arity - 1)
    return Edges(
        num_items,
        heads[order].astype(np.int32),
        np.arange(0, arity * num_edges + 1, arity, dtype=np.int64),
        tails[order].ravel(),
        rng.normal(typical, 0.5, num_axioms),
    )
