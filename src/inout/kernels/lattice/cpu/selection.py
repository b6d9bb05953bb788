"""Selection of contexts, column by column (Steinhardt & Liang 2015, section 4 and appendix A).

Contexts are strings of actions that are known to a certain length, ⋆ before (see `strings`). An
element of a column is a class of slots, whose strings are the same, followed by an action.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.lattice.arrays import Integers, Mask, Vector
from inout.kernels.lattice.cpu import sums
from inout.kernels.lattice.cpu.histories import GROW_NOTHING, IS_FULL
from inout.kernels.lattice.cpu.scoring import find_rows, remember, score
from inout.kernels.lattice.cpu.strings import Classes, Sorting, classify, collect, merge
from inout.kernels.math.cpu.heap import keep_best, worse

BY_MODEL, BY_TARGET, BY_BOTH = 0, 1, 2


class Bounds(NamedTuple):
    """At most how many contexts, slots and edges there are, and how many of a column."""

    nodes: int
    slots: int
    edges: int
    most_slots: int
    most_elements: int
    most_sources: int


class Room(NamedTuple):
    """Scratch for what is known of the elements while a column is made."""

    values: Vector  # the log of the mass of each element
    aimed: Vector  # of what spells the target
    class_aims: NDArray[np.float64]  # [k t]: of classes, by symbols written
    active: Mask  # whether an element becomes a context
    into: Integers  # the context that it goes into
    heap: Integers  # the elements that are chosen, by action and class
    stack: Integers
    made_from: Integers  # the element of each context
    walked: Integers
    largest: Vector
    shares: Vector


@compiled
def bounds(columns, policy, num_actions):
    """The `Bounds` of a selection."""
    source_offsets, sources = columns.source_offsets, columns.sources
    # There are no more strings than this.
    distinct = 1.0
    for _ in range(min(policy.memory, 64)):
        distinct = min(distinct * (num_actions + 1) + 1, 1e15)
    if policy.memory > 64:
        distinct = 1e15
    own = np.zeros(len(policy.sizes), np.int64)
    nodes, slots, edges, most_slots, most_elements, most_sources = 0, 0, 0, 0, 0, 1
    for c in range(len(own)):
        count = 0
        for s in range(source_offsets[c], source_offsets[c + 1]):
            count += own[sources[s]]
        elements = count * (columns.end_actions[c] - columns.first_actions[c])
        chosen = min(policy.sizes[c], elements)
        if policy.by == BY_BOTH:
            chosen = min(2 * chosen, elements)
        own[c] = min(float(chosen), distinct) + 1
        if source_offsets[c] == source_offsets[c + 1]:
            own[c] = 1
        nodes += own[c]
        slots += count
        edges += elements
        most_slots = max(most_slots, count)
        most_elements = max(most_elements, elements)
        most_sources = max(most_sources, source_offsets[c + 1] - source_offsets[c])
    return Bounds(nodes, slots, edges, most_slots, most_elements, most_sources)


@compiled
def select(columns, features, grow, emissions, policy, aims, nodes, slots, edges, bounds):
    """Select the contexts of all columns: fills `nodes`, `slots` and `edges`.

    `grow` [s]: of each stream, whether histories get nodes, or nodes and rows (GROW_…).
    Stops where it finds no room for them, and counts[IS_FULL] is set.
    """
    by, firsts, places = policy.by, columns.firsts, features.streams.places
    growing = False
    for s in range(len(grow)):
        growing |= grow[s] > GROW_NOTHING
    sorting, classes, room = _scratch(bounds, len(policy.sizes), by, aims)
    num_actions = features.streams.num_actions
    star = num_actions + 1
    for b in range(len(firsts) - 1):
        spelling = _spelling(aims, b, by)
        for c in range(firsts[b], firsts[b + 1]):
            base, slot, edge = nodes.offsets[c], slots.offsets[c], edges.offsets[c]
            before = columns.sources[columns.source_offsets[c] : columns.source_offsets[c + 1]]
            if len(before) == 0:
                _begin(base, c, num_actions, features.begins, nodes, spelling.mass)
                nodes.offsets[c + 1], slots.offsets[c + 1] = base + 1, slot
                edges.offsets[c + 1] = edge
                continue

            # Step 1: all contexts that lead here, followed by every action.
            first = columns.first_actions[c]
            size = columns.end_actions[c] - first
            count = collect(nodes, star, before, slots.nodes[slot:], sorting)
            own, found = slots.nodes[slot : slot + count], slots.rows[slot : slot + count]
            num_classes = classify(own, sorting, nodes, policy, classes)
            find_rows(features, nodes.history, own, first, columns.inputs[c], grow, found)
            own_scores = edges.scores[edge : edge + count * size]
            score(
                found, own, nodes.lens, policy.escape, emissions, columns.emission_rows[c], places,
                first, size, features.weights, own_scores,
            )  # fmt: skip

            # Step 2: the elements that have the most mass are active.
            order, starts = sorting.order, classes.starts
            sums.sum_classes(own_scores, nodes.forward, own, order, starts, num_classes, size, room)
            room.active[: num_classes * size] = False
            chosen, allowed = 0, classes.allowed[:num_classes]
            column = sums.Column(c, before, first, size, num_classes)
            if by != BY_TARGET:
                chosen += _choose(room.values, allowed, size, policy.sizes[c], room)
            if by != BY_MODEL:
                sums.sum_targets(spelling, column, nodes, own, order, starts, own_scores, room)
                chosen += _choose(room.aimed, allowed, size, policy.sizes[c], room)

            # Step 3: they become contexts, into which all others are merged.
            last = base + chosen
            _put(last, c, star, 0, features.stars, nodes)
            merge(size, num_classes, classes, base, last, nodes, room)
            _link(c, first, size, base, last, room.made_from, own, order, classes, nodes)
            sums.add_forward(room, num_classes * size, base, last, nodes.forward)
            if by != BY_MODEL:
                sums.add_targets(spelling, column, base, last, room)
            remember(features, nodes, columns.inputs, base, last, policy.memory, room.walked, grow)
            _lead(size, num_classes, order, starts, room.into, edges.targets[edge:])
            nodes.offsets[c + 1], slots.offsets[c + 1] = last + 1, slot + count
            edges.offsets[c + 1] = edge + count * size
            if growing and features.table.counts[IS_FULL]:
                return


@inner
def _choose(values, allowed, size, wanted, room):
    """Mark the `wanted` elements with the largest values above -inf; returns how many are new.

    Of equal ones those that come first in order: by action, then by class.
    """
    kept, places, count = room.shares, room.heap, 0
    for k in range(len(allowed)):
        if not allowed[k]:
            continue
        for i in range(size):
            value, place = values[k * size + i], i * len(allowed) + k
            if count == wanted:
                # Most elements are left out by this comparison alone.
                if count == 0 or value < kept[0] or not worse(kept[0], places[0], value, place):
                    continue
            elif not value > -np.inf:
                continue
            count = keep_best(kept, places, count, wanted, value, place)
    added = 0
    for x in range(count):
        e = places[x] % len(allowed) * size + places[x] // len(allowed)
        if not room.active[e]:
            room.active[e] = True
            added += 1
    return added


@inner(returns_arrays=True)
def _spelling(aims, b, by):
    """What the paths of example b are to spell."""
    string = aims.targets.strings[0:0]
    if by != BY_MODEL:
        string = aims.targets.strings[aims.targets.offsets[b] : aims.targets.offsets[b + 1]]
    return sums.Spelling(aims.targets.symbols, string, aims.written, aims.mass)


@inner
def _scratch(bounds, num_columns, by, aims):
    """Room for what is known while a column is made: of slots, classes, elements and contexts."""
    most_slots, most_elements = bounds.most_slots, bounds.most_elements
    aimed_slots, aimed_elements = most_slots, most_elements
    if by == BY_MODEL:
        aimed_slots, aimed_elements = 0, 0
    sorting = Sorting(
        np.empty(most_slots, np.int32), np.empty(most_slots, np.int32),
        np.empty(bounds.most_sources + 1, np.int64), np.empty(bounds.most_sources, np.int64),
    )  # fmt: skip
    classes = Classes(
        np.empty(most_slots + 1, np.int32), np.empty(most_slots, np.int32),
        np.empty(most_slots, np.int32), np.empty(most_slots, np.bool_),
        np.empty(most_slots, np.bool_),
    )  # fmt: skip
    room = Room(
        np.empty(most_elements, np.float64), np.empty(aimed_elements, np.float64),
        np.empty((aimed_slots, aims.mass.shape[1]), np.float64),
        np.empty(most_elements, np.bool_), np.empty(most_elements, np.int32),
        np.empty(most_elements + 1, np.int32), np.empty(most_elements + 2, np.int32),
        np.empty(most_elements + 1, np.int32), np.empty(num_columns + 1, np.int32),
        np.empty(most_elements + 1, np.float64), np.empty(most_elements, np.float64),
    )  # fmt: skip
    return sorting, classes, room


@inner
def _begin(v, c, symbol, begins, nodes, mass):
    """The beginning: the one context of a column without sources."""
    _put(v, c, symbol, 1, begins, nodes)
    nodes.forward[v] = 0.0
    if len(mass):
        mass[v, :] = -np.inf
        mass[v, 0] = 0.0


@inner
def _put(v, c, symbol, length, histories, nodes):
    """A context that continues no other: the beginning, or ⋆…⋆, of which nothing is known."""
    nodes.parents[v], nodes.symbols[v], nodes.lens[v] = -1, symbol, length
    nodes.is_anchored[v], nodes.columns[v], nodes.lcs[v] = length > 0, c, 0
    depth = histories.shape[1]
    for f in range(histories.size):
        nodes.history[v, f] = histories[f // depth, f % depth]


@inner
def _link(c, first, size, base, last, made_from, slot_nodes, order, classes, nodes):
    """What contexts base to last of column c continue, and by which action."""
    for v in range(base, last):
        e = made_from[v - base]
        k = e // size
        nodes.parents[v] = slot_nodes[order[classes.starts[k]]]
        nodes.symbols[v], nodes.columns[v] = first + e % size, c
        nodes.is_anchored[v] = classes.anchored[k]


@inner
def _lead(size, num_classes, order, starts, into, edge_targets):
    """Each edge leads to the context that its element goes into."""
    for k in range(num_classes):
        for place in range(starts[k], starts[k + 1]):
            start = order[place] * size
            for i in range(size):
                edge_targets[start + i] = into[k * size + i]
