"""Viterbi and the k best derivations of a forest given as arrays: checks, memory, kernels."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from inout._core.errors import ArgumentError, ForestError, Remedy
from inout.kernels.forest.arrays import Structure
from inout.kernels.forest.cpu import kbest as compiled
from inout.kernels.forest.cpu.kbest import Items, Progress, ScoredForest, Trees
from inout.kernels.limits import FOREST_MAX_EDGES, FOREST_SMALL_SEARCH
from inout.kernels.math.cpu import heap

_Ints = Int64[np.ndarray, "_"]


def _find_nodes(
    forest: ScoredForest, root: int, k: int, max_edges: int
) -> tuple[_Ints, heap.Nodes]:
    """Nodes of the k best derivations of the root in order, 0 for the best, and all nodes."""
    if k == 1:
        # The search would have nothing to do, but would have to be compiled.
        return np.zeros(1, np.int64), heap.new_nodes(1)
    # np.zeros and np.empty take memory from the system only where it is touched, so a small part
    # of a large forest is searched at the cost of that part.
    num_edges = int(forest.edge_offsets[root + 1])
    items = Items(
        np.zeros((root + 1, heap.ITEM_COLUMNS), np.int32),
        np.zeros(root + 1, np.int64),
        np.empty(num_edges, np.float64),
        np.empty(num_edges, np.int64),
    )
    max_nodes = min(max(max_edges, FOREST_SMALL_SEARCH), int(heap.MOST_NODES))
    nodes = heap.new_nodes(min(1024, max_nodes))
    progress = Progress(np.array([1, 1, 0]), np.empty((root + 2, 2), np.int64))
    while not compiled.search(forest, root, k, items, nodes, progress):
        if len(nodes.edges) == max_nodes:
            raise ForestError(
                f"the search for the {k} best derivations of item {root} needs more than "
                f"{max_nodes} partial derivations",
                remedy=Remedy.FEWER_DERIVATIONS,
            )
        nodes = heap.longer_nodes(nodes, min(2 * len(nodes.edges), max_nodes))
    found = int(progress.numbers[0])
    root_nodes = np.zeros(found, np.int64)
    node = items.state[root, heap.FIRST]
    for r in range(1, found):
        root_nodes[r], node = node, nodes.links[node, heap.NEXT]
    return root_nodes, nodes


def _write_trees(
    forest: ScoredForest, root: int, root_nodes: _Ints, nodes: heap.Nodes, max_edges: int
) -> tuple[_Ints, _Ints]:
    """Offsets and edges in preorder of the derivations of the root that the nodes stand for."""
    per_item = np.zeros((2, root + 1), np.int64)
    per_node = np.zeros((2, len(nodes.edges)), np.int64)
    num_tails = int(forest.tail_offsets[forest.edge_offsets[root + 1]])
    stack = np.empty((num_tails + 1, 2), np.int64)
    trees = Trees(per_item[0], per_node[0], per_item[1], per_node[1], stack)
    total = compiled.measure(forest, root, root_nodes, nodes, trees, max_edges + 1)
    if total > max_edges:
        raise ForestError(
            f"the {len(root_nodes)} best derivations of item {root} have more than {max_edges} "
            "edges when written out as trees",
            remedy=Remedy.FEWER_DERIVATIONS,
        )
    offsets = np.zeros(len(root_nodes) + 1, np.int64)
    edges = np.empty(total, np.int64)
    compiled.walk(forest, root, root_nodes, nodes, trees, offsets, edges)
    return offsets, edges


def viterbi(forest: Structure, item_weights: Float64[np.ndarray, " v"]) -> ScoredForest:
    """The forest with the weight `best` [v] of each item's best derivation, and its top edge [v].

        best[i] = item_weights[i] + max over edges j of i of the sum of best[tails of j]

    Of equally good edges the one with the smallest number is taken. `pointer` is -1 for axioms and
    for items without a derivation of weight above -inf.

    Cost: O(edges + tails) time, O(items) memory.

    Example: item 2 is made of items 0 and 1, or of item 1 alone.

    >>> import numpy as np
    >>> edge_offsets, tail_offsets = np.array([0, 0, 0, 2]), np.array([0, 2, 3])
    >>> forest = Structure(2, edge_offsets, tail_offsets, np.array([0, 1, 1], np.int32))
    >>> scored = viterbi(forest, np.array([-1.0, -2.0, 0.0]))
    >>> scored.best.tolist(), scored.pointer.tolist()
    ([-1.0, -2.0, -2.0], [-1, -1, 1])
    """
    size = len(item_weights)
    scored = ScoredForest(*forest, item_weights, np.empty(size), np.empty(size, np.int64))
    compiled.viterbi(scored)
    return scored


def kbest(
    forest: ScoredForest, root: int, k: int, max_edges: int = FOREST_MAX_EDGES
) -> tuple[Float64[np.ndarray, " m"], Int64[np.ndarray, " m+1"], Int64[np.ndarray, " edges"]]:
    """Log-weights [m], offsets [m+1] and edges in preorder of the m <= k best derivations of root.

    `forest` comes from `viterbi`. Derivations of weight -inf do not count; m is k unless there are
    fewer. Heavier ones come first; equal ones are ordered by the edge at the top, then by the ranks
    of the children from left to right (`math/cpu/heap.py`). This order does not depend on k: the k
    best are a prefix of the k+1 best.
    Raises a `ForestError` when the trees together have more than `max_edges` edges: an item used
    twice by one edge, 60 times over, is a tree of 2^60 edges. The same limit holds for the partial
    derivations that the search keeps, 44 bytes each: k of them for every level of a deep forest.

    Cost: O(edges of the items below the best derivations + k d log k) time, where d is the number
    of derived items in a derivation, plus the length of the output.
    Huang & Chiang, "Better k-best parsing" (IWPT 2005), algorithm 3.

    Example: item 2 is made of items 0 and 1, or of item 1 alone.

    >>> import numpy as np
    >>> edge_offsets, tail_offsets = np.array([0, 0, 0, 2]), np.array([0, 2, 3])
    >>> forest = Structure(2, edge_offsets, tail_offsets, np.array([0, 1, 1], np.int32))
    >>> scored = viterbi(forest, np.array([-1.0, -2.0, 0.0]))
    >>> log_weights, offsets, edges = kbest(scored, root=2, k=5)
    >>> log_weights.tolist(), offsets.tolist(), edges.tolist()
    ([-2.0, -3.0], [0, 1, 2], [1, 0])
    """
    best = forest.best
    if not 0 <= root < len(best):
        raise ArgumentError("root", f"must be an item, 0 to {len(best) - 1}. Got {root}")
    if k < 0:
        raise ArgumentError("k", f"must be 0 or more. Got {k}")
    if root < forest.num_axioms or k == 0 or best[root] == -np.inf:
        m = 0 if k == 0 or best[root] == -np.inf else 1
        return best[root : root + m].copy(), np.zeros(m + 1, np.int64), np.zeros(0, np.int64)
    root_nodes, nodes = _find_nodes(forest, root, k, max_edges)
    log_weights = nodes.weights[root_nodes]
    log_weights[0] = best[root]
    return log_weights, *_write_trees(forest, root, root_nodes, nodes, max_edges)
