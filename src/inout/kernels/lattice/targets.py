"""Paths that write given strings: how much of them can be written at each column."""

from __future__ import annotations

import numpy as np

from inout._core.errors import ArgumentError
from inout.kernels.lattice.arrays import Columns, Numbers, Targets
from inout.kernels.lattice.cpu import targets as compiled


def written_ranges(columns: Columns, targets: Targets) -> tuple[Numbers, int]:
    """The least and the largest number of symbols written at each column: [2 c]; most choices."""
    actions = int(columns.end_actions.max(initial=0))
    if len(targets.offsets) != columns.num_examples + 1:
        raise ArgumentError(
            "targets", f"must have {columns.num_examples} strings. Got {len(targets.offsets) - 1}"
        )
    if len(targets.symbols) < actions:
        raise ArgumentError(
            "targets", f"must have symbols of {actions} actions. Got {len(targets.symbols)}"
        )
    ranges = np.zeros((2, columns.size), np.int64)
    width = compiled.written(columns, targets, ranges[0], ranges[1])
    return ranges, int(width)
