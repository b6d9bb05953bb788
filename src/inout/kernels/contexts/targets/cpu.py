"""The best path of a lattice of contexts that writes a given string."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def best_given(lattice, first_actions, scores, targets, most_nodes, edges, offsets, found):
    """The best path of each example that writes its target, as edges in order; its score.

    A state is a context and how much of the target is written. Of paths of the same score the one
    whose last edges come first is taken.
    """
    firsts, node_offsets, slot_offsets, slot_nodes, edge_offsets, edge_targets, sizes = lattice
    symbols, strings, string_offsets = targets
    longest = 0
    for b in range(len(firsts) - 1):
        longest = max(longest, string_offsets[b + 1] - string_offsets[b])
    values = np.empty((most_nodes, longest + 1), np.float64)
    back = np.empty((most_nodes, longest + 1), np.int64)  # the best edge into each state
    origins = np.empty((most_nodes, longest + 1), np.int32)
    path = np.empty(len(sizes) + 1, np.int64)
    offsets[0] = 0
    for b in range(len(firsts) - 1):
        string = strings[string_offsets[b] : string_offsets[b + 1]]
        lo, hi = node_offsets[firsts[b]], node_offsets[firsts[b + 1]]
        values[: hi - lo] = -np.inf
        back[: hi - lo] = -1
        values[0, 0] = 0.0
        for c in range(firsts[b] + 1, firsts[b + 1]):
            silent = symbols[first_actions[c]] < 0
            for slot in range(slot_offsets[c], slot_offsets[c + 1]):
                v = slot_nodes[slot] - lo
                start = edge_offsets[c] + (slot - slot_offsets[c]) * sizes[c]
                for t in range(len(string) + 1):
                    if values[v, t] == -np.inf:
                        continue
                    i, after = 0, t
                    if not silent:
                        if t == len(string):
                            continue
                        i, after = string[t] - symbols[first_actions[c]], t + 1
                        if i < 0 or i >= sizes[c]:
                            continue
                    value = values[v, t] + scores[start + i]
                    u = edge_targets[start + i] - lo
                    if value > values[u, after]:
                        values[u, after] = value
                        back[u, after], origins[u, after] = start + i, v
        v, t, length = hi - lo - 1, len(string), 0
        found[b] = values[v, t]
        c = firsts[b + 1] - 1
        while back[v, t] >= 0:
            e = back[v, t]
            path[length] = e
            length += 1
            while e < edge_offsets[c]:
                c -= 1
            v, t = origins[v, t], t - (0 if symbols[first_actions[c]] < 0 else 1)
        for k in range(length):
            edges[offsets[b] + k] = path[length - 1 - k]
        offsets[b + 1] = offsets[b] + length
