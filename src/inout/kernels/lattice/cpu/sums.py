"""The mass of all paths into the elements and the contexts of a column, in logs.

An element is a class of slots followed by an action: number class · actions + action.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import inner
from inout.kernels.lattice.arrays import Integers, Numbers
from inout.kernels.lattice.cpu.targets import action
from inout.kernels.math.cpu.exponential import FAST, exp_below, log_sum


@inner(fastmath=FAST)
def sum_classes(scores, forward, nodes, order, starts, num_classes, size, room):
    """log of the mass of each element, `room.values`."""
    sums, largest, shares = room.values, room.largest, room.shares
    for k in range(num_classes):
        own = sums[k * size : (k + 1) * size]
        slot = order[starts[k]]
        before = forward[nodes[slot]]
        given = scores[slot * size : (slot + 1) * size]
        for i in range(size):
            own[i] = before + given[i]
        if starts[k + 1] == starts[k] + 1:
            continue
        for place in range(starts[k] + 1, starts[k + 1]):
            slot = order[place]
            before = forward[nodes[slot]]
            given = scores[slot * size : (slot + 1) * size]
            for i in range(size):
                own[i] = max(own[i], before + given[i])
        for i in range(size):
            largest[i] = own[i] if own[i] > -np.inf else 0.0
            own[i] = 0.0
        for place in range(starts[k], starts[k + 1]):
            slot = order[place]
            before = forward[nodes[slot]]
            given = scores[slot * size : (slot + 1) * size]
            for i in range(size):
                shares[i] = exp_below(before + given[i] - largest[i])
            for i in range(size):
                own[i] += shares[i]
        for i in range(size):
            own[i] = np.log(own[i]) + largest[i] if own[i] > 0 else -np.inf


@inner(fastmath={"contract"})
def add_forward(room, count, base, last, forward):
    """forward[v] = log Σ exp(values) of the elements that go into context v, base to last."""
    largest, shares, values, into = room.largest, room.shares, room.values, room.into
    for v in range(base, last + 1):
        largest[v - base] = -np.inf
        forward[v] = 0.0
    for e in range(count):
        v = into[e] - base
        largest[v] = max(largest[v], values[e])
    for v in range(last + 1 - base):
        if largest[v] == -np.inf:
            largest[v] = 0.0
    for e in range(count):
        shares[e] = values[e] - largest[into[e] - base]
    for e in range(count):
        shares[e] = exp_below(shares[e])
    for e in range(count):
        forward[into[e]] += shares[e]
    for v in range(base, last + 1):
        forward[v] = np.log(forward[v]) + largest[v - base] if forward[v] > 0 else -np.inf


class Spelling(NamedTuple):
    """What the paths of an example are to spell; see `targets`."""

    symbols: Integers  # [a]: what actions write
    string: Integers  # the target
    written: Numbers  # [2 c]: how much of it can be written at each column
    mass: NDArray[np.float64]  # [v t]: of a context that has written[0] + t symbols of it


class Column(NamedTuple):
    """What leads into a column: its number, sources, actions, and number of classes."""

    number: int
    sources: Integers
    first: int
    size: int
    num_classes: int


@inner
def _written_before(written, sources):
    """The least and the largest number of symbols written at some columns."""
    low, high = written[0, sources[0]], written[1, sources[0]]
    for s in range(1, len(sources)):
        low = min(low, written[0, sources[s]])
        high = max(high, written[1, sources[s]])
    return low, high


@inner
def sum_targets(spelling, column, nodes, slot_nodes, order, starts, scores, room):
    """The mass of each element that spells the beginning of the target, `room.aimed`.

    `room.class_aims`: that of each class, by the number of symbols written.
    """
    written, mass, sums, size = spelling.written, spelling.mass, room.aimed, column.size
    low, high = _written_before(written, column.sources)
    sums[: column.num_classes * size] = -np.inf
    for k in range(column.num_classes):
        for t in range(low, high + 1):
            total = -np.inf
            i, _ = action(spelling.symbols, column.first, size, spelling.string, t)
            if i >= 0:
                for place in range(starts[k], starts[k + 1]):
                    slot = order[place]
                    v = slot_nodes[slot]
                    before = t - written[0, nodes.columns[v]]
                    if before < 0 or before >= mass.shape[1]:
                        continue
                    if mass[v, before] > -np.inf:
                        total = log_sum(total, mass[v, before] + scores[slot * size + i])
                e = k * size + i
                sums[e] = log_sum(sums[e], total) if total > -np.inf else sums[e]
            room.class_aims[k, t - low] = total


@inner
def add_targets(spelling, column, base, last, room):
    """The mass of each context of a column, base to last, that spells so much of the target."""
    written, mass, aims = spelling.written, spelling.mass, room.class_aims
    low, high = _written_before(written, column.sources)
    mass[base : last + 1] = -np.inf
    for k in range(column.num_classes):
        for t in range(low, high + 1):
            if aims[k, t - low] > -np.inf:
                i, after = action(spelling.symbols, column.first, column.size, spelling.string, t)
                v, place = room.into[k * column.size + i], after - written[0, column.number]
                mass[v, place] = log_sum(mass[v, place], aims[k, t - low])
