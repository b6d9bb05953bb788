"""The histories of contexts, the rows of weights that these have, and the scores of edges."""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.lattice.cpu.histories import GROW_NODES, GROW_ROWS, IS_FULL, child, range_of, row
from inout.kernels.math.cpu.exponential import FAST


@inner
def remember(features, nodes, inputs, first, last, memory, walked, grow):
    """The histories of new contexts first to last, which differ from ⋆…⋆."""
    streams, table, stars, history = features.streams, features.table, features.stars, nodes.history
    shows, parents, lens, depth = streams.symbols, nodes.parents, nodes.lens, stars.shape[1]
    for s in range(stars.shape[0]):
        silent = False
        for a in range(shows.shape[1]):
            silent |= shows[s, a] < 0
        longest = 0
        for k in range(depth):
            if streams.lengths[s, k]:
                longest = k
        own = s * depth
        new_node = grow[s] >= GROW_NODES
        for node in range(first, last):
            source, length = parents[node], 1
            if silent and lens[source] + 1 > memory:
                # What is forgotten may still be among the last symbols of this stream: begin anew.
                length = lens[node]
                for k in range(depth):
                    history[node, own + k] = stars[s, k]
            else:
                for k in range(depth):
                    history[node, own + k] = history[source, own + k]
            v = node
            for k in range(length):
                walked[k] = v
                v = parents[v]
            for step in range(length - 1, -1, -1):
                v = walked[step]
                shown = shows[s, nodes.symbols[v]]
                if shown < 0:
                    continue
                if streams.pairs[s]:
                    shown += streams.num_actions * (inputs[nodes.columns[v]] + 1)
                for k in range(longest, 0, -1):
                    before = history[node, own + k - 1]
                    history[node, own + k] = child(table, before, shown, new_node)


@inner
def find_rows(features, history, nodes, first, given, grow, found):
    """The rows of weights that score the actions of a column after each of some contexts."""
    streams, table, lengths = features.streams, features.table, features.streams.lengths
    num_weights, depth = len(features.weights), lengths.shape[1]
    for s in range(len(streams.widths)):
        new_node, new_row = grow[s] >= GROW_NODES, grow[s] >= GROW_ROWS
        for slot in range(len(nodes)):
            has_row = False
            for k in range(depth - 1, -1, -1):
                f = s * depth + k
                found[slot, f] = -1
                if not lengths[s, k] or streams.places[s, first] < 0:
                    continue
                if streams.deepest and has_row:
                    continue
                place = history[nodes[slot], f]
                if streams.next_input[s]:
                    shown = range_of(streams, s) + 2 + given + 1
                    place = child(table, place, shown, new_node)
                found[slot, f] = row(table, place, streams.widths[s], num_weights, new_row)
                has_row |= found[slot, f] >= 0


@inner(fastmath=FAST)
def score(
    found, nodes, lens, escape, emissions, emission_row, places, first, size, weights, scores
):
    """The scores of the actions of a column after each of some contexts."""
    depth = found.shape[1] // places.shape[0]
    for slot in range(len(nodes)):
        own = scores[slot * size : (slot + 1) * size]
        base = escape if lens[nodes[slot]] == 0 else 0.0
        if emission_row >= 0 and len(emissions):
            given = emissions[emission_row, first : first + size]
            for i in range(size):
                own[i] = base + given[i]
        else:
            for i in range(size):
                own[i] = base
        for f in range(found.shape[1]):
            if found[slot, f] >= 0:
                start = found[slot, f] + places[f // depth, first]
                weight = weights[start : start + size]
                for i in range(size):
                    own[i] += weight[i]


@compiled
def score_edges(columns, places, weights, emissions, escape, lens, slots, edge_offsets, scores):
    """The scores of all edges of a lattice under other weights."""
    for c in range(len(edge_offsets) - 1):
        first = columns.first_actions[c]
        lo, hi = slots.offsets[c], slots.offsets[c + 1]
        score(
            slots.rows[lo:hi], slots.nodes[lo:hi], lens, escape, emissions,
            columns.emission_rows[c], places, first, columns.end_actions[c] - first, weights,
            scores[edge_offsets[c] : edge_offsets[c + 1]],
        )  # fmt: skip


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
