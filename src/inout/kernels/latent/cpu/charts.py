"""All trees of a sentence under binary rules as items, groups and edges."""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.latent.arrays import ChartArrays


@inner
def longer(rows):
    """The rows with room for twice as many."""
    return np.concatenate((rows, rows))


@compiled
def chart(n, rules, head_offsets, leaf_positions, leaf_symbols, allowed, most_edges):
    """All trees of a sentence, as `ChartArrays`.

    Leaf x becomes item x. allowed [n n+1 s] says which symbols may stand over words i to j-1;
    with no entries, all may. Items that no leaves make are not there; items that no tree of the
    sentence uses may be. It stops at most_edges edges.
    """
    s = head_offsets.shape[0] - 1
    index = np.full((n, n + 1, s), -1, np.int32)
    # The splits that are worth a look: where a symbol that starts at i ends, and the other way.
    first_end = np.full((n, s), n + 1, np.int32)
    last_end = np.full((n, s), -1, np.int32)
    first_start = np.full((n + 1, s), n + 1, np.int32)
    last_start = np.full((n + 1, s), -1, np.int32)
    items, groups, edges = leaf_positions.shape[0], 0, 0
    symbols, spans = np.empty(2 * items + 16, np.int32), np.empty((2 * items + 16, 2), np.int32)
    heads, group_rules = np.empty(64, np.int32), np.empty(64, np.int32)
    ends = np.zeros(65, np.int64)
    lefts, rights = np.empty(256, np.int32), np.empty(256, np.int32)
    for x in range(items):
        i, a = leaf_positions[x], leaf_symbols[x]
        index[i, i + 1, a], symbols[x] = x, a
        spans[x, 0], spans[x, 1] = i, i + 1
        first_end[i, a] = last_end[i, a] = i + 1
        first_start[i + 1, a] = last_start[i + 1, a] = i
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            if edges == most_edges:
                break
            j = i + width
            for a in range(s):
                if head_offsets[a] == head_offsets[a + 1]:
                    continue
                if allowed.shape[0] and not allowed[i, j, a]:
                    continue
                before = groups
                for r in range(head_offsets[a], head_offsets[a + 1]):
                    b, c = rules[r, 1], rules[r, 2]
                    low = max(first_end[i, b], first_start[j, c])
                    high = min(last_end[i, b], last_start[j, c])
                    start = edges
                    for k in range(low, high + 1):
                        left, right = index[i, k, b], index[k, j, c]
                        if left >= 0 and right >= 0:
                            if edges == most_edges:
                                break
                            if edges == lefts.shape[0]:
                                lefts, rights = longer(lefts), longer(rights)
                            lefts[edges], rights[edges] = left, right
                            edges += 1
                    if edges > start:
                        if groups == heads.shape[0]:
                            heads, group_rules = longer(heads), longer(group_rules)
                            ends = longer(ends)
                        heads[groups], group_rules[groups] = items, r
                        groups += 1
                        ends[groups] = edges
                if groups > before:
                    if items == symbols.shape[0]:
                        symbols, spans = longer(symbols), longer(spans)
                    symbols[items], spans[items, 0], spans[items, 1] = a, i, j
                    index[i, j, a] = items
                    items += 1
                    first_end[i, a], last_end[i, a] = min(first_end[i, a], j), j
                    # Of the spans that end at j, later ones are wider and start further left.
                    first_start[j, a] = i
                    last_start[j, a] = max(last_start[j, a], i)
    return ChartArrays(
        symbols[:items], spans[:items], heads[:groups], group_rules[:groups], ends[: groups + 1],
        lefts[:edges], rights[:edges],
    )  # fmt: skip
