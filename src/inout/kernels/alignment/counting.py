"""All paths of a small lattice, and how many a lattice has: exact, for enumeration."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from inout.kernels.alignment.lattice import Lattice, Move

Node = tuple[int, int, int]


def _sources(lattice: Lattice, node: Node, rows: int, columns: int) -> list[tuple[int, Move, Node]]:
    """The moves that lead to a node, with their numbers, and where they come from."""
    layer, i, j = node
    found = []
    for number, move in enumerate(lattice.moves):
        source = move.source, i - move.rows, j - move.columns
        real = all(
            0 <= i - plane.row < rows + plane.more_rows
            and 0 <= j - plane.column < columns + plane.more_columns
            for plane in (lattice.planes[p] for p in move.planes)
        )
        if move.target == layer and min(source[1:]) >= 0 and real:
            found.append((number, move, source))
    return found


def _nodes(lattice: Lattice, rows: int, columns: int) -> list[Node]:
    """All nodes but the first, in an order in which sources come before targets."""
    places = [(i, j) for i in range(rows + 1) for j in range(columns + 1) if i + j > 0]
    return [(layer, i, j) for i, j in places for layer in range(lattice.layers)]


def count_paths(lattice: Lattice, rows: int, columns: int) -> int:
    """How many paths there are, were all weights positive."""
    counts: defaultdict[Node, int] = defaultdict(int, {(0, 0, 0): 1})
    for node in _nodes(lattice, rows, columns):
        counts[node] = sum(counts[s] for _, _, s in _sources(lattice, node, rows, columns))
    return sum(counts[layer, rows, columns] for layer in lattice.last)


def all_paths(lattice: Lattice, rows: int, columns: int) -> NDArray[np.int64]:
    """The numbers of the moves of all paths [m steps], -1 after the last."""
    paths: defaultdict[Node, list[tuple[int, ...]]] = defaultdict(list, {(0, 0, 0): [()]})
    for node in _nodes(lattice, rows, columns):
        for number, _, source in _sources(lattice, node, rows, columns):
            paths[node] += [(*path, number) for path in paths[source]]
    found = [path for layer in lattice.last for path in paths[layer, rows, columns]]
    steps = lattice.steps(rows, columns)
    table = [path + (-1,) * (steps - len(path)) for path in found]
    return np.array(table, np.int64).reshape(len(found), steps)
