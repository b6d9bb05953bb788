"""The hash table of histories: nodes for strings of symbols, rows of weights, their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np import arrayobj

from inout._core.cpu.compiling import compiled, inner

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(32)

# What `counts` holds.
NODES, WEIGHTS, IS_FULL = 0, 1, 2

# What histories of a stream that are new get: nothing, nodes, nodes and rows of weights.
GROW_NOTHING, GROW_NODES, GROW_ROWS = 0, 1, 2


@intrinsic
def _published(_: Any, keys: Any, place: Any) -> Any:
    """keys[place], read before all that is read after it: of a key that is there, all is there."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = arrayobj.make_array(signature.args[0])(context, builder, given[0])
        where = builder.gep(array.data, [given[1]])
        return builder.load_atomic(where, "acquire", 8)

    return types.int64(keys, place), generate


@intrinsic
def _publish(_: Any, keys: Any, place: Any, key: Any) -> Any:
    """keys[place] = key, after all that was written before it: see `_published`."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = arrayobj.make_array(signature.args[0])(context, builder, given[0])
        where = builder.gep(array.data, [given[1]])
        builder.store_atomic(given[2], where, "release", 8)
        return context.get_dummy_value()

    return types.none(keys, place, key), generate


@inner(inline="always")
def _slot(key, size):
    code = np.uint64(key) * MULTIPLIER
    return np.int64((code ^ (code >> SHIFT)) & np.uint64(size - 1))


@compiled
def insert(keys, values, key, value):
    """Put a key that is not there yet into the table."""
    slot = _slot(key, len(keys))
    while keys[slot] >= 0:
        slot = (slot + 1) & (len(keys) - 1)
    keys[slot] = key
    values[slot] = value


@compiled
def reinsert(keys, values, new_keys, new_values):
    """Move all keys into a larger table."""
    for old in range(len(keys)):
        if keys[old] >= 0:
            insert(new_keys, new_values, keys[old], values[old])


@inner
def child(table, node, symbol, grow):
    """The node of a string with one symbol more, -1 if there is none; new if `grow`.

    Where the table has no room for it, counts[IS_FULL] is set: all is to be done again with a
    larger one. Without `grow`, another thread may add to the table meanwhile.
    """
    if node < 0:
        return -1
    keys, values, counts = table.keys, table.values, table.counts
    key = node * table.stride + symbol
    slot = _slot(key, len(keys))
    while True:
        there: Any = _published(keys, slot)  # type: ignore[call-arg]
        if there == key:
            return values[slot]
        if there < 0:
            break
        slot = (slot + 1) & (len(keys) - 1)
    if not grow:
        return -1
    if 2 * (counts[NODES] + 1) > len(keys) or counts[NODES] + 1 > len(table.row_starts):
        counts[IS_FULL] = 1
        return -1
    values[slot] = counts[NODES]
    table.row_starts[counts[NODES]] = -1
    counts[NODES] += 1
    _publish(keys, slot, key)
    return values[slot]


@inner
def row(table, node, width, num_weights, grow):
    """Where the weights of a node begin, -1 if it has none; new ones if `grow`.

    A node, or its row, that another thread has added since does not fit into the arrays here.
    """
    if node < 0 or node >= len(table.row_starts):
        return -1
    start = table.row_starts[node]
    if start >= 0 or not grow:
        return start if start + width <= num_weights else -1
    if table.counts[WEIGHTS] + width > num_weights:
        table.counts[IS_FULL] = 1
        return -1
    start = table.counts[WEIGHTS]
    table.row_starts[node] = start
    table.counts[WEIGHTS] += width
    return start


@inner
def range_of(streams, s):
    """The number of symbols of a stream; behind them are the beginning, ⋆ and the next inputs."""
    return streams.num_actions * (streams.num_inputs + 1 if streams.pairs[s] else 1)


@compiled
def strings(table, offsets, symbols, nodes, grow):
    """The node of each of many strings; `nodes` holds the nodes to start from, and the result."""
    for s in range(len(nodes)):
        node = nodes[s]
        for k in range(offsets[s], offsets[s + 1]):
            node = child(table, node, symbols[k], grow)
        nodes[s] = node


@compiled
def rows(table, nodes, width, num_weights, grow, starts):
    """Where the weights of many nodes begin."""
    for s in range(len(nodes)):
        starts[s] = row(table, nodes[s], width, num_weights, grow)


@compiled(fastmath={"reassoc", "contract"})
def add_gradient(
    slots, edge_offsets, columns, places, edge_weights, scale, gradient, touched, num_touched
):
    """Add the weights of edges to the gradient of all rows that scored them.

    `touched` collects the parts of rows, unless it has no room at all: [:, 0] where they begin,
    [:, 1] how long they are. Returns their number.
    """
    slot_offsets, slot_rows = slots.offsets, slots.rows
    depth = slot_rows.shape[1] // places.shape[0]
    for c in range(len(edge_offsets) - 1):
        first = columns.first_actions[c]
        size = columns.end_actions[c] - first
        for slot in range(slot_offsets[c], slot_offsets[c + 1]):
            start = edge_offsets[c] + (slot - slot_offsets[c]) * size
            own = edge_weights[start : start + size]
            any_weight = False
            for i in range(size):
                any_weight |= own[i] != 0.0
            if not any_weight:
                continue
            for f in range(slot_rows.shape[1]):
                if slot_rows[slot, f] < 0:
                    continue
                place = slot_rows[slot, f] + places[f // depth, first]
                target = gradient[place : place + size]
                for i in range(size):
                    target[i] += scale * own[i]
                if len(touched):
                    touched[num_touched, 0] = place
                    touched[num_touched, 1] = size
                    num_touched += 1
    return num_touched


@compiled
def adagrad(weights, gradient, squares, touched, num_touched, step, delta):
    """weights += step · gradient / (delta + √squares) where the gradient is not 0; clears it."""
    for t in range(num_touched):
        place, size = touched[t]
        for i in range(place, place + size):
            slope = gradient[i]
            if slope != 0.0:
                squares[i] += slope * slope
                weights[i] += step * slope / (delta + np.sqrt(squares[i]))
                gradient[i] = 0.0
