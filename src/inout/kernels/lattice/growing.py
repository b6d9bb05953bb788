"""`grow_rows`: weights for those histories of a lattice whose gradient is worth keeping."""

from __future__ import annotations

import numpy as np

from inout.kernels.lattice.arrays import Strings, Vector
from inout.kernels.lattice.cpu import growing
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice


def grow_rows(histories: Histories, lattice: Lattice, edge_weights: Vector, least: float) -> None:
    """Give histories rows of zeros where an edge has a weight beyond ±least.

    For lattices that were selected without `grow`; their `slot_rows` are filled in, so that
    `Histories.add_gradient` finds the new rows. What stays without a row has a gradient that is
    small, and is dropped: of the contexts that are selected nearly all have next to no mass, and
    rows for them all would need many times the memory (Steinhardt & Liang, appendix B, round
    small coordinates of the gradient to zero for the same reason, at random).
    """
    columns = lattice.columns
    places = np.repeat(np.arange(columns.size), np.diff(lattice.node_offsets))
    strings = Strings(lattice.parents, lattice.symbols, lattice.lens, lattice.is_anchored, places)
    while True:
        growing.grow_rows(
            columns, histories.features, strings, lattice.slots, lattice.edge_offsets, edge_weights,
            least,
        )  # fmt: skip
        if not histories.is_full:
            return
        histories.enlarge()
