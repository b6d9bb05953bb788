"""Strings of contexts in lexicographic order: steps 1 and 3 of appendix A.

A context v is (parents[v], symbols[v]): the string of another context, and one action more. Of
that string the last lens[v] symbols count; before them is ⋆. Contexts of a column lie in
lexicographic order, the last symbol first, ⋆ above all others, so the last of them is ⋆…⋆.
`lcs[v]` is the length of the longest common suffix of context v and the next one.
"""

from __future__ import annotations

from inout._core.cpu.compiling import inner

UNBOUNDED = 1 << 30


@inner
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


@inner
def collect(strings, lcs, node_offsets, sources, slot_nodes, sorting):
    """The contexts of all source columns as slots; returns how many.

    `sorting` gets their order, and the lcs of each with the next in this order.
    """
    order, following, heads = sorting
    count = 0
    for s in range(len(sources)):
        heads[s] = count
        for v in range(node_offsets[sources[s]], node_offsets[sources[s] + 1]):
            slot_nodes[count] = v
            order[count] = count
            following[count] = lcs[v]
            count += 1
    heads[len(sources)] = count
    if len(sources) > 1:
        _merge_sources(strings, len(sources), slot_nodes[:count], order, following, heads)
    return count


@inner
def _merge_sources(strings, num_sources, slot_nodes, order, following, heads):
    """Bring slots into one order, where those of each source begin at `heads` and have theirs."""
    ends = heads[1 : num_sources + 1].copy()
    previous = -1
    for place in range(len(slot_nodes)):
        best = -1
        for s in range(num_sources):
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
    following[len(slot_nodes) - 1] = 0


@inner
def classify(nodes, sorting, lens, is_anchored, memory, anchored_only, classes):
    """Make slots whose strings are equal as far as a context remembers one class; returns how many.

    `classes`: where each begins in the order of slots, how long its strings get by an action, the
    lcs with the next one, whether contexts made from it are anchored, and may be chosen.
    """
    order, following, _ = sorting
    starts, class_lens, class_lcs, anchored, allowed = classes
    threshold = UNBOUNDED - 1 if memory >= UNBOUNDED else memory - 1
    count = 0
    for place in range(len(nodes)):
        if place == 0 or following[place - 1] < threshold:
            v = nodes[order[place]]
            starts[count] = place
            class_lens[count] = min(lens[v] + 1, memory)
            anchored[count] = is_anchored[v] and lens[v] + 1 <= memory
            allowed[count] = anchored[count] or not anchored_only
            count += 1
        class_lcs[count - 1] = following[place]
    starts[count] = len(nodes)
    return count


@inner
def merge(size, num_classes, classes, active, base, last, lens, lcs, stack, made_from, into):
    """Appendix A, step 3: every element goes into its longest active suffix, `into`.

    The contexts of the column get their numbers, base to last, ⋆…⋆ being the last: of each of the
    others `made_from` is its element.
    """
    _, class_lens, class_lcs, _, _ = classes
    stack[0] = last
    height = 1
    node = last
    common = 0
    for i in range(size - 1, -1, -1):
        for k in range(num_classes - 1, -1, -1):
            e = k * size + i
            if k < num_classes - 1:
                common = min(common, class_lcs[k] + 1)
            else:
                common = 0
            while common < lens[stack[height - 1]]:
                height -= 1
            if active[e]:
                node -= 1
                lens[node] = class_lens[k]
                lcs[node] = common
                made_from[node - base] = e
                stack[height] = node
                height += 1
                common = UNBOUNDED
            into[e] = stack[height - 1]
