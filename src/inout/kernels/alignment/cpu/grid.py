"""The nodes of one element, step by step: which lanes a step has, what planes say there.

A lane is a column. Rows of scratch memory hold lane j at j + 1: the first place is always dead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import inner

Array = NDArray[Any]
MOST_PLANES = 5  # tuples of one length have one type: a kernel is compiled once for all families

# Columns of moves.
SOURCE, TARGET, STEPS, ROWS, COLUMNS, FIRST, SECOND = range(7)


class Grid(NamedTuple):
    """A batch of grids with the moves of their family, see `Lattice`."""

    planes: tuple[Array, ...]  # MOST_PLANES of [b rows columns]; those that are not used are empty
    moves: Array  # [m 7]
    offsets: Array  # [p 4]
    last: Array  # layers in which paths may end
    sizes: Array  # [b 2], rows and columns
    slope: int
    layers: int


@inner(forceinline=True)
def lanes_at(s, n, m, slope):
    """The first and the last lane of a step."""
    if slope == 0:
        return np.int64(0), m
    return max(np.int64(0), s - n), min(m, s)


@inner(forceinline=True)
def triangle(k):
    """1 + 2 + … + k, 0 for negative k."""
    return k * (k + 1) // 2 if k > 0 else np.int64(0)


@inner(forceinline=True)
def first_cell(s, n, m, slope):
    """How many nodes the steps before s have; nodes are numbered in their order."""
    if slope == 0:
        return s * (m + 1)
    return triangle(s) - triangle(s - n - 1) - triangle(s - m - 1) + triangle(s - n - m - 2)


@inner(forceinline=True)
def reach(offset, s, n, m, slope):
    """The first and the last lane at which a plane has an entry; fewer than none if it has none."""
    lo, hi = lanes_at(s, n, m, slope)
    row, column, more_rows, more_columns = offset[0], offset[1], offset[2], offset[3]
    lo, hi = max(lo, column), min(hi, m + more_columns + column - 1)
    if slope == 0:
        return (lo, hi) if 0 <= s - row < n + more_rows else (lo, lo - 1)
    return max(lo, s - row - (n + more_rows) + 1), min(hi, s - row)


@inner(forceinline=True)
def place_in(plane, offset, s, slope):
    """Lane j reads entry start + j * stride of a flat plane [rows * columns]: (start, stride)."""
    rows = plane.shape[2] if plane.shape[1] > 1 else 0
    columns = 1 if plane.shape[2] > 1 else 0
    return (s - offset[0]) * rows - offset[1] * columns, columns - slope * rows


@inner
def read(tables, grid, p, b, s, out, missing):
    """Sets out[j + 1] to the entries of table p at the lanes of a step, `missing` if none.

    Tables have the shapes of the planes.
    """
    n, m = grid.sizes[b, 0], grid.sizes[b, 1]
    lo, hi = lanes_at(s, n, m, grid.slope)
    low, high = reach(grid.offsets[p], s, n, m, grid.slope)
    table = tables[p]
    flat = table[b].reshape(table.shape[1] * table.shape[2])
    start, stride = place_in(table, grid.offsets[p], s, grid.slope)
    for j in range(lo, min(low, hi + 1)):
        out[j + 1] = missing
    if stride == 1:
        for j in range(low, high + 1):
            out[j + 1] = flat[start + j]
    else:
        for j in range(low, high + 1):
            out[j + 1] = flat[start + j * stride]
    for j in range(max(high + 1, lo), hi + 1):
        out[j + 1] = missing


@inner
def write(tables, grid, p, b, s, values):
    """Adds values[j + 1] to the entries of table p at the lanes of a step."""
    n, m = grid.sizes[b, 0], grid.sizes[b, 1]
    low, high = reach(grid.offsets[p], s, n, m, grid.slope)
    table = tables[p]
    flat = table[b].reshape(table.shape[1] * table.shape[2])
    start, stride = place_in(table, grid.offsets[p], s, grid.slope)
    if stride == 0:
        total = 0.0
        for j in range(low, high + 1):
            total += values[j + 1]
        if high >= low:
            flat[start] += total
    elif stride == 1:
        for j in range(low, high + 1):
            flat[start + j] += values[j + 1]
    else:
        for j in range(low, high + 1):
            flat[start + j * stride] += values[j + 1]
