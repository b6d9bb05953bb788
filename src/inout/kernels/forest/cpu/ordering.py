"""Put the edges of a hypergraph into topological order and drop what no goal uses.

The callers make the arrays: what makes none is compiled faster, on the way of every first call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner

# What stands for the level of an item that has none: not met yet, being worked on, or without
# any derivation.
WAITING, OPEN, UNDERIVABLE = -3, -2, -1


class Graph(NamedTuple):
    """Edges grouped by head: those of an item, and their tails, are one run of memory."""

    edge_offsets: NDArray[np.int64]  # [v+1]
    tail_offsets: NDArray[np.int64]  # [e+1]
    tails: NDArray[np.int32]  # [t]


@compiled
def group_by_head(heads, tail_offsets, tails, edge_cursor, tail_cursor, graph):
    """Fills the tails of a graph and their offsets; the edges of an item keep their order.

    The cursors [v] are where the next edge of each item, and its tails, are to be written.
    """
    for e in range(heads.shape[0]):
        h = heads[e]
        place = tail_cursor[h]
        for t in range(tail_offsets[e], tail_offsets[e + 1]):
            graph.tails[place] = tails[t]
            place += 1
        tail_cursor[h] = place
        edge_cursor[h] += 1
        graph.tail_offsets[edge_cursor[h]] = place


@inner
def set_level(item, is_axiom, graph, level, live):
    """Whether all edges of the item are live; sets its level and theirs, given the tails' levels.

    An edge is live if all its tails can be derived. An item's level is one more than the highest
    level among the tails of its live edges.
    """
    highest = 0 if is_axiom[item] else UNDERIVABLE
    all_live = True
    for e in range(graph.edge_offsets[item], graph.edge_offsets[item + 1]):
        below = 0
        for t in range(graph.tail_offsets[e], graph.tail_offsets[e + 1]):
            if level[graph.tails[t]] == UNDERIVABLE:
                below = UNDERIVABLE
                break
            below = max(below, level[graph.tails[t]])
        live[e] = below != UNDERIVABLE
        if live[e]:
            highest = max(highest, below + 1)
        else:
            all_live = False
    level[item] = highest
    return all_live


@compiled
def depth_first(is_axiom, graph, goals, cursor, level, live, postorder, stack):
    """(number of items in postorder, whether all their edges are live, the cycle's place, its end).

    Goes through all that the goals need, tails before heads, and sets level [v] and live [e]; other
    items stay WAITING. A cycle is in stack[place:end], head before tail; the end is 0 if there is
    none. `cursor` [v] is each item's tail to look at next, at first its first one.
    """
    finished, all_live = 0, True
    for goal in goals:
        if level[goal] != WAITING:
            continue
        level[goal] = OPEN
        stack[0] = goal
        depth = 1
        while depth > 0:
            item = stack[depth - 1]
            t, last = cursor[item], graph.tail_offsets[graph.edge_offsets[item + 1]]
            while t < last and level[graph.tails[t]] >= UNDERIVABLE:
                t += 1
            cursor[item] = t
            if t == last:
                if not set_level(item, is_axiom, graph, level, live):
                    all_live = False
                postorder[finished] = item
                finished += 1
                depth -= 1
                continue
            child = graph.tails[t]
            if level[child] == OPEN:
                start = depth - 1
                while stack[start] != child:
                    start -= 1
                return finished, all_live, start, depth
            level[child] = OPEN
            stack[depth] = child
            depth += 1
    return finished, all_live, 0, 0


@compiled
def drop_unused(level, live, postorder, graph, used):
    """Set the level of items that no used one reaches over live edges to WAITING, in place."""
    for p in range(postorder.shape[0] - 1, -1, -1):
        item = postorder[p]
        if not used[item]:
            level[item] = WAITING
            continue
        for e in range(graph.edge_offsets[item], graph.edge_offsets[item + 1]):
            if live[e]:
                for t in range(graph.tail_offsets[e], graph.tail_offsets[e + 1]):
                    used[graph.tails[t]] = True


@compiled
def renumber(level, cursor, new, old):
    """Numbers the items that have a level by level: new [v] and its inverse, old.

    `cursor` [levels] is the first number of each level.
    """
    for i in range(level.shape[0]):
        if level[i] >= 0:
            new[i] = cursor[level[i]]
            old[new[i]] = i
            cursor[level[i]] += 1


@compiled
def emit(graph, live, new, old, emitted):
    """Fills a graph with the renumbered items and their live edges: how many edges and tails."""
    edge, tail = 0, 0
    for i in range(old.shape[0]):
        for e in range(graph.edge_offsets[old[i]], graph.edge_offsets[old[i] + 1]):
            if not live[e]:
                continue
            for t in range(graph.tail_offsets[e], graph.tail_offsets[e + 1]):
                emitted.tails[tail] = new[graph.tails[t]]
                tail += 1
            edge += 1
            emitted.tail_offsets[edge] = tail
        emitted.edge_offsets[i + 1] = edge
    return edge, tail
