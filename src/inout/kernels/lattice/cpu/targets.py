"""Paths of a lattice of contexts that write given strings: their sum, and the best of them.

A state is a context and how much of the string is written. At a column that can only be between
lows[c] and highs[c] symbols, in a chain exactly one number: a state is stored as [context,
written - lows[c]].
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner


@compiled
def written(columns, targets, lows, highs):
    """How many symbols can be written at each column; returns the largest number of choices.

    Where lows[c] > highs[c] nothing can have been written: the string is too short.
    """
    firsts, source_offsets, sources, first_actions = columns
    symbols, strings, offsets = targets
    width = 1
    for b in range(len(firsts) - 1):
        length = offsets[b + 1] - offsets[b]
        for c in range(firsts[b], firsts[b + 1]):
            lows[c], highs[c] = 0, 0
            if source_offsets[c] == source_offsets[c + 1]:
                continue
            low, high = length + 1, -1
            for s in range(source_offsets[c], source_offsets[c + 1]):
                low = min(low, lows[sources[s]])
                high = max(high, highs[sources[s]])
            more = 0 if symbols[first_actions[c]] < 0 else 1
            lows[c], highs[c] = low + more, min(high + more, length)
            width = max(width, high - low + 1)
    return width


@inner
def action(target_symbols, first, size, string, t):
    """(number of the action that writes the next symbol, -1: none; symbols written by then)."""
    if target_symbols[first] < 0:
        return 0, t
    if t >= len(string):
        return -1, t
    i = string[t] - target_symbols[first]
    return (i if 0 <= i < size else -1), t + 1


@inner
def add_logs(a, b):
    """log(exp a + exp b)."""
    if a < b:
        a, b = b, a
    return a if b == -np.inf else a + np.log1p(np.exp(b - a))


@compiled
def constrained(lattice, columns, scores, targets, ranges, sizes_of_states, log_z, posteriors):
    """log of the sum over the paths that write the target of each example; posteriors of edges."""
    firsts, node_offsets, slot_offsets, slot_nodes, edge_offsets, edge_targets, sizes = lattice
    _, source_offsets, sources, first_actions = columns
    symbols, strings, offsets = targets
    lows, highs = ranges
    posteriors[:] = 0.0
    ahead = np.empty(sizes_of_states, np.float64)
    behind = np.empty(sizes_of_states, np.float64)
    for b in range(len(firsts) - 1):
        string = strings[offsets[b] : offsets[b + 1]]
        lo, hi = node_offsets[firsts[b]], node_offsets[firsts[b + 1]]
        ahead[: hi - lo] = -np.inf
        behind[: hi - lo] = -np.inf
        ahead[0, 0] = 0.0
        for c in range(firsts[b] + 1, firsts[b + 1]):
            start = edge_offsets[c]
            for s in range(source_offsets[c], source_offsets[c + 1]):
                d = sources[s]
                for v in range(node_offsets[d] - lo, node_offsets[d + 1] - lo):
                    for t in range(lows[d], highs[d] + 1):
                        before = ahead[v, t - lows[d]]
                        if before == -np.inf:
                            continue
                        i, after = action(symbols, first_actions[c], sizes[c], string, t)
                        if i >= 0 and scores[start + i] > -np.inf:
                            u, place = edge_targets[start + i] - lo, after - lows[c]
                            ahead[u, place] = add_logs(ahead[u, place], before + scores[start + i])
                    start += sizes[c]
        end = firsts[b + 1] - 1
        log_z[b] = -np.inf
        if lows[end] <= len(string) <= highs[end]:
            log_z[b] = ahead[hi - lo - 1, len(string) - lows[end]]
        if log_z[b] == -np.inf:
            continue
        behind[hi - lo - 1, len(string) - lows[end]] = 0.0
        for c in range(end, firsts[b], -1):
            start = edge_offsets[c]
            for s in range(source_offsets[c], source_offsets[c + 1]):
                d = sources[s]
                for v in range(node_offsets[d] - lo, node_offsets[d + 1] - lo):
                    for t in range(lows[d], highs[d] + 1):
                        own = t - lows[d]
                        if ahead[v, own] == -np.inf:
                            continue
                        i, after = action(symbols, first_actions[c], sizes[c], string, t)
                        if i < 0:
                            continue
                        u = edge_targets[start + i] - lo
                        value = scores[start + i] + behind[u, after - lows[c]]
                        if value > -np.inf:
                            behind[v, own] = add_logs(behind[v, own], value)
                            share = ahead[v, own] + value - log_z[b]
                            posteriors[start + i] += np.exp(min(share, 0.0))
                    start += sizes[c]


@compiled
def best_given(lattice, columns, scores, targets, ranges, sizes_of_states, edges, offsets, found):
    """The best path of each example that writes its target, as edges in order; its score.

    Of paths of the same score the one whose last edges come first is taken.
    """
    firsts, node_offsets, slot_offsets, slot_nodes, edge_offsets, edge_targets, sizes = lattice
    _, source_offsets, sources, first_actions = columns
    symbols, strings, string_offsets = targets
    lows, highs = ranges
    values = np.empty(sizes_of_states, np.float64)
    back = np.empty(sizes_of_states, np.int64)  # the best edge into each state
    origins = np.empty(sizes_of_states, np.int32)
    places = np.empty(sizes_of_states, np.int32)  # how much was written before it
    path = np.empty(len(sizes) + 1, np.int64)
    offsets[0] = 0
    for b in range(len(firsts) - 1):
        string = strings[string_offsets[b] : string_offsets[b + 1]]
        lo, hi = node_offsets[firsts[b]], node_offsets[firsts[b + 1]]
        values[: hi - lo] = -np.inf
        back[: hi - lo] = -1
        values[0, 0] = 0.0
        for c in range(firsts[b] + 1, firsts[b + 1]):
            start = edge_offsets[c]
            for s in range(source_offsets[c], source_offsets[c + 1]):
                d = sources[s]
                for v in range(node_offsets[d] - lo, node_offsets[d + 1] - lo):
                    for t in range(lows[d], highs[d] + 1):
                        own = t - lows[d]
                        i, after = action(symbols, first_actions[c], sizes[c], string, t)
                        if i < 0 or values[v, own] == -np.inf:
                            continue
                        value = values[v, own] + scores[start + i]
                        u, place = edge_targets[start + i] - lo, after - lows[c]
                        if value > values[u, place]:
                            values[u, place], back[u, place] = value, start + i
                            origins[u, place], places[u, place] = v, own
                    start += sizes[c]
        end = firsts[b + 1] - 1
        length, found[b] = 0, -np.inf
        if lows[end] <= len(string) <= highs[end]:
            v, t = hi - lo - 1, len(string) - lows[end]
            found[b] = values[v, t]
            while back[v, t] >= 0:
                path[length] = back[v, t]
                length += 1
                v, t = origins[v, t], places[v, t]
        for k in range(length):
            edges[offsets[b] + k] = path[length - 1 - k]
        offsets[b + 1] = offsets[b] + length
