"""The nodes of one element, step by step: which lanes a step has, what planes say there.

A lane is a column. Rows of scratch memory hold lane j at j + 1: the first place is always dead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import inner
from inout.kernels.math.cpu.exponential import FAST

Array = NDArray[Any]
MOST_PLANES = 5  # tuples of one length have one type: a kernel is compiled once for all families

# Columns of moves.
SOURCE, TARGET, STEPS, ROWS, COLUMNS, FIRST, SECOND, OWN, OTHER = range(9)


class Grid(NamedTuple):
    """A batch of grids with the moves of their family, see `Lattice`."""

    planes: tuple[Array, ...]  # MOST_PLANES of [b rows * columns]; those not used are empty
    moves: Array  # [m 9]
    offsets: Array  # [p 6], those of `Lattice`, and how far a row and a column are in a plane
    last: Array  # layers in which paths may end
    common: Array  # [layers], the plane that all moves to a layer share, or -1
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
def place_in(offset, s, slope):
    """Lane j reads entry start + j * stride of a flat plane: (start, stride)."""
    rows, columns = offset[4], offset[5]
    return (s - offset[0]) * rows - offset[1] * columns, columns - slope * rows


@inner
def assign(values, out):
    """out = values; loops from 0 on become vector instructions, others do not.

    Not called `copy`: what calls something of that name counts references, see `compiled`.
    """
    for k in range(out.shape[0]):
        out[k] = values[k]


@inner
def fill(value, out):
    """out = value."""
    for k in range(out.shape[0]):
        out[k] = value


@inner
def read(flat, offset, s, n, m, slope, missing, out):
    """Sets out [lanes of the step] to the entries of a flat plane there, `missing` if none."""
    lo, hi = lanes_at(s, n, m, slope)
    low, high = reach(offset, s, n, m, slope)
    if high < low:
        fill(missing, out)
        return
    fill(missing, out[: low - lo])
    fill(missing, out[high + 1 - lo :])
    start, stride = place_in(offset, s, slope)
    here = out[low - lo : high + 1 - lo]
    if stride == 0:
        fill(flat[start], here)
    elif stride == 1:
        assign(flat[start + low : start + high + 1], here)
    else:
        # From the last lane on, whose entry comes first.
        assign(flat[start + high * stride : start + low * stride + 1 : -stride], here[::-1])


@inner
def increase(values, out):
    """out += values."""
    for k in range(out.shape[0]):
        out[k] += values[k]


@inner(fastmath=FAST)
def sum_of(values):
    """The sum, in any order."""
    total = 0.0
    for k in range(values.shape[0]):
        total += values[k]
    return total


@inner
def write(values, offset, s, n, m, slope, flat):
    """Adds values [lanes of the step] to the entries of a flat plane there."""
    lo, _ = lanes_at(s, n, m, slope)
    low, high = reach(offset, s, n, m, slope)
    if high < low:
        return
    start, stride = place_in(offset, s, slope)
    here = values[low - lo : high + 1 - lo]
    if stride == 0:
        flat[start] += sum_of(here)
    elif stride == 1:
        increase(here, flat[start + low : start + high + 1])
    else:
        increase(here[::-1], flat[start + high * stride : start + low * stride + 1 : -stride])
