"""Samples without replacement from a tree of choices: memory for the search, and its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from inout._core.errors import ForestError
from inout.kernels.limits import FOREST_MAX_EDGES
from inout.kernels.math.cpu import without_replacement as compiled
from inout.kernels.math.cpu.without_replacement import Nodes, Search


class Leaves(NamedTuple):
    """The leaves with the m largest keys, and how to get to each."""

    keys: Float64[np.ndarray, " m"]
    log_probs: Float64[np.ndarray, " m"]  # by adding up those of the choices
    threshold: float  # the largest key of another leaf, -inf if there is none
    offsets: Int64[np.ndarray, " m+1"]
    choices: Int64[np.ndarray, " c"]  # from the root down, leaf by leaf


def no_leaves() -> Leaves:
    """Those of a tree without any."""
    return Leaves(np.empty(0), np.empty(0), -np.inf, np.zeros(1, np.int64), np.empty(0, np.int64))


def sample_leaves(
    kernel: Callable[..., bool], problem: Any, width: int, k: int, seed: int, number: int
) -> Leaves:
    """k leaves without replacement, in their order, fewer if there are fewer.

    `kernel` searches the tree of a `problem` with at most `width` choices at each node. The result
    depends on the seed and the number of the problem only; a smaller k gives a prefix.

    O(k d (w + log k)) time for leaves at depth d, if it takes O(w) to list the choices of a node.
    """
    most = max(FOREST_MAX_EDGES, width + 1)
    nodes = _new_nodes(min(max(1024, 2 * width + 2), most))
    search = Search(
        np.zeros(compiled.NUMBERS, np.int64),
        np.zeros(1, np.uint64),
        np.empty(k + 1),
        np.empty(k + 1, np.int64),
        np.empty(k, np.int64),
        np.empty(width),
        np.empty(width, np.int64),
    )
    while not kernel(problem, nodes, search, np.uint64(seed), number):
        size = len(nodes.masses)
        if size == most:
            raise ForestError(
                f"{k} samples without replacement need more than {most} partial events; "
                "ask for fewer"
            )
        nodes = _longer(nodes, min(2 * size, most))
    found = search.found[: search.numbers[compiled.FOUND]]
    offsets = np.zeros(len(found) + 1, np.int64)
    compiled.write_choices(nodes, found, offsets, np.empty(0, np.int64))
    choices = np.empty(int(offsets[-1]), np.int64)
    if len(choices):
        compiled.write_choices(nodes, found, offsets, choices)
    more = search.numbers[compiled.KEPT] > k
    threshold = float(search.largest[0]) if more else -np.inf
    return Leaves(nodes.keys[found], nodes.masses[found], threshold, offsets, choices)


def empty_batch(k: int, size: int) -> tuple[Float64[np.ndarray, "k b"], Float64[np.ndarray, " b"]]:
    """Keys and thresholds of the elements of a batch, for none of which there is any leaf yet."""
    return np.full((k, size), -np.inf), np.full(size, -np.inf)


def _new_nodes(size: int) -> Nodes:
    links = np.empty((size, compiled.COLUMNS), np.int64)
    return Nodes(links, np.empty(size), np.empty(size), np.empty(size, np.int64))


def _longer(nodes: Nodes, size: int) -> Nodes:
    longer, used = _new_nodes(size), len(nodes.masses)
    for new, old in zip(longer, nodes, strict=True):
        new[:used] = old
    return longer
