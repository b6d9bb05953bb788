"""Random derivations of a forest given as arrays: checks, memory, threads, kernels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float64, Int64

from inout._core.errors import ArgumentError, ForestError, Remedy
from inout.kernels.forest.arrays import Structure
from inout.kernels.forest.cpu import sample as compiled
from inout.kernels.forest.cpu.sample import Tables
from inout.kernels.limits import FOREST_MAX_EDGES, FOREST_SAMPLES_PER_THREAD


def alias_tables(
    edge_offsets: Int64[np.ndarray, " v_plus_1"], edge_probabilities: Float64[np.ndarray, " e"]
) -> Tables:
    """Acceptance probability and alias edge of every edge [e], to draw an edge of an item by.

    To draw from an item with n edges, take one of them uniformly, keep it with its acceptance
    probability, and take its alias otherwise. `edge_probabilities` are given the item; they are
    normalised again, so a sum of one up to rounding is enough. An edge of probability zero is never
    drawn; the edges of an item whose probabilities are all zero have the alias -2 (impossible).

    Cost: O(items + edges) time and memory. Vose, "A linear algorithm for generating random numbers
    with a given distribution" (1991).

    >>> import numpy as np
    >>> accept, alias = alias_tables(np.array([0, 0, 2]), np.array([0.25, 0.75]))
    >>> accept.tolist(), alias.tolist()
    ([0.5, 1.0], [1, 1])
    """
    if len(edge_probabilities) >= 2**31:
        raise ForestError(
            f"alias tables are for less than 2^31 edges. Got {len(edge_probabilities)}"
        )
    size = len(edge_probabilities)
    tables = Tables(np.empty(size, np.float64), np.empty(size, np.int32))
    compiled.alias_tables(edge_offsets, edge_probabilities, tables)
    return tables


def sample(
    forest: Structure,
    tables: Tables,
    roots: Int64[np.ndarray, " n"],
    seed: int | np.uint64,
    max_edges: int = FOREST_MAX_EDGES,
) -> tuple[Int64[np.ndarray, " n+1"], Int64[np.ndarray, " edges"]]:
    """Offsets [n+1] and edges in preorder of one random derivation below each of the n roots.

    Sample i depends on the forest, the tables, `roots[i]`, the seed (0 to 2^64 - 1) and i, and on
    nothing else: more roots only add samples at the end. A `ForestError` says so when a root has no
    derivation, or when the trees together have more than `max_edges` edges.

    Cost: O(n times the size of a derivation) time, twice: the trees are first counted, then drawn
    again into memory of the right size.

    >>> import numpy as np
    >>> edge_offsets, tail_offsets = np.array([0, 0, 2]), np.array([0, 1, 1])
    >>> forest = Structure(1, edge_offsets, tail_offsets, np.array([0], np.int32))
    >>> tables = alias_tables(edge_offsets, np.array([1.0, 0.0]))
    >>> offsets, edges = sample(forest, tables, np.array([1, 0, 1]), seed=7)
    >>> offsets.tolist(), edges.tolist()
    ([0, 1, 1, 2], [0, 0])
    """
    n, num_items = len(roots), len(forest.edge_offsets) - 1
    if n > 0 and not (roots.min() >= 0 and roots.max() < num_items):
        raise ArgumentError("roots", f"must be items, 0 to {num_items - 1}. Got {roots}")
    if not 0 <= seed < 2**64:
        raise ArgumentError("seed", f"must be in 0 to 2^64 - 1. Got {seed}")
    given = forest, tables, roots, np.uint64(seed)
    threads = max(1, min(compiled.NUM_THREADS, n // FOREST_SAMPLES_PER_THREAD))
    bounds = [n * i // threads for i in range(threads + 1)]
    offsets = np.zeros(n + 1, np.int64)

    def run(edges: Int64[np.ndarray, " edges"], fill: bool) -> None:
        def part(first: int, last: int) -> None:
            compiled.sample_range(*given, first, last, max_edges, offsets, edges, fill)

        if threads == 1:
            part(0, n)
            return
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, bounds[:-1], bounds[1:]))

    run(np.empty(0, np.int64), False)
    if (offsets == compiled.IMPOSSIBLE).any():
        raise ForestError(
            "an item that must be sampled has no derivation of positive probability, below root "
            f"{roots[int((offsets == compiled.IMPOSSIBLE).argmax()) - 1]}"
        )
    if (offsets == compiled.TOO_LARGE).any() or offsets.sum() > max_edges:
        raise ForestError(
            f"the {n} samples have more than {max_edges} edges when written out as trees",
            remedy=Remedy.FEWER_DERIVATIONS,
        )
    np.cumsum(offsets, out=offsets)
    edges = np.empty(int(offsets[-1]), np.int64)
    run(edges, True)
    return offsets, edges
