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


class Arrays(NamedTuple):
    """A lattice for the compiled code; -1 for no plane."""

    # [m 9]: source, target, steps, rows, columns, both planes, and those of them that not all moves
    # to the target share
    moves: NDArray[np.int64]
    planes: NDArray[np.int64]  # [p 4]
    last: NDArray[np.int64]
    common: NDArray[np.int64]  # [layers], the plane that all moves to a layer share


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

    @cached_property
    def is_monotone(self) -> bool:
        """Whether rows go on to the next column, or to the same, and weigh the same."""
        moves = Move(0, 0, 1, 1, (0,)), Move(0, 0, 1, 0, (0,))
        return self.moves == moves and self.planes == (BOTH,)

    def steps(self, rows: int, columns: int) -> int:
        """The step of the last node, which is the most moves that a path makes."""
        return rows + self.slope * columns

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """The number of the move [source target rows columns], -1 for none."""
        found = np.full((self.layers, self.layers, 2, 2), -1)
        for number, move in enumerate(self.moves):
            found[move.source, move.target, move.rows, move.columns] = number
        return found

    @cached_property
    def arrays(self) -> Arrays:
        """The same for the compiled code."""
        moves, common = [], np.full(self.layers, -1)
        for layer in range(self.layers):
            into = [move.planes for move in self.moves if move.target == layer]
            same = [p for p in into[0] if all(p in planes for planes in into)] if into else []
            common[layer] = same[0] if same else -1
        for m in self.moves:
            planes = (*m.planes, -1, -1)[:2]
            own = (*(p for p in m.planes if p != common[m.target]), -1, -1)[:2]
            length = m.rows + self.slope * m.columns
            moves.append((m.source, m.target, length, m.rows, m.columns, *planes, *own))
        tables = (np.array(x, np.int64) for x in (moves, self.planes, self.last, common))
        return Arrays(*tables)
