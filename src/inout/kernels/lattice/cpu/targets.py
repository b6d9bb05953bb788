"""Paths of a lattice of contexts that write given strings: their sum, and the best of them.

A state is a context and how much of the string is written. At a column that can only be between
lows[c] and highs[c] symbols, in a chain exactly one number: a state is numbered context · width +
written - lows[c], where width is the largest number of choices.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.exponential import log_sum


@compiled
def written(columns, targets, lows, highs):
    """How many symbols can be written at each column; returns the largest number of choices.

    Where lows[c] > highs[c] nothing can have been written: the string is too short.
    """
    firsts, source_offsets, sources = columns.firsts, columns.source_offsets, columns.sources
    width = 1
    for b in range(len(firsts) - 1):
        length = targets.offsets[b + 1] - targets.offsets[b]
        for c in range(firsts[b], firsts[b + 1]):
            lows[c], highs[c] = 0, 0
            if source_offsets[c] == source_offsets[c + 1]:
                continue
            low, high = length + 1, -1
            for s in range(source_offsets[c], source_offsets[c + 1]):
                low = min(low, lows[sources[s]])
                high = max(high, highs[sources[s]])
            more = 0 if targets.symbols[columns.first_actions[c]] < 0 else 1
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
def room(problem):
    """Room for numbers of all states of an example, twice, and for the steps into a column."""
    lattice = problem.lattice
    nodes, slots = 1, 1
    for b in range(len(lattice.firsts) - 1):
        lo, hi = lattice.firsts[b], lattice.firsts[b + 1]
        nodes = max(nodes, lattice.node_offsets[hi] - lattice.node_offsets[lo])
    for c in range(len(lattice.sizes)):
        slots = max(slots, lattice.slot_offsets[c + 1] - lattice.slot_offsets[c])
    width = problem.width
    return np.empty(nodes * width), np.empty(nodes * width), np.empty((slots * width, 3), np.int64)


@inner
def find_steps(problem, scores, b, c, ahead, steps):
    """Fills steps [k 3] with (edge, state before, state after) of those into column c: how many.

    Only from states that can be reached: ahead is above -inf.
    """
    lattice, columns, targets = problem.lattice, problem.columns, problem.targets
    string = targets.strings[targets.offsets[b] : targets.offsets[b + 1]]
    size, lo = lattice.sizes[c], lattice.node_offsets[lattice.firsts[b]]
    start, count = lattice.edge_offsets[c], 0
    for s in range(columns.source_offsets[c], columns.source_offsets[c + 1]):
        d = columns.sources[s]
        low, high = problem.lows[d], problem.highs[d]
        for v in range(lattice.node_offsets[d] - lo, lattice.node_offsets[d + 1] - lo):
            for t in range(low, high + 1):
                before = v * problem.width + t - low
                if ahead[before] == -np.inf:
                    continue
                i, after = action(targets.symbols, columns.first_actions[c], size, string, t)
                if i >= 0 and scores[start + i] > -np.inf:
                    node = lattice.edge_targets[start + i] - lo
                    steps[count, 0], steps[count, 1] = start + i, before
                    steps[count, 2] = node * problem.width + after - problem.lows[c]
                    count += 1
            start += size
    return count


@inner
def run(problem, scores, b, best, ahead, steps):
    """Fills ahead with the log of the sum, or the `best`, of the ways to each state.

    Returns the state at the end, with everything written; -1 if it has no way to it.
    """
    firsts, node_offsets = problem.lattice.firsts, problem.lattice.node_offsets
    targets, end = problem.targets, firsts[b + 1] - 1
    nodes = node_offsets[firsts[b + 1]] - node_offsets[firsts[b]]
    ahead[: nodes * problem.width] = -np.inf
    ahead[0] = 0.0
    for c in range(firsts[b] + 1, firsts[b + 1]):
        for k in range(find_steps(problem, scores, b, c, ahead, steps)):
            edge, before, after = steps[k]
            value = ahead[before] + scores[edge]
            ahead[after] = max(ahead[after], value) if best else log_sum(ahead[after], value)
    length = targets.offsets[b + 1] - targets.offsets[b]
    if not problem.lows[end] <= length <= problem.highs[end]:
        return -1
    state = (nodes - 1) * problem.width + length - problem.lows[end]
    return state if ahead[state] > -np.inf else -1


@compiled
def constrained(problem, scores, log_z, posteriors):
    """log of the sum over the paths that write the target of each example; posteriors of edges."""
    ahead, behind, steps = room(problem)
    firsts = problem.lattice.firsts
    posteriors[:] = 0.0
    for b in range(len(firsts) - 1):
        end = run(problem, scores, b, False, ahead, steps)
        log_z[b] = ahead[end] if end >= 0 else -np.inf
        if end < 0:
            continue
        behind[: (end // problem.width + 1) * problem.width] = -np.inf
        behind[end] = 0.0
        for c in range(firsts[b + 1] - 1, firsts[b], -1):
            for k in range(find_steps(problem, scores, b, c, ahead, steps)):
                edge, before, after = steps[k]
                value = scores[edge] + behind[after]
                if value > -np.inf:
                    behind[before] = log_sum(behind[before], value)
                    posteriors[edge] += np.exp(min(ahead[before] + value - log_z[b], 0.0))


@compiled
def best_given(problem, scores, edges, offsets, found):
    """The best path of each example that writes its target, as edges in order; its score.

    Of paths of the same score the one whose last edges come first is taken.
    """
    ahead, _, steps = room(problem)
    firsts, node_offsets = problem.lattice.firsts, problem.lattice.node_offsets
    path = np.empty(len(node_offsets), np.int64)
    offsets[0] = 0
    for b in range(len(firsts) - 1):
        state, length = run(problem, scores, b, True, ahead, steps), 0
        found[b] = ahead[state] if state >= 0 else -np.inf
        lo = node_offsets[firsts[b]]
        for c in range(firsts[b + 1] - 1, firsts[b], -1):
            # A path need not go through every column.
            if state < 0 or state // problem.width + lo < node_offsets[c]:
                continue
            for k in range(find_steps(problem, scores, b, c, ahead, steps)):
                edge, before, after = steps[k]
                if after == state and ahead[before] + scores[edge] == ahead[state]:
                    path[length], state = edge, before
                    length += 1
                    break
        for k in range(length):
            edges[offsets[b] + k] = path[length - 1 - k]
        offsets[b + 1] = offsets[b] + length
