"""Strings of contexts in lexicographic order: steps 1 and 3 of appendix A.

A context v is (parents[v], symbols[v]): the string of another context, and one action more. Of
that string the last lens[v] symbols count; before them is ⋆. Contexts of a column lie in
lexicographic order, the last symbol first, ⋆ above all others, so the last of them is ⋆…⋆.
`lcs[v]` is the length of the longest common suffix of context v and the next one.
"""

from __future__ import annotations

from typing import NamedTuple

from inout._core.cpu.compiling import inner
from inout.kernels.lattice.arrays import Integers, Mask, Numbers
from inout.kernels.limits import LATTICE_UNBOUNDED as UNBOUNDED


class Sorting(NamedTuple):
    """The slots of a column in lexicographic order."""

    order: Integers
    following: Integers  # the lcs of each with the next
    heads: Numbers  # scratch: where those of each source begin
    ends: Numbers  # scratch: and end


class Classes(NamedTuple):
    """Slots whose strings are equal as far as a context remembers."""

    starts: Integers  # where each class begins in the order of slots
    lens: Integers  # how long its strings get by an action
    lcs: Integers  # with the next one
    anchored: Mask  # whether contexts made from it are anchored
    allowed: Mask  # and may be chosen


@inner
def _compare(nodes, top, u, v):
    """(-1, 0 or 1 as string u is before, equal to or behind v; their longest common suffix).

    `top` is the number of ⋆.
    """
    length_u, length_v = nodes.lens[u], nodes.lens[v]
    k = 0
    while True:
        left = nodes.symbols[u] if k < length_u else top
        right = nodes.symbols[v] if k < length_v else top
        if left != right:
            return (-1 if left < right else 1), k
        if left == top:
            return 0, UNBOUNDED
        k += 1
        u, v = nodes.parents[u], nodes.parents[v]


@inner
def collect(nodes, top, sources, slot_nodes, sorting):
    """The contexts of all source columns as slots; returns how many. Fills `sorting`."""
    count = 0
    for s in range(len(sources)):
        sorting.heads[s] = count
        for v in range(nodes.offsets[sources[s]], nodes.offsets[sources[s] + 1]):
            slot_nodes[count] = v
            sorting.order[count] = count
            sorting.following[count] = nodes.lcs[v]
            count += 1
    sorting.heads[len(sources)] = count
    if len(sources) > 1:
        _merge_sources(nodes, top, len(sources), slot_nodes[:count], sorting)
    return count


@inner
def _merge_sources(nodes, top, num_sources, slot_nodes, sorting):
    """Bring slots into one order, where those of each source begin at `heads` and have theirs."""
    order, following, heads, ends = sorting.order, sorting.following, sorting.heads, sorting.ends
    for s in range(num_sources):
        ends[s] = heads[s + 1]
    previous = -1
    for place in range(len(slot_nodes)):
        best = -1
        for s in range(num_sources):
            if heads[s] < ends[s]:
                if best < 0:
                    best = s
                else:
                    sign, _ = _compare(nodes, top, slot_nodes[heads[s]], slot_nodes[heads[best]])
                    if sign < 0:
                        best = s
        order[place] = heads[best]
        heads[best] += 1
        node = slot_nodes[order[place]]
        if previous >= 0:
            _, following[place - 1] = _compare(nodes, top, previous, node)
        previous = node
    following[len(slot_nodes) - 1] = 0


@inner
def classify(slot_nodes, sorting, nodes, policy, classes):
    """Make slots whose strings are equal as far as a context remembers one class; returns how many.

    Fills `classes`.
    """
    order, following, memory = sorting.order, sorting.following, policy.memory
    threshold = UNBOUNDED - 1 if memory >= UNBOUNDED else memory - 1
    count = 0
    for place in range(len(slot_nodes)):
        if place == 0 or following[place - 1] < threshold:
            v = slot_nodes[order[place]]
            length = nodes.lens[v] + 1
            classes.starts[count] = place
            classes.lens[count] = min(length, memory)
            classes.anchored[count] = nodes.is_anchored[v] and length <= memory
            classes.allowed[count] = classes.anchored[count] or not policy.anchored
            count += 1
        classes.lcs[count - 1] = following[place]
    classes.starts[count] = len(slot_nodes)
    return count


@inner
def merge(size, num_classes, classes, base, last, nodes, room):
    """Appendix A, step 3: every element goes into its longest active suffix, `room.into`.

    The contexts of the column get their numbers, base to last, ⋆…⋆ being the last: of each of the
    others `room.made_from` is its element.
    """
    stack, lens = room.stack, nodes.lens
    stack[0] = last
    height = 1
    node = last
    common = 0
    for i in range(size - 1, -1, -1):
        for k in range(num_classes - 1, -1, -1):
            e = k * size + i
            if k < num_classes - 1:
                common = min(common, classes.lcs[k] + 1)
            else:
                common = 0
            while common < lens[stack[height - 1]]:
                height -= 1
            if room.active[e]:
                node -= 1
                lens[node] = classes.lens[k]
                nodes.lcs[node] = common
                room.made_from[node - base] = e
                stack[height] = node
                height += 1
                common = UNBOUNDED
            room.into[e] = stack[height - 1]
