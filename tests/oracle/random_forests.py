"""Small random acyclic forests with the awkward cases, the same for the same seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout.kernels.forest.arrays import Structure
from tests.oracle.enumeration import count_derivations


@dataclass(frozen=True)
class RandomForest:
    """The arrays of a forest (items level by level, axioms first) and a log-weight per item."""

    num_axioms: int
    edge_offsets: NDArray[np.int64]
    tail_offsets: NDArray[np.int64]
    tails: NDArray[np.int32]
    level_offsets: NDArray[np.int64]
    goals: NDArray[np.int64]
    item_weights: NDArray[np.float64]

    @property
    def num_items(self) -> int:
        return len(self.edge_offsets) - 1

    @property
    def arrays(self) -> Structure:
        """What every kernel takes first."""
        return Structure(self.num_axioms, self.edge_offsets, self.tail_offsets, self.tails)


def forest_from_lists(
    num_axioms: int,
    edges: list[list[tuple[int, ...]]],
    item_weights: list[float],
    goals: list[int] | None = None,
    level_sizes: list[int] | None = None,
) -> RandomForest:
    """The forest with `edges[i]` the tails of every edge of derived item num_axioms + i.

    Without level sizes every derived item is a level of its own.
    """
    num_items = num_axioms + len(edges)
    degrees = [0] * num_axioms + [len(of_item) for of_item in edges]
    flat = [tail for of_item in edges for tail in of_item]
    sizes = [num_axioms, *(level_sizes if level_sizes is not None else [1] * len(edges))]
    return RandomForest(
        num_axioms,
        np.cumsum([0, *degrees], dtype=np.int64),
        np.cumsum([0, *map(len, flat)], dtype=np.int64),
        np.array([item for tail in flat for item in tail], dtype=np.int32),
        np.cumsum([0, *sizes], dtype=np.int64),
        np.array([num_items - 1] if goals is None else goals, dtype=np.int64),
        np.array(item_weights, dtype=np.float64),
    )


def random_forest(
    seed: int,
    *,
    num_axioms: int = 4,
    num_levels: int = 4,
    level_width: int = 2,
    max_edges: int = 4,
    max_arity: int = 4,
    num_goals: int = 1,
    integer_weights: bool = False,
    derived_weights: bool = True,
    zeros: float = 0.1,
    empty_items: float = 0.1,
    duplicate_edges: float = 0.15,
    repeated_tails: float = 0.15,
    axiom_goals: bool = True,
    min_derivations: int = 0,
    max_derivations: int = 2000,
) -> RandomForest:
    """A random forest in which no item has more than `max_derivations` derivations.

    The first goal has at least `min_derivations` (some may have weight -inf).

    Edges have 0 to max_arity tails. Chances: `zeros` for an axiom to have weight -inf (and, at a
    fifth of it, for a derived item), `empty_items` for a derived item to have no edge,
    `duplicate_edges` for an edge to repeat the one before, `repeated_tails` for all its tails to be
    one item. Derived items have a weight other than 0 with `derived_weights`. With `axiom_goals`
    every goal after the first may be an axiom; the first one is the last item.
    """
    rng = np.random.default_rng([seed, num_axioms, num_levels, level_width])
    while True:
        edges: list[list[tuple[int, ...]]] = []
        level_sizes = []
        below = num_axioms
        for _ in range(num_levels):
            level_sizes.append(int(rng.integers(1, level_width + 1)))
            for _ in range(level_sizes[-1]):
                of_item: list[tuple[int, ...]] = []
                degree = 0 if rng.random() < empty_items else int(rng.integers(1, max_edges + 1))
                for _ in range(degree):
                    if of_item and rng.random() < duplicate_edges:
                        of_item.append(of_item[-1])
                        continue
                    tail = rng.integers(0, below, int(rng.integers(0, max_arity + 1)))
                    if len(tail) > 1 and rng.random() < repeated_tails:
                        tail[:] = tail[0]
                    of_item.append(tuple(tail.tolist()))
                edges.append(of_item)
            below += level_sizes[-1]
        num_items = below
        if integer_weights:
            weights = rng.integers(-2, 3, num_items).astype(np.float64)
        else:
            weights = rng.normal(size=num_items)
        if not derived_weights:
            weights[num_axioms:] = 0.0
        chances = np.full(num_items, zeros)
        chances[num_axioms:] *= 0.2 if derived_weights else 0.0
        weights[rng.random(num_items) < chances] = -np.inf
        lowest = 0 if axiom_goals else num_axioms
        goals = [num_items - 1, *rng.integers(lowest, num_items, num_goals - 1).tolist()]
        forest = forest_from_lists(num_axioms, edges, weights.tolist(), goals, level_sizes)
        counts = count_derivations(*(_plain(a) for a in forest.arrays))
        if max(counts) <= max_derivations and counts[goals[0]] >= min_derivations:
            return forest


def _plain(value: Any) -> Any:
    # Counts must stay Python integers: those of numpy overflow.
    return value.tolist() if isinstance(value, np.ndarray) else value
