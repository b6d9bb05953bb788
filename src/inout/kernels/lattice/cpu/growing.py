"""Rows of weights for the histories of some slots of a lattice."""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.lattice.cpu.histories import IS_FULL, child, range_of, row


@inner
def _shown(streams, inputs, strings, s, node, latest):
    """The symbols that stream s shows of a context, the latest first; returns their number."""
    count = 0
    for _ in range(strings.lens[node] - strings.is_anchored[node]):
        if count == len(latest):
            break
        symbol = streams.symbols[s, strings.symbols[node]]
        if symbol >= 0:
            if streams.pairs[s]:
                symbol += streams.num_actions * (inputs[strings.columns[node]] + 1)
            latest[count] = symbol
            count += 1
        node = strings.parents[node]
    return count


@inner
def _grow_slot(features, columns, strings, node, c, latest, found):
    """Fills in the rows [f] of a slot: context `node` before column c."""
    streams, table, depth = features.streams, features.table, features.streams.lengths.shape[1]
    for s in range(len(streams.widths)):
        if streams.places[s, columns.first_actions[c]] < 0:
            continue
        count = -1
        for k in range(depth):
            if not streams.lengths[s, k] or found[s * depth + k] >= 0:
                continue
            if count < 0:
                count = _shown(streams, columns.inputs, strings, s, node, latest)
            # Before all that is remembered is the beginning, or nobody knows what.
            before = range_of(streams, s) + (0 if strings.is_anchored[node] else 1)
            place = s
            for i in range(k - 1, -1, -1):
                place = child(table, place, latest[i] if i < count else before, True)
            if streams.next_input[s]:
                place = child(table, place, range_of(streams, s) + 3 + columns.inputs[c], True)
            width = streams.widths[s]
            found[s * depth + k] = row(table, place, width, len(features.weights), True)


@compiled
def grow_rows(columns, features, strings, slots, edge_offsets, edge_weights, least):
    """Fill in the rows of all slots with an edge whose weight is beyond ±least.

    Stops where counts[IS_FULL] is set.
    """
    latest = np.empty(features.streams.lengths.shape[1], np.int64)
    for c in range(len(edge_offsets) - 1):
        size = columns.end_actions[c] - columns.first_actions[c]
        for slot in range(slots.offsets[c], slots.offsets[c + 1]):
            start = edge_offsets[c] + (slot - slots.offsets[c]) * size
            is_worth = False
            for e in range(start, start + size):
                is_worth |= abs(edge_weights[e]) > least
            if is_worth:
                node = slots.nodes[slot]
                _grow_slot(features, columns, strings, node, c, latest, slots.rows[slot])
                if features.table.counts[IS_FULL]:
                    return
