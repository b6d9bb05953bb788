"""From edges in any order to the fields of a `Forest`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import CycleError
from inout.forest.labels import SelectedLabels
from inout.kernels.forest.ordering import order_forest


def assemble(
    heads: NDArray[np.int32],
    tail_offsets: NDArray[np.int64],
    tails: NDArray[np.int32],
    relations: Mapping[str, Tensor],
    axiom_rows: NDArray[np.int64],
    goals: NDArray[np.int64],
    labels: Sequence[Hashable],
) -> dict[str, Any]:
    """The leading fields of the `Forest` with these edges. O(items + edges).

    Items 0..a-1 are the axioms: axiom i is row `axiom_rows[i]` of the concatenated relations;
    the others are derived. Items that no goal uses are dropped; a cycle is an error.
    """
    is_axiom = np.arange(len(labels)) < len(axiom_rows)
    ordered = order_forest(heads, tail_offsets, tails, is_axiom, goals)
    if not isinstance(ordered, tuple):
        raise CycleError([str(labels[int(item)]) for item in ordered])
    arrays, old = ordered
    return {
        "arrays": arrays,
        "relations": dict(relations),
        "axiom_rows": torch.from_numpy(axiom_rows[old[: arrays.num_axioms]]),
        "labels": SelectedLabels(labels, old),
    }
