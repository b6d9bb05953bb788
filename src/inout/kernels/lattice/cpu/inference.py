"""Passes over a lattice of selected contexts: forward, backward, the best paths."""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled
from inout.kernels.math.cpu.exponential import exp_below


@compiled
def forward(lattice, scores, values):
    """log of the sum over all paths from the beginning to each context of a lattice (`Paths`)."""
    node_offsets, slot_offsets = lattice.node_offsets, lattice.slot_offsets
    slot_nodes, sizes = lattice.slot_nodes, lattice.sizes
    edge_offsets, edge_targets = lattice.edge_offsets, lattice.edge_targets
    most = 1
    for c in range(len(sizes)):
        most = max(most, node_offsets[c + 1] - node_offsets[c])
    largest = np.empty(most, np.float64)
    for c in range(len(sizes)):
        lo, hi = node_offsets[c], node_offsets[c + 1]
        if slot_offsets[c] == slot_offsets[c + 1]:
            values[lo:hi] = 0.0
            continue
        largest[:] = -np.inf
        values[lo:hi] = 0.0
        for slot in range(slot_offsets[c], slot_offsets[c + 1]):
            start = edge_offsets[c] + (slot - slot_offsets[c]) * sizes[c]
            before = values[slot_nodes[slot]]
            for e in range(start, start + sizes[c]):
                v = edge_targets[e] - lo
                largest[v] = max(largest[v], before + scores[e])
        for slot in range(slot_offsets[c], slot_offsets[c + 1]):
            start = edge_offsets[c] + (slot - slot_offsets[c]) * sizes[c]
            before = values[slot_nodes[slot]]
            for e in range(start, start + sizes[c]):
                v = edge_targets[e]
                value = before + scores[e]
                if value > -np.inf:
                    values[v] += exp_below(value - largest[v - lo])
        for v in range(lo, hi):
            values[v] = np.log(values[v]) + largest[v - lo] if values[v] > 0 else -np.inf


@compiled(fastmath={"contract"})
def backward(lattice, scores, values, mass, posteriors):
    """log of the sum over all paths from each context to the end; probabilities.

    On the way back each context learns what share each of its edges has, on the way ahead its
    mass is divided among them: so it adds up to one even where log Z is too large for that.
    """
    firsts, node_offsets, slot_offsets = lattice.firsts, lattice.node_offsets, lattice.slot_offsets
    slot_nodes, sizes = lattice.slot_nodes, lattice.sizes
    edge_offsets, edge_targets = lattice.edge_offsets, lattice.edge_targets
    most = 1
    for c in range(len(sizes)):
        most = max(most, sizes[c])
    terms = np.empty(most, np.float64)
    largest = np.empty(len(slot_nodes), np.float64)  # of the edges of a slot
    tops = np.full(len(values), -np.inf)  # of the slots of a context
    totals = np.zeros(len(values), np.float64)  # the sum of its edges, less `tops`
    for b in range(len(firsts) - 1):
        first, end = node_offsets[firsts[b]], node_offsets[firsts[b + 1]] - 1
        values[first:end], values[end] = -np.inf, 0.0
        for c in range(firsts[b + 1] - 1, firsts[b], -1):
            size = sizes[c]
            own = terms[:size]
            for slot in range(slot_offsets[c], slot_offsets[c + 1]):
                v = slot_nodes[slot]
                start = edge_offsets[c] + (slot - slot_offsets[c]) * size
                given = scores[start : start + size]
                into = edge_targets[start : start + size]
                shares = posteriors[start : start + size]
                top = -np.inf
                for i in range(size):
                    own[i] = given[i] + values[into[i]]
                    top = max(top, own[i])
                largest[slot] = top
                if top == -np.inf:
                    shares[:] = 0.0
                    continue
                total = 0.0
                for i in range(size):
                    shares[i] = exp_below(own[i] - top)
                for i in range(size):
                    total += shares[i]
                if top > tops[v]:
                    totals[v] = totals[v] * exp_below(tops[v] - top) + total
                    tops[v] = top
                else:
                    totals[v] += total * exp_below(top - tops[v])
                values[v] = tops[v] + np.log(totals[v])
        mass[first : end + 1] = 0.0
        mass[first] = 0.0 if values[first] == -np.inf else 1.0
        for c in range(firsts[b] + 1, firsts[b + 1]):
            size = sizes[c]
            for slot in range(slot_offsets[c], slot_offsets[c + 1]):
                v = slot_nodes[slot]
                if totals[v] == 0.0:
                    continue
                start = edge_offsets[c] + (slot - slot_offsets[c]) * size
                into = edge_targets[start : start + size]
                shares = posteriors[start : start + size]
                share = mass[v] * exp_below(largest[slot] - tops[v]) / totals[v]
                for i in range(size):
                    shares[i] *= share
                for i in range(size):
                    mass[into[i]] += shares[i]


