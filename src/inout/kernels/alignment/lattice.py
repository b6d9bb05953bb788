"""`Lattice`: which moves the paths of a family may make, and which numbers weigh them.

Nodes are (layer, i, j), where i of n rows and j of m columns have been consumed. A path goes from
layer 0 at (0, 0) to any of the last layers at (n, m); a move consumes at most one row and one
column. Its log-weight is the sum of up to two *planes*, tables [b rows columns] (or with size 1 in
dimensions that they do not depend on), read at the node that the move leads to.

Nodes are done in *steps*, such that the nodes of a step do not depend on each other: row by row,
or, if a move stays in its row, by diagonals i + j.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Move(NamedTuple):
    """From layer to layer, over so many rows and columns, weighed by these planes."""

    source: int
    target: int
    rows: int
    columns: int
    planes: tuple[int, ...] = ()


class Plane(NamedTuple):
    """Which entry a node (i, j) reads: [i - row, j - column]; none outside the table.

    The table has n + more_rows rows and m + more_columns columns.
    """

    row: int
    column: int
    more_rows: int
    more_columns: int


# What moves over both, over a row alone, and over a column alone reads.
BOTH, ROW, COLUMN = Plane(1, 1, 0, 0), Plane(1, 0, 0, 1), Plane(0, 1, 1, 0)


@dataclass(frozen=True)
class Lattice:
    """Moves in the order of the layers they lead to; planes; layers in which paths may end."""

    moves: tuple[Move, ...]
    planes: tuple[Plane, ...]
    last: tuple[int, ...]

    @cached_property
    def layers(self) -> int:
        """How many layers there are."""
        return 1 + max(max(move.source, move.target) for move in self.moves)

    @cached_property
    def slope(self) -> int:
        """1 if nodes are done by diagonals: the step of (i, j) is i + slope * j."""
        return int(any(move.rows == 0 for move in self.moves))

    def steps(self, rows: int, columns: int) -> int:
        """The step of the last node, which is the most moves that a path makes."""
        return rows + self.slope * columns

    @cached_property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Moves [m 7], planes [p 4] and last layers, for the compiled code.

        A move's source, target, steps, rows, columns and its two planes, -1 for none.
        """
        moves = []
        for m in self.moves:
            planes = (*m.planes, -1, -1)[:2]
            length = m.rows + self.slope * m.columns
            moves.append((m.source, m.target, length, m.rows, m.columns, *planes))
        found = (np.array(x, np.int64) for x in (moves, self.planes, self.last))
        return tuple(found)  # type: ignore[return-value]
