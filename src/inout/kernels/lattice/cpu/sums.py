"""The mass of all paths into the elements and the contexts of a column, in logs.

An element is a class of slots followed by an action: number class · actions + action.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import inner
from inout.kernels.lattice.cpu.targets import action, add_logs
from inout.kernels.math.cpu.exponential import FAST, exp_below


@inner(fastmath=FAST)
def sum_classes(scores, forward, nodes, order, starts, num_classes, size, sums, spare):
    """log of the mass of each element."""
    largest, shares = spare
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
def add_forward(values, into, base, last, forward, spare):
    """forward[v] = log Σ exp(values) of the elements that go into context v, base to last."""
    largest, shares = spare
    for v in range(base, last + 1):
        largest[v - base] = -np.inf
        forward[v] = 0.0
    for e in range(len(values)):
        v = into[e] - base
        largest[v] = max(largest[v], values[e])
    for v in range(last + 1 - base):
        if largest[v] == -np.inf:
            largest[v] = 0.0
    for e in range(len(values)):
        shares[e] = values[e] - largest[into[e] - base]
    for e in range(len(values)):
        shares[e] = exp_below(shares[e])
    for e in range(len(values)):
        forward[into[e]] += shares[e]
    for v in range(base, last + 1):
        forward[v] = np.log(forward[v]) + largest[v - base] if forward[v] > 0 else -np.inf


# `spelling` is (symbols, string, written, aims): what actions write, the target of the example,
# how much of it can be written at each column, and the mass of a context that has written so much
# of it, as [v, symbols written - written[0] of its column]. See `targets`.


@inner
def _written_before(written, sources):
    """The least and the largest number of symbols written at some columns."""
    low, high = written[0, sources[0]], written[1, sources[0]]
    for s in range(1, len(sources)):
        low = min(low, written[0, sources[s]])
        high = max(high, written[1, sources[s]])
    return low, high


@inner
def sum_targets(
    spelling, sources, first, size, nodes, columns, order, starts, num_classes, scores, sums,
    class_aims,
):  # fmt: skip
    """The mass of each element that spells the beginning of the target; of each class, by t."""
    symbols, string, written, aims = spelling
    low, high = _written_before(written, sources)
    sums[:] = -np.inf
    for k in range(num_classes):
        for t in range(low, high + 1):
            total = -np.inf
            i, _ = action(symbols, first, size, string, t)
            if i >= 0:
                for place in range(starts[k], starts[k + 1]):
                    slot = order[place]
                    v = nodes[slot]
                    before = t - written[0, columns[v]]
                    if before < 0 or before >= aims.shape[1]:
                        continue
                    if aims[v, before] > -np.inf:
                        total = add_logs(total, aims[v, before] + scores[slot * size + i])
                e = k * size + i
                sums[e] = add_logs(sums[e], total) if total > -np.inf else sums[e]
            class_aims[k, t - low] = total


@inner
def add_targets(spelling, sources, c, first, size, num_classes, into, base, last, class_aims):
    """The mass of each context of column c, base to last, that spells so much of the target."""
    symbols, string, written, aims = spelling
    low, high = _written_before(written, sources)
    aims[base : last + 1] = -np.inf
    for k in range(num_classes):
        for t in range(low, high + 1):
            if class_aims[k, t - low] > -np.inf:
                i, after = action(symbols, first, size, string, t)
                v, place = into[k * size + i], after - written[0, c]
                aims[v, place] = add_logs(aims[v, place], class_aims[k, t - low])
