"""Expected counts of a forest in little memory: values and shares are made again, block by block.

Items go in blocks, in their order. Kept are the values of items that later blocks use, and of
axioms that several do; all others share room for one block. The arithmetic is
that of `scaled.py`, in the same order, so the numbers are the same to the last digit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled
from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.cpu.scaled import derive, log_values, scaled_exp, spread

Array = NDArray[Any]


class Blocks(NamedTuple):
    """A forest cut into blocks."""

    bounds: Array  # [k+1], the derived items of each
    axiom_bounds: Array  # [k+1]
    axioms: Array  # those used by one block only, block by block
    places: Array  # [v], where the value is: below `kept`, or in the block's room after it
    kept: int
    most: int  # values of a block that are not kept


class Room(NamedTuple):
    """Values, kept ones first."""

    mantissas: Array
    exponents: Array


@compiled
def uses(forest):
    """(first [a], last [v]): the items that first and last use each, -1 for none."""
    num_axioms, edge_offsets, tail_offsets, tails = forest
    num_items = edge_offsets.shape[0] - 1
    first, last = np.full(num_axioms, -1, np.int32), np.full(num_items, -1, np.int32)
    for h in range(num_axioms, num_items):
        for t in range(tail_offsets[edge_offsets[h]], tail_offsets[edge_offsets[h + 1]]):
            i = tails[t]
            last[i] = h
            if i < num_axioms and first[i] < 0:
                first[i] = h
    return first, last


@compiled
def assign(num_axioms, bounds, first, last, counts, places):
    """Fills the places [v], -1 for what is not kept; how many are kept.

    counts [2 k]: of the others, the axioms and the items of each block.
    """
    kept = 0
    counts[:] = 0
    for i in range(num_axioms):
        places[i] = -1
        if first[i] >= 0:
            block = np.searchsorted(bounds, first[i], side="right")
            if last[i] >= bounds[block]:
                places[i] = kept
                kept += 1
            else:
                counts[0, block - 1] += 1
    for block in range(bounds.shape[0] - 1):
        for i in range(bounds[block], bounds[block + 1]):
            places[i] = -1
            if last[i] >= bounds[block + 1]:
                places[i] = kept
                kept += 1
            else:
                counts[1, block] += 1
    return kept


@compiled
def settle(bounds, first, axiom_bounds, kept, places, axioms):
    """Gives all others a place after the kept values, axioms first, and lists these axioms."""
    filled = axiom_bounds.copy()
    for i in range(first.shape[0]):
        if first[i] >= 0 and places[i] < 0:
            block = np.searchsorted(bounds, first[i], side="right") - 1
            places[i] = kept + filled[block] - axiom_bounds[block]
            axioms[filled[block]] = i
            filled[block] += 1
    for block in range(bounds.shape[0] - 1):
        place = kept + axiom_bounds[block + 1] - axiom_bounds[block]
        for i in range(bounds[block], bounds[block + 1]):
            if places[i] < 0:
                places[i] = place
                place += 1


def cut(arrays: ForestArrays, count: int, memory: int | None = None) -> tuple[Blocks | None, int]:
    """About `count` blocks of as many edges, and the bytes that they take.

    With `memory`, the fewest that take no more, at least `count` and doubled each time; or None
    and the least that any take.
    """
    first, last = uses(arrays.structure)
    places, least = np.empty(arrays.num_items, np.int32), -1
    while True:
        goals = np.linspace(0, arrays.num_edges, min(count, arrays.num_edges) + 1).astype(np.int64)
        inner = np.searchsorted(arrays.edge_offsets, goals[1:-1])
        ends = [arrays.num_axioms, arrays.num_items]
        bounds = np.unique(np.concatenate([inner.clip(ends[0], ends[1]), ends]))
        own = np.empty((2, len(bounds) - 1), np.int64)
        kept = assign(arrays.num_axioms, bounds, first, last, own, places)
        most = int(own.sum(0).max(initial=0))
        needed = 16 * (kept + most) + 8 * _most_edges(arrays, bounds)
        least = needed if least < 0 else min(least, needed)
        if memory is None or needed <= memory:
            break
        if count >= len(bounds) and count >= arrays.num_items:
            return None, least
        count *= 2
    axiom_bounds = np.concatenate([[0], own[0].cumsum()])
    axioms = np.empty(axiom_bounds[-1], np.int32)
    settle(bounds, first, axiom_bounds, kept, places, axioms)
    # Unsigned, so that no index is checked for its sign; unused axioms are beyond all places.
    return Blocks(bounds, axiom_bounds, axioms, places.view(np.uint32), kept, most), needed


def _most_edges(arrays: ForestArrays, bounds: Array) -> int:
    return int(np.diff(arrays.edge_offsets[bounds]).max(initial=0))


def _room(blocks: Blocks) -> Room:
    values = blocks.kept + blocks.most
    return Room(np.empty(values), np.empty(values))


@compiled(error_model="numpy")
def keep_axioms(num_axioms, blocks, weights, room):
    """Fills the values of the axioms that several blocks use; whether an exponent is not 0."""
    scaled = np.bool_(False)
    for i in range(num_axioms):
        if blocks.places[i] < blocks.kept:
            place = blocks.places[i]
            room.mantissas[place], room.exponents[place] = scaled_exp(weights[i])
            scaled = scaled or room.exponents[place] != 0.0
    return scaled


@compiled(error_model="numpy")
def enter(forest, blocks, k, weights, scaled, room, shares):
    """Fills in the values of block k, and the shares of its edges unless they are None.

    `scaled`, returned too: whether any exponent is not 0.
    """
    mantissas, exponents = room
    for j in range(blocks.axiom_bounds[k], blocks.axiom_bounds[k + 1]):
        place = blocks.places[blocks.axioms[j]]
        mantissas[place], exponents[place] = scaled_exp(weights[blocks.axioms[j]])
        scaled = scaled or exponents[place] != 0.0
    first, last = blocks.bounds[k], blocks.bounds[k + 1]
    first_edge = forest.edge_offsets[first]
    return derive(
        forest, weights, first, last, blocks.places, first_edge, scaled,
        mantissas, exponents, shares,
    )  # fmt: skip


@compiled(error_model="numpy")
def leave(forest, blocks, k, room, shares, counts):
    """Takes the counts of the items of block k, after `enter`, to their tails."""
    first, last = blocks.bounds[k], blocks.bounds[k + 1]
    for h in range(first, last):
        if room.mantissas[blocks.places[h]] == 0.0:
            counts[h] = 0.0
    spread(forest, first, last, forest.edge_offsets[first], shares, counts)


def inside(
    arrays: ForestArrays, blocks: Blocks, weights: Array, roots: Array
) -> tuple[Array, Array, Array]:
    """(log values of the roots [r], mantissas and exponents of the kept values)."""
    room, logs = _room(blocks), weights[roots].copy()  # axioms have their own
    scaled = keep_axioms(arrays.num_axioms, blocks, weights, room)
    order = np.argsort(roots, kind="stable")
    bounds = np.searchsorted(roots[order], blocks.bounds)
    for k in range(len(blocks.bounds) - 1):
        scaled = enter(arrays.structure, blocks, k, weights, scaled, room, None)
        chosen = order[bounds[k] : bounds[k + 1]]
        places = blocks.places[roots[chosen]]
        logs[chosen] = log_values(room.mantissas[places], room.exponents[places])
    return logs, room.mantissas[: blocks.kept].copy(), room.exponents[: blocks.kept].copy()


def outside(
    arrays: ForestArrays, blocks: Blocks, weights: Array, kept: tuple[Array, Array], seeds: Array
) -> Array:
    """Expected counts [v], after `inside`; in the memory of `seeds`."""
    room, shares = _room(blocks), np.empty(_most_edges(arrays, blocks.bounds))
    room.mantissas[: blocks.kept], room.exponents[: blocks.kept] = kept
    scaled = bool((kept[1] != 0.0).any())
    axioms = seeds[: arrays.num_axioms]
    axioms[weights[: arrays.num_axioms] == -np.inf] = 0.0
    for k in range(len(blocks.bounds) - 2, -1, -1):
        enter(arrays.structure, blocks, k, weights, scaled, room, shares)
        leave(arrays.structure, blocks, k, room, shares, seeds)
    return seeds
