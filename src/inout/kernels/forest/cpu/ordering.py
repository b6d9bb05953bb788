"""Put the edges of a hypergraph into topological order and drop what no goal uses."""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner

# What stands for the level of an item that has none: not met yet, being worked on, or without
# any derivation.
WAITING, OPEN, UNDERIVABLE = -3, -2, -1


@compiled
def group_by_head(heads, tail_offsets, tails, num_items):
    """(edge_offsets [v+1], tail_offsets [e+1], tails [t]): the edges by head, else in their order.

    Every later pass then reads the edges of an item, and all their tails, as one run of memory.
    """
    edge_offsets = np.zeros(num_items + 1, dtype=np.int64)
    tail_cursor = np.zeros(num_items + 1, dtype=np.int64)
    for e in range(heads.shape[0]):
        edge_offsets[heads[e] + 1] += 1
        tail_cursor[heads[e] + 1] += tail_offsets[e + 1] - tail_offsets[e]
    for i in range(num_items):
        edge_offsets[i + 1] += edge_offsets[i]
        tail_cursor[i + 1] += tail_cursor[i]
    edge_cursor = edge_offsets.copy()
    new_tail_offsets = np.zeros(heads.shape[0] + 1, dtype=np.int64)
    new_tails = np.empty_like(tails)
    for e in range(heads.shape[0]):
        h = heads[e]
        place = tail_cursor[h]
        for t in range(tail_offsets[e], tail_offsets[e + 1]):
            new_tails[place] = tails[t]
            place += 1
        tail_cursor[h] = place
        edge_cursor[h] += 1
        new_tail_offsets[edge_cursor[h]] = place
    return edge_offsets, new_tail_offsets, new_tails


@inner
def set_level(item, is_axiom, edge_offsets, tail_offsets, tails, level, live):
    """Whether all edges of the item are live; sets its level and theirs, given the tails' levels.

    An edge is live if all its tails can be derived. An item's level is one more than the highest
    level among the tails of its live edges.
    """
    highest = 0 if is_axiom[item] else UNDERIVABLE
    all_live = True
    for e in range(edge_offsets[item], edge_offsets[item + 1]):
        below = 0
        for t in range(tail_offsets[e], tail_offsets[e + 1]):
            if level[tails[t]] == UNDERIVABLE:
                below = UNDERIVABLE
                break
            below = max(below, level[tails[t]])
        live[e] = below != UNDERIVABLE
        if live[e]:
            highest = max(highest, below + 1)
        else:
            all_live = False
    level[item] = highest
    return all_live


@compiled
def depth_first(is_axiom, edge_offsets, tail_offsets, tails, goals, cursor, level, live):
    """(items in postorder, whether all their edges are live, cycle); sets level [v] and live [e].

    Goes through all that the goals need, tails before heads; other items stay WAITING. `cycle`
    lists the items of a cycle if there is one, head before tail, else it is empty. `cursor` [v]
    is each item's tail to look at next, at first its first one.
    """
    postorder = np.empty(level.shape[0], dtype=np.int32)
    stack = np.empty(level.shape[0], dtype=np.int32)
    finished, all_live = 0, True
    for goal in goals:
        if level[goal] != WAITING:
            continue
        level[goal] = OPEN
        stack[0] = goal
        depth = 1
        while depth > 0:
            item = stack[depth - 1]
            t, last = cursor[item], tail_offsets[edge_offsets[item + 1]]
            while t < last and level[tails[t]] >= UNDERIVABLE:
                t += 1
            cursor[item] = t
            if t == last:
                if not set_level(item, is_axiom, edge_offsets, tail_offsets, tails, level, live):
                    all_live = False
                postorder[finished] = item
                finished += 1
                depth -= 1
                continue
            child = tails[t]
            if level[child] == OPEN:
                start = depth - 1
                while stack[start] != child:
                    start -= 1
                return postorder[:finished], all_live, stack[start:depth].copy()
            level[child] = OPEN
            stack[depth] = child
            depth += 1
    return postorder[:finished], all_live, stack[:0].copy()


@compiled
def drop_unused(level, live, postorder, edge_offsets, tail_offsets, tails, goals):
    """Set the level of items that no goal reaches over live edges to WAITING, in place."""
    used = np.zeros(level.shape[0], dtype=np.bool_)
    for goal in goals:
        used[goal] = True
    for p in range(postorder.shape[0] - 1, -1, -1):
        item = postorder[p]
        if not used[item]:
            level[item] = WAITING
            continue
        for e in range(edge_offsets[item], edge_offsets[item + 1]):
            if live[e]:
                for t in range(tail_offsets[e], tail_offsets[e + 1]):
                    used[tails[t]] = True


@compiled
def emit(level, live, edge_offsets, tail_offsets, tails):
    """(old item of every new one, edge_offsets, tail_offsets, tails, level_offsets).

    Kept are the items that have a level, with their live edges.
    """
    num_levels, num_edges, num_tails = 1, 0, 0
    for i in range(level.shape[0]):
        if level[i] < 0:
            continue
        num_levels = max(num_levels, level[i] + 1)
        for e in range(edge_offsets[i], edge_offsets[i + 1]):
            if live[e]:
                num_edges += 1
                num_tails += tail_offsets[e + 1] - tail_offsets[e]
    level_offsets = np.zeros(num_levels + 1, dtype=np.int64)
    for i in range(level.shape[0]):
        if level[i] >= 0:
            level_offsets[level[i] + 1] += 1
    for k in range(num_levels):
        level_offsets[k + 1] += level_offsets[k]
    cursor = level_offsets.copy()
    new = np.empty(level.shape[0], dtype=np.int32)
    old = np.empty(level_offsets[num_levels], dtype=np.int32)
    for i in range(level.shape[0]):
        if level[i] >= 0:
            new[i] = cursor[level[i]]
            old[new[i]] = i
            cursor[level[i]] += 1

    new_edge_offsets = np.zeros(old.shape[0] + 1, dtype=np.int64)
    new_tail_offsets = np.zeros(num_edges + 1, dtype=np.int64)
    new_tails = np.empty(num_tails, dtype=np.int32)
    edge, tail = 0, 0
    for i in range(old.shape[0]):
        for e in range(edge_offsets[old[i]], edge_offsets[old[i] + 1]):
            if not live[e]:
                continue
            for t in range(tail_offsets[e], tail_offsets[e + 1]):
                new_tails[tail] = new[tails[t]]
                tail += 1
            edge += 1
            new_tail_offsets[edge] = tail
        new_edge_offsets[i + 1] = edge
    return old, new_edge_offsets, new_tail_offsets, new_tails, level_offsets
