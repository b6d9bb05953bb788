"""Equi-joins of integer columns: which rows of two tables agree on their keys.

Joins run as a sort-merge in numpy (20 µs instead of polars' 250 µs a call, which decides how
long short sentences take, and still quicker on two cores at three million rows); the very large
ones in polars, on all cores. Either way the size of the result is known before it is made, so
that a limit can stop it. `docs/dependencies.md` has the measurements.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

# Above this many result rows polars is at least as quick, also within a whole grounding.
LARGE = 5_000_000
# Keys are packed into one integer below this; a table of counts by key is used when it is small.
PACKED_LIMIT = 2**62


class JoinTooLargeError(Exception):
    """A join would have `rows` result rows, more than allowed."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


def match_rows(left: list[Rows], right: list[Rows], limit: int) -> tuple[Rows, Rows]:
    """(left places, right places) of all pairs of rows that agree on every key column.

    Ordered by left place, then right place. No key columns: all pairs.
    """
    num_left, num_right = len(left[0]) if left else 0, len(right[0]) if right else 0
    if num_left == 0 or num_right == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    left_keys, right_keys, size = _pack(left, right)
    order = np.argsort(right_keys, kind="stable")
    if size <= 4 * (num_left + num_right) + 1024:
        starts = np.zeros(size + 1, dtype=np.int64)
        np.cumsum(np.bincount(right_keys, minlength=size), out=starts[1:])
        # Key -1 (no partner) reads the empty range in front of key 0.
        first = starts[np.maximum(left_keys, 0)]
        counts = np.where(left_keys < 0, 0, starts[left_keys + 1] - first)
    else:
        ordered = right_keys[order]
        first = np.searchsorted(ordered, left_keys, side="left")
        counts = np.searchsorted(ordered, left_keys, side="right") - first
    total = int(counts.sum())
    if total > limit:
        raise JoinTooLargeError(total)
    if total > LARGE:
        return _polars_match(left_keys, right_keys)
    places = np.repeat(np.arange(num_left), counts)
    ends = np.cumsum(counts)
    return places, order[np.repeat(first - ends + counts, counts) + np.arange(total)]


def all_pairs(num_left: int, num_right: int, limit: int) -> tuple[Rows, Rows]:
    """(left places, right places) of the whole product, left place first."""
    if num_left * num_right > limit:
        raise JoinTooLargeError(num_left * num_right)
    return (np.repeat(np.arange(num_left), num_right), np.tile(np.arange(num_right), num_left))


def _pack(left: list[Rows], right: list[Rows]) -> tuple[Rows, Rows, int]:
    """Key columns as one number in 0..size-1 for each row; -1 on the left: no partner."""
    left_keys = np.zeros(len(left[0]), dtype=np.int64)
    right_keys = np.zeros(len(right[0]), dtype=np.int64)
    fits = np.ones(len(left[0]), dtype=bool)
    size = 1
    for left_column, right_column in zip(left, right, strict=True):
        low, high = int(right_column.min()), int(right_column.max())
        span = high - low + 1
        if size * span >= PACKED_LIMIT:
            # Number the distinct keys so far, which frees the range for the next column.
            distinct, right_keys = np.unique(right_keys, return_inverse=True)
            found = np.minimum(np.searchsorted(distinct, left_keys), len(distinct) - 1)
            fits &= distinct[found] == left_keys
            left_keys = found
            size = len(distinct)
        distance = left_column - low
        # As an unsigned number a negative distance is a huge one.
        fits &= distance.view(np.uint64) < np.uint64(span)
        left_keys = left_keys * span + distance
        right_keys = right_keys * span + (right_column - low)
        size *= span
    left_keys[~fits] = -1
    return left_keys, right_keys, size


def _polars_match(left_keys: Rows, right_keys: Rows) -> tuple[Rows, Rows]:
    # Imported here because most programs on short inputs never need it.
    import polars as pl

    left = pl.DataFrame({"key": left_keys, "left": np.arange(len(left_keys))})
    right = pl.DataFrame({"key": right_keys, "right": np.arange(len(right_keys))})
    pairs = left.join(right, on="key", maintain_order="left_right")
    return pairs["left"].to_numpy(), pairs["right"].to_numpy()
