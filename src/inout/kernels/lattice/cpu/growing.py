"""Rows of weights for the histories of some slots of a lattice."""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.lattice.cpu.histories import IS_FULL, child, row


@inner
def _shown(streams, inputs, strings, s, node, latest):
    """The symbols that stream s shows of a context, the latest first; returns their number."""
    shows, places, widths, pairs, next_input, lengths, ranges, num_actions, deepest = streams
    parents, symbols, remembered, is_anchored, columns = strings
    count = 0
    for _ in range(remembered[node]):
        if count == len(latest):
            break
        symbol = shows[s, symbols[node]]
        if symbol >= 0:
            if pairs[s]:
                symbol += num_actions * (inputs[columns[node]] + 1)
            latest[count] = symbol
            count += 1
        node = parents[node]
    return count


@compiled
def grow_rows(graph, streams, table, num_weights, strings, slots, edge_weights, least):
    """Fill in slot_rows of all slots with an edge whose weight is beyond ±least.

    Stops where counts[IS_FULL] is set.
    """
    first_actions, end_actions, inputs = graph
    shows, places, widths, pairs, next_input, lengths, ranges, num_actions, deepest = streams
    keys, values, row_starts, counts, stride = table
    is_anchored = strings[3]
    slot_offsets, slot_nodes, slot_rows, edge_offsets = slots
    depth = lengths.shape[1]
    latest = np.empty(depth, np.int64)
    for c in range(len(first_actions)):
        first = first_actions[c]
        size = end_actions[c] - first
        for slot in range(slot_offsets[c], slot_offsets[c + 1]):
            start = edge_offsets[c] + (slot - slot_offsets[c]) * size
            is_worth = False
            for e in range(start, start + size):
                is_worth |= abs(edge_weights[e]) > least
            if not is_worth:
                continue
            for s in range(len(widths)):
                if places[s, first] < 0:
                    continue
                count = -1
                for k in range(depth):
                    if not lengths[s, k] or slot_rows[slot, s * depth + k] >= 0:
                        continue
                    if count < 0:
                        count = _shown(streams, inputs, strings, s, slot_nodes[slot], latest)
                    # Before all that is remembered is the beginning, or nobody knows what.
                    before = ranges[s] + (0 if is_anchored[slot_nodes[slot]] else 1)
                    node = s
                    for i in range(k - 1, -1, -1):
                        shown = latest[i] if i < count else before
                        node = child(keys, values, row_starts, counts, stride, node, shown, True)
                    if next_input[s]:
                        shown = ranges[s] + 2 + inputs[c] + 1
                        node = child(keys, values, row_starts, counts, stride, node, shown, True)
                    slot_rows[slot, s * depth + k] = row(
                        row_starts, counts, node, widths[s], num_weights, True
                    )
                    if counts[IS_FULL]:
                        return
