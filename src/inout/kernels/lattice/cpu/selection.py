"""Selection of contexts, column by column (Steinhardt & Liang 2015, section 4 and appendix A).

Contexts are strings of actions that are known to a certain length, ⋆ before (see `strings`). An
element of a column is a class of slots, whose strings are the same, followed by an action.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.lattice.cpu.choice import choose
from inout.kernels.lattice.cpu.histories import IS_FULL
from inout.kernels.lattice.cpu.scoring import find_rows, remember, score
from inout.kernels.lattice.cpu.strings import classify, collect, merge
from inout.kernels.lattice.cpu.sums import add_forward, add_targets, sum_classes, sum_targets

BY_MODEL, BY_TARGET, BY_BOTH = 0, 1, 2


@compiled
def bounds(graph, memory, num_actions, by):
    """At most how many contexts, slots and edges there are; how many of a column."""
    firsts, source_offsets, sources, first_actions, end_actions, inputs, rows, sizes = graph
    # There are no more strings than this.
    distinct = 1.0
    for _ in range(min(memory, 64)):
        distinct = min(distinct * (num_actions + 1) + 1, 1e15)
    if memory > 64:
        distinct = 1e15
    own = np.zeros(len(sizes), np.int64)
    nodes, slots, edges, most_slots, most_elements = 0, 0, 0, 0, 0
    for c in range(len(sizes)):
        count = 0
        for s in range(source_offsets[c], source_offsets[c + 1]):
            count += own[sources[s]]
        elements = count * (end_actions[c] - first_actions[c])
        chosen = min(sizes[c], elements)
        if by == BY_BOTH:
            chosen = min(2 * chosen, elements)
        own[c] = min(float(chosen), distinct) + 1
        if source_offsets[c] == source_offsets[c + 1]:
            own[c] = 1
        nodes += own[c]
        slots += count
        edges += elements
        most_slots = max(most_slots, count)
        most_elements = max(most_elements, elements)
    return nodes, slots, edges, most_slots, most_elements


@compiled
def select(graph, histories, grow, emissions, rule, targets, nodes, slots, edges, scratch_sizes):
    """Select the contexts of all columns: fills `nodes`, `slots` and `edges` (see `Lattice`).

    `grow` [s]: of each stream, whether histories get nodes, or nodes and rows (GROW_…).
    Stops where counts[IS_FULL] is set.
    """
    # Everything is taken out of its tuple here, once: to do so for each column, in functions of
    # fewer lines, takes 5 % longer with 10 contexts and 26 actions.
    firsts, source_offsets, sources, first_actions, end_actions, inputs, rows, sizes = graph
    streams, table, stars, begins, weights = histories
    memory, escape, anchored_only, by = rule
    node_offsets, parents, symbols, lens, is_anchored, columns, lcs, forward, history = nodes
    slot_offsets, slot_nodes, slot_rows = slots
    edge_offsets, edge_targets, scores = edges
    sorting, classes, elements, lists, spare = _scratch(scratch_sizes, len(sizes), by, targets)
    values, aimed, class_aims, active, into = elements
    heap, stack, made_from, walked = lists
    order, starts, allowed = sorting[0], classes[0], classes[4]
    places, num_actions, counts = streams[1], streams[7], table[3]
    star = num_actions + 1
    strings = (parents, symbols, lens, columns, star)
    for b in range(len(firsts) - 1):
        spelling = _spelling(targets, b, by)
        for c in range(firsts[b], firsts[b + 1]):
            base, slot, edge = node_offsets[c], slot_offsets[c], edge_offsets[c]
            before = sources[source_offsets[c] : source_offsets[c + 1]]
            if len(before) == 0:
                _begin(base, c, num_actions, begins, nodes, spelling)
                node_offsets[c + 1], slot_offsets[c + 1], edge_offsets[c + 1] = base + 1, slot, edge
                continue

            # Step 1: all contexts that lead here, followed by every action.
            first, size = first_actions[c], end_actions[c] - first_actions[c]
            count = collect(strings, lcs, node_offsets, before, slot_nodes[slot:], sorting)
            own, found = slot_nodes[slot : slot + count], slot_rows[slot : slot + count]
            num_classes = classify(own, sorting, lens, is_anchored, memory, anchored_only, classes)
            find_rows(streams, table, len(weights), history, own, first, inputs[c], grow, found)
            own_scores = scores[edge : edge + count * size]
            score(
                found, own, lens, escape, emissions, rows[c], places, first, size, weights,
                own_scores,
            )  # fmt: skip

            # Step 2: the elements that have the most mass are active.
            num_elements = num_classes * size
            sum_classes(own_scores, forward, own, order, starts, num_classes, size, values, spare)
            active[:num_elements] = False
            chosen = 0
            if by != BY_TARGET:
                chosen += choose(values, allowed[:num_classes], size, sizes[c], heap, active)
            if by != BY_MODEL:
                sum_targets(
                    spelling, before, first, size, own, columns, order, starts, num_classes,
                    own_scores, aimed[:num_elements], class_aims,
                )  # fmt: skip
                chosen += choose(aimed, allowed[:num_classes], size, sizes[c], heap, active)

            # Step 3: they become contexts, into which all others are merged.
            last = base + chosen
            _put(last, c, star, 0, stars, nodes)
            merge(size, num_classes, classes, active, base, last, lens, lcs, stack, made_from, into)
            _link(c, first, size, base, last, made_from, own, order, classes, nodes)
            add_forward(values[:num_elements], into, base, last, forward, spare)
            if by != BY_MODEL:
                add_targets(
                    spelling, before, c, first, size, num_classes, into, base, last, class_aims
                )
            remember(
                streams, table, stars, strings, inputs, base, last, history, memory, walked, grow
            )
            _lead(size, num_classes, order, starts, into, edge_targets[edge:])
            node_offsets[c + 1], slot_offsets[c + 1] = last + 1, slot + count
            edge_offsets[c + 1] = edge + count * size
            if counts[IS_FULL]:
                return


@inner
def _spelling(targets, b, by):
    """What the paths of example b are to spell; see `sums`."""
    symbols, strings, offsets, written, aims = targets
    string = strings[0:0]
    if by != BY_MODEL:
        string = strings[offsets[b] : offsets[b + 1]]
    return symbols, string, written, aims


@inner
def _scratch(scratch_sizes, num_columns, by, targets):
    """Room for what is known while a column is made: of slots, classes, elements and contexts."""
    most_slots, most_elements, most_sources = scratch_sizes
    order = np.empty(most_slots, np.int32)
    following = np.empty(most_slots, np.int32)
    heads = np.empty(most_sources + 1, np.int64)
    starts = np.empty(most_slots + 1, np.int32)
    lens = np.empty(most_slots, np.int32)
    lcs = np.empty(most_slots, np.int32)
    anchored = np.empty(most_slots, np.bool_)
    allowed = np.empty(most_slots, np.bool_)
    values = np.empty(most_elements, np.float64)
    aimed = np.empty(most_elements if by != BY_MODEL else 0, np.float64)
    class_aims = np.empty((most_slots if by != BY_MODEL else 0, targets[4].shape[1]), np.float64)
    active = np.empty(most_elements, np.bool_)
    into = np.empty(most_elements, np.int32)
    heap = np.empty(most_elements + 1, np.int32)
    stack = np.empty(most_elements + 2, np.int32)
    made_from = np.empty(most_elements + 1, np.int32)
    largest = np.empty(most_elements + 1, np.float64)
    shares = np.empty(most_elements, np.float64)
    walked = np.empty(num_columns + 1, np.int32)
    return (
        (order, following, heads), (starts, lens, lcs, anchored, allowed),
        (values, aimed, class_aims, active, into), (heap, stack, made_from, walked),
        (largest, shares),
    )  # fmt: skip


@inner
def _begin(v, c, symbol, begins, nodes, spelling):
    """The beginning: the one context of a column without sources."""
    forward, aims = nodes[7], spelling[3]
    _put(v, c, symbol, 1, begins, nodes)
    forward[v] = 0.0
    if len(aims):
        aims[v, :] = -np.inf
        aims[v, 0] = 0.0


@inner
def _put(v, c, symbol, length, histories, nodes):
    """A context that continues no other: the beginning, or ⋆…⋆, of which nothing is known."""
    _, parents, symbols, lens, is_anchored, columns, lcs, _, history = nodes
    parents[v], symbols[v], lens[v] = -1, symbol, length
    is_anchored[v], columns[v], lcs[v] = length > 0, c, 0
    history[v] = histories.ravel()


@inner
def _link(c, first, size, base, last, made_from, slot_nodes, order, classes, nodes):
    """What contexts base to last of column c continue, and by which action."""
    _, parents, symbols, _, is_anchored, columns, _, _, _ = nodes
    starts, _, _, anchored, _ = classes
    for v in range(base, last):
        e = made_from[v - base]
        k = e // size
        parents[v] = slot_nodes[order[starts[k]]]
        symbols[v], columns[v], is_anchored[v] = first + e % size, c, anchored[k]


@inner
def _lead(size, num_classes, order, starts, into, edge_targets):
    """Each edge leads to the context that its element goes into."""
    for k in range(num_classes):
        for place in range(starts[k], starts[k + 1]):
            start = order[place] * size
            for i in range(size):
                edge_targets[start + i] = into[k * size + i]