@compiled
def kbest(lattice, scores, values, edges, offsets):
    """The k best paths of each example as edges, in order; `values` [v k]: of those to a context.

    Fewer where there are fewer: the rest are empty. Of paths of the same score the one that was
    met first is before the other.
    """
    firsts, node_offsets, slot_offsets = lattice.firsts, lattice.node_offsets, lattice.slot_offsets
    slot_nodes, sizes = lattice.slot_nodes, lattice.sizes
    edge_offsets, edge_targets = lattice.edge_offsets, lattice.edge_targets
    k = values.shape[1]
    back = np.full(values.shape, -1, np.int64)  # the last edge of each path to a context
    origins = np.full(values.shape, -1, np.int32)  # where it comes from
    ranks = np.full(values.shape, -1, np.int32)  # by which of the paths to there
    offsets[0] = 0
    path = np.empty(len(sizes) + 1, np.int64)
    for b in range(len(firsts) - 1):
        for c in range(firsts[b], firsts[b + 1]):
            values[node_offsets[c] : node_offsets[c + 1]] = -np.inf
            if c == firsts[b]:
                values[node_offsets[c], 0] = 0.0
            for slot in range(slot_offsets[c], slot_offsets[c + 1]):
                u = slot_nodes[slot]
                start = edge_offsets[c] + (slot - slot_offsets[c]) * sizes[c]
                for e in range(start, start + sizes[c]):
                    v = edge_targets[e]
                    for r in range(k):
                        value = values[u, r] + scores[e]
                        if not value > values[v, k - 1]:
                            break
                        place = k - 1
                        while place > 0 and value > values[v, place - 1]:
                            values[v, place] = values[v, place - 1]
                            back[v, place] = back[v, place - 1]
                            origins[v, place] = origins[v, place - 1]
                            ranks[v, place] = ranks[v, place - 1]
                            place -= 1
                        values[v, place], back[v, place] = value, e
                        origins[v, place], ranks[v, place] = u, r
        end = node_offsets[firsts[b + 1]] - 1
        for rank in range(k):
            length, v, r = 0, end, rank
            while back[v, r] >= 0:
                path[length] = back[v, r]
                length += 1
                v, r = origins[v, r], ranks[v, r]
            at = b * k + rank
            for i in range(length):
                edges[offsets[at] + i] = path[length - 1 - i]
            offsets[at + 1] = offsets[at] + length


@compiled
def count_actions(edge_offsets, first_actions, sizes, rows, edge_weights, counts):
    """Add up the weights of the edges of each emission row by action."""
    for c in range(len(sizes)):
        if rows[c] < 0 or sizes[c] == 0:
            continue
        own = counts[rows[c], first_actions[c] : first_actions[c] + sizes[c]]
        for start in range(edge_offsets[c], edge_offsets[c + 1], sizes[c]):
            given = edge_weights[start : start + sizes[c]]
            for i in range(sizes[c]):
                own[i] += given[i]
