"""`Derivation`: one tree of a forest; `Derivations`: many of them, stored flat."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inout._core.lazy import LazySequence
from inout.viz import TreeNode, text

if TYPE_CHECKING:
    from inout.forest.forest import Forest


@dataclass(frozen=True, eq=False)
class Derivation:
    """A tree below `root`: its edges in preorder (parents first, children left to right)."""

    forest: Forest
    root: int
    edges: NDArray[np.int64]
    log_weight: float

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Derivation)
            and self.forest.arrays is other.forest.arrays
            and self.root == other.root
            and np.array_equal(self.edges, other.edges)
        )

    def __hash__(self) -> int:
        return hash((self.root, self.edges.tobytes()))

    def walk(self) -> Iterator[tuple[int, int]]:
        """(item, depth) of every node in preorder, repeated items repeated."""
        arrays, used = self.forest.arrays, 0
        stack = [(self.root, 0)]
        while stack:
            item, depth = stack.pop()
            yield item, depth
            if item >= arrays.num_axioms:
                edge = self.edges[used]
                used += 1
                tails = arrays.tails[arrays.tail_offsets[edge] : arrays.tail_offsets[edge + 1]]
                stack.extend((int(tail), depth + 1) for tail in reversed(tails))

    @property
    def items(self) -> list[Hashable]:
        """Labels of all nodes in preorder."""
        return [self.forest.labels[item] for item, _ in self.walk()]

    @property
    def axioms(self) -> list[Hashable]:
        """Labels of the leaves, left to right."""
        last = self.forest.arrays.num_axioms
        return [self.forest.labels[item] for item, _ in self.walk() if item < last]

    def tree(self) -> TreeNode:
        """The tree as plain data for drawing."""
        num_axioms = self.forest.arrays.num_axioms
        # Children come after their parent in preorder, so fold the nodes from the last one up.
        pending: list[tuple[int, TreeNode]] = []
        for item, depth in reversed(list(self.walk())):
            children = []
            while pending and pending[-1][0] == depth + 1:
                children.append(pending.pop()[1])
            kind = "axiom" if item < num_axioms else "item"
            label = str(self.forest.labels[item])
            pending.append((depth, TreeNode(label, tuple(children), kind=kind)))
        return pending[0][1]

    def __str__(self) -> str:
        return text.tree(self.tree())

    def __repr__(self) -> str:
        return f"Derivation(log_weight={self.log_weight:.6g}, {len(self.edges)} edges)"


class Derivations(LazySequence[Derivation]):
    """A list of derivations; edge numbers of all of them in one array."""

    def __init__(
        self,
        forest: Forest,
        root: int,
        offsets: NDArray[np.int64],
        edges: NDArray[np.int64],
        log_weights: NDArray[np.float64] | None = None,
    ) -> None:
        self.forest, self.root = forest, root
        self.offsets, self.edges = offsets, edges
        if log_weights is None:
            weights = forest.log_weights.detach().double().cpu().numpy()
            log_weights = self._sum_over_nodes(
                np.pad(weights, (0, forest.num_items - len(weights)))
            )
        self.log_weights = log_weights

    def nodes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(number of the derivation, item) of all nodes, repeated items repeated; roots first."""
        arrays = self.forest.arrays
        starts, ends = arrays.tail_offsets[self.edges], arrays.tail_offsets[self.edges + 1]
        counts = ends - starts
        places = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        owners = np.repeat(np.repeat(np.arange(len(self)), np.diff(self.offsets)), counts)
        roots = np.arange(len(self))
        return np.concatenate([roots, owners]), np.concatenate(
            [np.full(len(self), self.root), arrays.tails[places]]
        )

    def _sum_over_nodes(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum of `values` [v] over the nodes of each derivation."""
        owners, items = self.nodes()
        # Of no nodes at all, numpy makes integers.
        return np.bincount(owners, values[items], len(self)).astype(np.float64, copy=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def _made(self, index: int) -> Derivation:
        edges = self.edges[self.offsets[index] : self.offsets[index + 1]]
        return Derivation(self.forest, self.root, edges, float(self.log_weights[index]))

    def __repr__(self) -> str:
        return f"Derivations({len(self)} trees)"
