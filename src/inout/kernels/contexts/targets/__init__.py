"""`best_given`: the best path of a lattice of contexts among those that write given targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from inout._core.errors import ArgumentError
from inout.kernels.contexts.arrays import Numbers, Targets
from inout.kernels.contexts.op import Lattice, Vector
from inout.kernels.contexts.targets import cpu

_best_given: Callable[..., Any] = cpu.best_given


def best_given(lattice: Lattice, targets: Targets) -> tuple[Numbers, Numbers, Vector]:
    """The edges of the best such path of each example, where each begins [b+1], their scores [b].

    As `Lattice.best`: an example without any path has no edges, and the score -inf.
    """
    columns = lattice.columns
    if len(targets.offsets) != columns.num_examples + 1:
        raise ArgumentError(
            f"targets must have {columns.num_examples} strings. Got {len(targets.offsets) - 1}"
        )
    graph = (
        columns.firsts, lattice.node_offsets, lattice.slot_offsets, lattice.slot_nodes,
        lattice.edge_offsets, lattice.edge_targets,
        (columns.end_actions - columns.first_actions).astype(np.int64),
    )  # fmt: skip
    edges = np.empty(columns.size, np.int64)
    offsets = np.empty(columns.num_examples + 1, np.int64)
    scores = np.empty(columns.num_examples)
    most = int(np.diff(lattice.node_offsets[columns.firsts]).max(initial=1))
    _best_given(
        graph, columns.first_actions, lattice.scores,
        (targets.symbols, targets.strings, targets.offsets), most, edges, offsets, scores,
    )  # fmt: skip
    return edges[: offsets[-1]], offsets, scores
