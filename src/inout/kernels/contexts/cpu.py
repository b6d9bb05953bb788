"""Selection of contexts, column by column (Steinhardt & Liang 2015, section 4 and appendix A).

Contexts are strings of actions that are known to a certain length, ⋆ before; the beginning is a
symbol of its own. Those of a column lie in lexicographic order, the last action first, ⋆ above all
others, so the last one of each column is ⋆…⋆. `lcs[v]` is the length of the longest common suffix
of context v and the next one.

A context v is (parents[v], symbols[v]): the string of another context, and one action more. Of
that string the last lens[v] symbols count.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from inout.kernels.contexts.histories.cpu import GROW_NODES, GROW_ROWS, IS_FULL, child, row
from inout.kernels.contexts.targets.cpu import action, add_logs
from inout.kernels.exponential.cpu import FAST, exp_below

UNBOUNDED = 1 << 30
BY_MODEL, BY_TARGET, BY_BOTH = 0, 1, 2


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _compare(strings, u, v):
    """(-1, 0 or 1 as string u is before, equal to or behind v; their longest common suffix)."""
    parents, symbols, lens, columns, top = strings
    length_u, length_v = lens[u], lens[v]
    k = 0
    while True:
        left = symbols[u] if k < length_u else top
        right = symbols[v] if k < length_v else top
        if left != right:
            return (-1 if left < right else 1), k
        if left == top:
            return 0, UNBOUNDED
        k += 1
        u, v = parents[u], parents[v]


@njit(cache=True, nogil=True)
def _collect(strings, lcs, node_offsets, sources, slot_nodes, order, following, heads):
    """The contexts of all source columns as slots; their order, and the lcs with the next one."""
    count = 0
    for s in range(len(sources)):
        heads[s] = count
        for v in range(node_offsets[sources[s]], node_offsets[sources[s] + 1]):
            slot_nodes[count] = v
            order[count] = count
            following[count] = lcs[v]
            count += 1
    heads[len(sources)] = count
    if len(sources) == 1:
        return count
    ends = heads[1 : len(sources) + 1].copy()
    previous = -1
    for place in range(count):
        best = -1
        for s in range(len(sources)):
            if heads[s] < ends[s]:
                if best < 0:
                    best = s
                else:
                    sign, _ = _compare(strings, slot_nodes[heads[s]], slot_nodes[heads[best]])
                    if sign < 0:
                        best = s
        order[place] = heads[best]
        heads[best] += 1
        node = slot_nodes[order[place]]
        if previous >= 0:
            _, following[place - 1] = _compare(strings, previous, node)
        previous = node
    following[count - 1] = 0
    return count


@njit(cache=True, nogil=True)
def _find_rows(streams, table, num_weights, history, nodes, first, given, grow, found):
    """The rows of weights that score the actions of a column after each of some contexts."""
    symbols, places, widths, pairs, next_input, lengths, ranges, num_actions, deepest = streams
    keys, values, row_starts, counts, stride = table
    depth = lengths.shape[1]
    for s in range(len(widths)):
        new_node, new_row = grow[s] >= GROW_NODES, grow[s] >= GROW_ROWS
        for slot in range(len(nodes)):
            has_row = False
            for k in range(depth - 1, -1, -1):
                f = s * depth + k
                found[slot, f] = -1
                if not lengths[s, k] or places[s, first] < 0 or (deepest and has_row):
                    continue
                place = history[nodes[slot], f]
                if next_input[s]:
                    shown = ranges[s] + 2 + given + 1
                    place = child(keys, values, row_starts, counts, stride, place, shown, new_node)
                found[slot, f] = row(row_starts, counts, place, widths[s], num_weights, new_row)
                has_row |= found[slot, f] >= 0


@njit(cache=True, nogil=True, fastmath=FAST)
def _score(found, nodes, lens, escape, given, places, first, size, weights, scores):
    """The scores of the actions of a column after each of some contexts."""
    depth = found.shape[1] // places.shape[0]
    for slot in range(len(nodes)):
        own = scores[slot * size : (slot + 1) * size]
        base = escape if lens[nodes[slot]] == 0 else 0.0
        if len(given):
            for i in range(size):
                own[i] = base + given[i]
        else:
            for i in range(size):
                own[i] = base
        for f in range(found.shape[1]):
            if found[slot, f] >= 0:
                start = found[slot, f] + places[f // depth, first]
                weight = weights[start : start + size]
                for i in range(size):
                    own[i] += weight[i]


@njit(cache=True, nogil=True)
def score_edges(graph, places, weights, emissions, escape, lens, slots, edge_offsets, scores):
    """The scores of all edges of a lattice under other weights."""
    first_actions, end_actions, rows = graph
    slot_offsets, slot_nodes, slot_rows = slots
    for c in range(len(first_actions)):
        first = first_actions[c]
        size = end_actions[c] - first
        lo, hi = slot_offsets[c], slot_offsets[c + 1]
        given = emissions.ravel()[0:0]
        if rows[c] >= 0 and emissions.shape[0] > 0:
            given = emissions[rows[c], first : first + size]
        _score(
            slot_rows[lo:hi], slot_nodes[lo:hi], lens, escape, given, places, first, size, weights,
            scores[edge_offsets[c] : edge_offsets[c + 1]],
        )  # fmt: skip


@njit(cache=True, nogil=True, inline="always")
def _is_worse(values, size, a, b):
    """Whether element a should be left out rather than b; of equal ones the later in order."""
    if values[a] != values[b]:
        return values[a] < values[b]
    return a % size > b % size or (a % size == b % size and a > b)


@njit(cache=True, nogil=True)
def _sift(heap, count, values, size):
    """Put the root of a heap, whose worst element is to be at the root, into its place."""
    place = 0
    while True:
        worst, left = place, 2 * place + 1
        if left < count and _is_worse(values, size, heap[left], heap[worst]):
            worst = left
        if left + 1 < count and _is_worse(values, size, heap[left + 1], heap[worst]):
            worst = left + 1
        if worst == place:
            return
        heap[place], heap[worst] = heap[worst], heap[place]
        place = worst


@njit(cache=True, nogil=True)
def _choose(values, allowed, size, wanted, heap, active):
    """Mark the `wanted` elements with the largest values above -inf; returns how many are new."""
    count = 0
    for k in range(len(allowed)):
        if not allowed[k]:
            continue
        for e in range(k * size, (k + 1) * size):
            if count == wanted:
                # Most elements are left out by this comparison alone.
                if count == 0 or values[e] < values[heap[0]]:
                    continue
                if _is_worse(values, size, heap[0], e):
                    heap[0] = e
                    _sift(heap, count, values, size)
            elif values[e] > -np.inf:
                place = count
                count += 1
                while place > 0:
                    above = (place - 1) // 2
                    if not _is_worse(values, size, e, heap[above]):
                        break
                    heap[place] = heap[above]
                    place = above
                heap[place] = e
    added = 0
    for place in range(count):
        if not active[heap[place]]:
            active[heap[place]] = True
            added += 1
    return added


@njit(cache=True, nogil=True, fastmath=FAST)
def _sum_classes(
    slot_scores, slot_forward, order, class_starts, num_classes, size, sums, largest, shares
):
    """log of the mass of each element: class of slots, action."""
    for k in range(num_classes):
        own = sums[k * size : (k + 1) * size]
        slot = order[class_starts[k]]
        scores = slot_scores[slot * size : (slot + 1) * size]
        for i in range(size):
            own[i] = slot_forward[slot] + scores[i]
        if class_starts[k + 1] == class_starts[k] + 1:
            continue
        for place in range(class_starts[k] + 1, class_starts[k + 1]):
            slot = order[place]
            scores = slot_scores[slot * size : (slot + 1) * size]
            for i in range(size):
                own[i] = max(own[i], slot_forward[slot] + scores[i])
        for i in range(size):
            largest[i] = own[i] if own[i] > -np.inf else 0.0
            own[i] = 0.0
        for place in range(class_starts[k], class_starts[k + 1]):
            slot = order[place]
            scores = slot_scores[slot * size : (slot + 1) * size]
            for i in range(size):
                shares[i] = exp_below(slot_forward[slot] + scores[i] - largest[i])
            for i in range(size):
                own[i] += shares[i]
        for i in range(size):
            own[i] = np.log(own[i]) + largest[i] if own[i] > 0 else -np.inf


@njit(cache=True, nogil=True)
def _merge(
    size, num_classes, class_lens, class_lcs, active, stack, base, count, strings, lcs, into
):
    """Appendix A, step 3: every element goes into its longest active suffix, `into`.

    The contexts of the column get their numbers: `base` to base + count, ⋆…⋆ being the last.
    Returns for each of them its element, in `stack`'s second row.
    """
    parents, symbols, lens, columns, top = strings
    last = base + count - 1
    stack[0, 0] = last
    height = 1
    made = 1
    common = 0
    for i in range(size - 1, -1, -1):
        for k in range(num_classes - 1, -1, -1):
            e = k * size + i
            if k < num_classes - 1:
                common = min(common, class_lcs[k] + 1)
            else:
                common = 0
            while common < lens[stack[0, height - 1]]:
                height -= 1
            if active[e]:
                node = last - made
                lens[node] = class_lens[k]
                lcs[node] = common
                stack[1, made] = e
                made += 1
                stack[0, height] = node
                height += 1
                common = UNBOUNDED
            into[e] = stack[0, height - 1]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_forward(values, into, base, count, forward, largest, shares):
    """forward[v] = log Σ exp(values) of the elements that go into context v."""
    for v in range(count):
        largest[v] = -np.inf
        forward[base + v] = 0.0
    for e in range(len(values)):
        v = into[e] - base
        largest[v] = max(largest[v], values[e])
    for v in range(count):
        if largest[v] == -np.inf:
            largest[v] = 0.0
    for e in range(len(values)):
        shares[e] = values[e] - largest[into[e] - base]
    for e in range(len(values)):
        shares[e] = exp_below(shares[e])
    for e in range(len(values)):
        forward[into[e]] += shares[e]
    for v in range(base, base + count):
        forward[v] = np.log(forward[v]) + largest[v - base] if forward[v] > 0 else -np.inf


@njit(cache=True, nogil=True)
def _remember(streams, table, stars, strings, inputs, first, last, history, memory, walked, grow):
    """The histories of new contexts first to last, which differ from ⋆…⋆."""
    shows, places, widths, pairs, next_input, lengths, ranges, num_actions, deepest = streams
    keys, values, row_starts, counts, stride = table
    parents, symbols, lens, columns, top = strings
    depth = stars.shape[1]
    for s in range(stars.shape[0]):
        silent = False
        for a in range(shows.shape[1]):
            silent |= shows[s, a] < 0
        longest = 0
        for k in range(depth):
            if lengths[s, k]:
                longest = k
        own = s * depth
        new_node = grow[s] >= GROW_NODES
        for node in range(first, last):
            source, length = parents[node], 1
            if silent and lens[source] + 1 > memory:
                # What is forgotten may still be among the last symbols of this stream: begin anew.
                length = lens[node]
                for k in range(depth):
                    history[node, own + k] = stars[s, k]
            else:
                for k in range(depth):
                    history[node, own + k] = history[source, own + k]
            v = node
            for k in range(length):
                walked[k] = v
                v = parents[v]
            for step in range(length - 1, -1, -1):
                v = walked[step]
                shown = shows[s, symbols[v]]
                if shown < 0:
                    continue
                if pairs[s]:
                    shown += num_actions * (inputs[columns[v]] + 1)
                for k in range(longest, 0, -1):
                    history[node, own + k] = child(
                        keys, values, row_starts, counts, stride, history[node, own + k - 1], shown,
                        new_node,
                    )  # fmt: skip


@njit(cache=True, nogil=True)
def _sum_targets(
    targets, ranges, own_range, first, size, string, own_nodes, columns, order, class_starts,
    num_classes, slot_scores, aims, class_aims, sums,
):  # fmt: skip
    """The mass of each element that spells the beginning of the target; of each class, by t."""
    target_symbols, lows = targets[0], ranges[0]
    low, high = own_range
    sums[:] = -np.inf
    for k in range(num_classes):
        for t in range(low, high + 1):
            total = -np.inf
            i, _ = action(target_symbols, first, size, string, t)
            if i >= 0:
                for place in range(class_starts[k], class_starts[k + 1]):
                    slot = order[place]
                    v = own_nodes[slot]
                    before = t - lows[columns[v]]
                    if before < 0 or before >= aims.shape[1]:
                        continue
                    if aims[v, before] > -np.inf:
                        total = add_logs(total, aims[v, before] + slot_scores[slot * size + i])
                e = k * size + i
                sums[e] = add_logs(sums[e], total) if total > -np.inf else sums[e]
            class_aims[k, t - low] = total


@njit(cache=True, nogil=True)
def _add_targets(
    targets, low_after, own_range, first, size, string, num_classes, into, class_aims, aims
):
    low, high = own_range
    for k in range(num_classes):
        for t in range(low, high + 1):
            if class_aims[k, t - low] > -np.inf:
                i, after = action(targets[0], first, size, string, t)
                v, place = into[k * size + i], after - low_after
                aims[v, place] = add_logs(aims[v, place], class_aims[k, t - low])


@njit(cache=True, nogil=True)
def select(
    graph, streams, table, stars, begins, weights, emissions, targets, memory, escape,
    anchored_only, by, grow, nodes, slots, edges, aims, written, scratch_sizes,
):  # fmt: skip
    """Select the contexts of all columns; returns the numbers of contexts, slots and edges.

    `grow` [s]: of each stream, whether histories get nodes, or nodes and rows (GROW_…).
    Fills `nodes`, `slots` and `edges` (see `Lattice`). Stops where counts[IS_FULL] is set.
    """
    firsts, source_offsets, sources, first_actions, end_actions, inputs, rows, sizes = graph
    shows, places, widths, pairs, next_input, lengths, ranges, num_actions, deepest = streams
    counts = table[3]
    target_symbols, target_strings, target_offsets = targets
    node_offsets, parents, symbols, lens, is_anchored, columns, lcs, forward, history = nodes
    slot_offsets, slot_nodes, slot_rows = slots
    edge_offsets, edge_targets, scores = edges
    most_slots, most_elements, most_sources = scratch_sizes
    begin, star = num_actions, num_actions + 1
    strings = (parents, symbols, lens, columns, star)
    threshold = UNBOUNDED - 1 if memory >= UNBOUNDED else memory - 1

    order = np.empty(most_slots, np.int32)
    following = np.empty(most_slots, np.int32)
    heads = np.empty(most_sources + 1, np.int64)
    slot_forward = np.empty(most_slots, np.float64)
    class_starts = np.empty(most_slots + 1, np.int32)
    class_lens = np.empty(most_slots, np.int32)
    class_lcs = np.empty(most_slots, np.int32)
    class_anchored = np.empty(most_slots, np.bool_)
    class_allowed = np.empty(most_slots, np.bool_)
    values = np.empty(most_elements, np.float64)
    aimed = np.empty(most_elements if by != BY_MODEL else 0, np.float64)
    class_aims = np.empty((most_slots if by != BY_MODEL else 0, aims.shape[1]), np.float64)
    active = np.empty(most_elements, np.bool_)
    into = np.empty(most_elements, np.int32)
    heap = np.empty(most_elements + 1, np.int32)
    stack = np.empty((2, most_elements + 2), np.int32)
    largest = np.empty(most_elements + 1, np.float64)
    shares = np.empty(most_elements, np.float64)
    walked = np.empty(len(sizes) + 1, np.int32)

    num_nodes, num_slots, num_edges = 0, 0, 0
    for b in range(len(firsts) - 1):
        string = target_strings[0:0]
        if by != BY_MODEL:
            string = target_strings[target_offsets[b] : target_offsets[b + 1]]
        for c in range(firsts[b], firsts[b + 1]):
            node_offsets[c], slot_offsets[c], edge_offsets[c] = num_nodes, num_slots, num_edges
            own_sources = sources[source_offsets[c] : source_offsets[c + 1]]
            if len(own_sources) == 0:
                parents[num_nodes], symbols[num_nodes], lens[num_nodes] = -1, begin, 1
                is_anchored[num_nodes], columns[num_nodes] = True, c
                lcs[num_nodes], forward[num_nodes] = 0, 0.0
                for s in range(begins.shape[0]):
                    history[num_nodes, s * begins.shape[1] : (s + 1) * begins.shape[1]] = begins[s]
                if by != BY_MODEL:
                    aims[num_nodes, :] = -np.inf
                    aims[num_nodes, 0] = 0.0
                num_nodes += 1
                node_offsets[c + 1], slot_offsets[c + 1] = num_nodes, num_slots
                edge_offsets[c + 1] = num_edges
                continue

            first = first_actions[c]
            size = end_actions[c] - first
            own_nodes = slot_nodes[num_slots:]
            count = _collect(
                strings, lcs, node_offsets, own_sources, own_nodes, order, following, heads
            )

            # Slots with strings that are equal as far as a context remembers are one class.
            num_classes = 0
            for place in range(count):
                v = own_nodes[order[place]]
                if place == 0 or following[place - 1] < threshold:
                    class_starts[num_classes] = place
                    class_lens[num_classes] = min(lens[v] + 1, memory)
                    class_anchored[num_classes] = is_anchored[v] and lens[v] + 1 <= memory
                    class_allowed[num_classes] = class_anchored[num_classes] or not anchored_only
                    num_classes += 1
                class_lcs[num_classes - 1] = following[place]
            class_starts[num_classes] = count

            own_nodes = own_nodes[:count]
            for slot in range(count):
                slot_forward[slot] = forward[own_nodes[slot]]
            found = slot_rows[num_slots : num_slots + count]
            _find_rows(
                streams, table, len(weights), history, own_nodes, first, inputs[c], grow, found
            )
            given = emissions.ravel()[0:0]
            if rows[c] >= 0 and emissions.shape[0] > 0:
                given = emissions[rows[c], first : first + size]
            own_scores = scores[num_edges : num_edges + count * size]
            _score(found, own_nodes, lens, escape, given, places, first, size, weights, own_scores)

            elements = num_classes * size
            own_values = values[:elements]
            _sum_classes(
                own_scores, slot_forward, order, class_starts, num_classes, size, own_values,
                largest, shares,
            )  # fmt: skip
            active[:elements] = False
            chosen = 0
            allowed = class_allowed[:num_classes]
            if by != BY_TARGET:
                chosen += _choose(own_values, allowed, size, sizes[c], heap, active)
            if by != BY_MODEL:
                low, high = written[0][own_sources].min(), written[1][own_sources].max()
                _sum_targets(
                    targets, written, (low, high), first, size, string, own_nodes, columns, order,
                    class_starts, num_classes, own_scores, aims, class_aims, aimed[:elements],
                )  # fmt: skip
                chosen += _choose(aimed, allowed, size, sizes[c], heap, active)

            base, new = num_nodes, chosen + 1
            last = base + new - 1
            parents[last], symbols[last], lens[last] = -1, star, 0
            is_anchored[last], columns[last], lcs[last] = False, c, 0
            own_into = into[:elements]
            _merge(
                size, num_classes, class_lens, class_lcs, active, stack, base, new, strings, lcs,
                own_into,
            )  # fmt: skip
            _add_forward(own_values, own_into, base, new, forward, largest, shares[:elements])
            for s in range(stars.shape[0]):
                history[last, s * stars.shape[1] : (s + 1) * stars.shape[1]] = stars[s]
            for made in range(1, new):
                v, e = last - made, stack[1, made]
                k = e // size
                source = own_nodes[order[class_starts[k]]]
                parents[v], symbols[v], columns[v] = source, first + e % size, c
                is_anchored[v] = class_anchored[k]
            _remember(
                streams, table, stars, strings, inputs, base, last, history, memory, walked, grow
            )
            if by != BY_MODEL:
                aims[base : base + new] = -np.inf
                low, high = written[0][own_sources].min(), written[1][own_sources].max()
                _add_targets(
                    targets, written[0][c], (low, high), first, size, string, num_classes,
                    own_into, class_aims, aims,
                )  # fmt: skip
            for k in range(num_classes):
                for place in range(class_starts[k], class_starts[k + 1]):
                    start = num_edges + order[place] * size
                    for i in range(size):
                        edge_targets[start + i] = own_into[k * size + i]
            num_nodes += new
            num_slots += count
            num_edges += count * size
            node_offsets[c + 1], slot_offsets[c + 1] = num_nodes, num_slots
            edge_offsets[c + 1] = num_edges
            if counts[IS_FULL]:
                return num_nodes, num_slots, num_edges
    return num_nodes, num_slots, num_edges
