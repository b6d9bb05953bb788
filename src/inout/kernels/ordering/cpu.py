"""Put the edges of a hypergraph into topological order and drop what no goal uses."""

from __future__ import annotations

import numpy as np
from numba import njit

WAITING, OPEN, DONE = 0, 1, 2


@njit(cache=True, nogil=True)
def group_by_head(heads, num_items):
    """(offsets [v+1], edge ids [e]): the edges of every item, in their given order."""
    offsets = np.zeros(num_items + 1, dtype=np.int64)
    for e in range(heads.shape[0]):
        offsets[heads[e] + 1] += 1
    for i in range(num_items):
        offsets[i + 1] += offsets[i]
    cursor = offsets[:-1].copy()
    order = np.empty(heads.shape[0], dtype=np.int32)
    for e in range(heads.shape[0]):
        order[cursor[heads[e]]] = e
        cursor[heads[e]] += 1
    return offsets, order


@njit(cache=True, nogil=True)
def depth_first(offsets, order, tail_offsets, tails, goals):
    """(items in postorder, cycle): all that the goals need, tails before heads.

    `cycle` lists the items of a cycle if there is one, head before tail, else it is empty.
    """
    num_items = offsets.shape[0] - 1
    state = np.zeros(num_items, dtype=np.int8)
    postorder = np.empty(num_items, dtype=np.int32)
    stack = np.empty(num_items, dtype=np.int32)
    edge_cursor, tail_cursor = offsets[:-1].copy(), np.zeros(num_items, dtype=np.int32)
    finished = 0
    for goal in goals:
        if state[goal] != WAITING:
            continue
        state[goal] = OPEN
        stack[0] = goal
        depth = 1
        while depth > 0:
            item = stack[depth - 1]
            child = -1
            while child < 0 and edge_cursor[item] < offsets[item + 1]:
                e = order[edge_cursor[item]]
                t = tail_offsets[e] + tail_cursor[item]
                if t == tail_offsets[e + 1]:
                    edge_cursor[item] += 1
                    tail_cursor[item] = 0
                    continue
                tail_cursor[item] += 1
                if state[tails[t]] == OPEN:
                    start = depth - 1
                    while stack[start] != tails[t]:
                        start -= 1
                    return postorder[:finished], stack[start:depth].copy()
                if state[tails[t]] == WAITING:
                    child = tails[t]
            if child >= 0:
                state[child] = OPEN
                stack[depth] = child
                depth += 1
            else:
                state[item] = DONE
                postorder[finished] = item
                finished += 1
                depth -= 1
    return postorder[:finished], stack[:0].copy()


@njit(cache=True, nogil=True)
def useful_levels(postorder, offsets, order, tail_offsets, tails, is_axiom, goals):
    """(level [v], live edge [e]): level of every item that a goal really uses, else -1.

    An edge is live if all its tails can be derived and a goal reaches its head over live edges.
    An item's level is one more than the highest level among the tails of its live edges.
    """
    level = np.full(offsets.shape[0] - 1, -1, dtype=np.int32)
    live = np.zeros(order.shape[0], dtype=np.bool_)
    for item in postorder:
        if is_axiom[item]:
            level[item] = 0
            continue
        for position in range(offsets[item], offsets[item + 1]):
            e = order[position]
            highest = 0
            for t in range(tail_offsets[e], tail_offsets[e + 1]):
                if level[tails[t]] < 0:
                    highest = -1
                    break
                highest = max(highest, level[tails[t]])
            if highest >= 0:
                live[e] = True
                level[item] = max(level[item], highest + 1)
    used = np.zeros(level.shape[0], dtype=np.bool_)
    for goal in goals:
        used[goal] = True
        if level[goal] < 0:  # a goal that cannot be derived stays, with no edges
            level[goal] = 1
    for p in range(postorder.shape[0] - 1, -1, -1):
        item = postorder[p]
        for position in range(offsets[item], offsets[item + 1]):
            e = order[position]
            if not used[item]:
                live[e] = False
            elif live[e]:
                for t in range(tail_offsets[e], tail_offsets[e + 1]):
                    used[tails[t]] = True
        if not used[item]:
            level[item] = -1
    return level, live


@njit(cache=True, nogil=True)
def emit(level, live, offsets, order, tail_offsets, tails):
    """(old item of every new one, edge_offsets, tail_offsets, tails, level_offsets)."""
    num_levels = 1
    for i in range(level.shape[0]):
        num_levels = max(num_levels, level[i] + 1)
    level_offsets = np.zeros(num_levels + 1, dtype=np.int64)
    for i in range(level.shape[0]):
        if level[i] >= 0:
            level_offsets[level[i] + 1] += 1
    for k in range(num_levels):
        level_offsets[k + 1] += level_offsets[k]
    cursor = level_offsets[:-1].copy()
    new = np.empty(level.shape[0], dtype=np.int32)
    old = np.empty(level_offsets[num_levels], dtype=np.int32)
    for i in range(level.shape[0]):
        if level[i] >= 0:
            new[i] = cursor[level[i]]
            old[new[i]] = i
            cursor[level[i]] += 1

    num_edges, num_tails = 0, 0
    for e in range(live.shape[0]):
        if live[e]:
            num_edges += 1
            num_tails += tail_offsets[e + 1] - tail_offsets[e]
    edge_offsets = np.empty(old.shape[0] + 1, dtype=np.int64)
    new_tail_offsets = np.empty(num_edges + 1, dtype=np.int64)
    new_tails = np.empty(num_tails, dtype=np.int32)
    edge, tail = 0, 0
    for i in range(old.shape[0]):
        edge_offsets[i] = edge
        for position in range(offsets[old[i]], offsets[old[i] + 1]):
            e = order[position]
            if not live[e]:
                continue
            new_tail_offsets[edge] = tail
            edge += 1
            for t in range(tail_offsets[e], tail_offsets[e + 1]):
                new_tails[tail] = new[tails[t]]
                tail += 1
    edge_offsets[old.shape[0]] = edge
    new_tail_offsets[edge] = tail
    return old, edge_offsets, new_tail_offsets, new_tails, level_offsets
