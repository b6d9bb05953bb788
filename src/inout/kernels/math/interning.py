"""`RowTable`: a growing set of integer rows that numbers each distinct row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inout.kernels.math.cpu import interning


class RowTable:
    """Distinct rows [count, arity], numbered in order of appearance.

    >>> table = RowTable(arity=2)
    >>> table.add(np.array([[1, 2], [3, 4], [1, 2]])).tolist(), len(table)
    ([0, 1, 0], 2)
    """

    def __init__(self, arity: int) -> None:
        self._store = np.empty((0, arity), dtype=np.int64)
        self._count = 0
        self._reserve(32)

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> NDArray[np.int64]:
        """The distinct rows so far."""
        return self._store[: self._count]

    def add(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number [n] of each row, new ones being appended. Expected O(n · arity)."""
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        numbers = np.empty(len(rows), dtype=np.int64)
        done = 0
        while True:
            new, self._count = interning.intern(
                self._slots, self._store, self._count, rows[done:], numbers[done:]
            )
            done += new
            if done == len(rows):
                return numbers
            self._reserve(2 * len(self._store))

    def _reserve(self, size: int) -> None:
        """Makes room for `size` rows, a power of two; the rows so far keep their numbers."""
        rows = self.rows
        self._slots = np.full(2 * size, -1, dtype=np.int64)
        self._store = np.empty((size, rows.shape[1]), dtype=np.int64)
        interning.intern(self._slots, self._store, 0, rows, np.empty(len(rows), dtype=np.int64))
