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
        self._slots = np.full(64, -1, dtype=np.int64)
        self._store = np.empty((16, arity), dtype=np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> NDArray[np.int64]:
        """The distinct rows so far."""
        return self._store[: self._count]

    def add(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number [n] of each row, new ones being appended. Expected O(n · arity)."""
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        numbers: NDArray[np.int64]
        numbers, self._slots, self._store, self._count = interning.intern(
            self._slots, self._store, self._count, rows
        )
        return numbers
