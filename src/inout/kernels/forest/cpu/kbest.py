"""Kernels for Viterbi and the exact lazy k-best derivations of a forest, on the CPU (numba).

The k-best search is algorithm 3 of Huang & Chiang, "Better k-best parsing" (IWPT 2005), with
explicit stacks instead of recursion, in the order of `math/cpu/heap.py`. Weights are sums of
log-weights taken right to left over the tails, then the head's own weight; floating-point sums are
monotone in each term, so the order is exact for the weights as computed.

Nodes are made for derivations other than the best of an item: node 0 stands for "the best
derivation of the item", whichever item is meant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu import heap

# The kernels write np.int64(...) around what they pass on: numba would compile each helper again
# for a literal and again for an int32, which trebles the seconds of the first call.


class ScoredForest(NamedTuple):
    """A forest as in `ForestArrays`, its weights, and what `viterbi` fills in."""

    num_axioms: int
    edge_offsets: NDArray[np.int64]
    tail_offsets: NDArray[np.int64]
    tails: NDArray[np.int32]
    item_weights: NDArray[np.float64]  # [v]
    best: NDArray[np.float64]  # [v]
    pointer: NDArray[np.int64]  # [v]


class Items(NamedTuple):
    """What the search knows of items, and the heaps of their edges.

    The heap of an item lies where its edges lie in the forest, so it needs no pool.
    """

    state: NDArray[np.int32]  # [v ITEM_COLUMNS]
    waiting: NDArray[np.int64]  # [v], sizes of the heaps
    heap_weights: NDArray[np.float64]  # [e]
    heap_edges: NDArray[np.int64]  # [e]


class Trees(NamedTuple):
    """Sizes of the trees of items' best derivations and of nodes, and where they are written.

    Zero where not known yet; the places are one more than where a tree begins in the output.
    """

    best_sizes: NDArray[np.int64]  # [v]
    node_sizes: NDArray[np.int64]  # [nodes]
    best_places: NDArray[np.int64]  # [v]
    node_places: NDArray[np.int64]  # [nodes]
    # [tails+1 2] of items on one path, which are all different: room for all tails is enough.
    stack: NDArray[np.int64]


@inner(forceinline=True)
def edge_weight(forest, edge):
    """Weight of the best derivation with this edge at its top, without the head's own weight."""
    weight = 0.0
    for t in range(forest.tail_offsets[edge + 1] - 1, forest.tail_offsets[edge] - 1, -1):
        weight += forest.best[forest.tails[t]]
    return weight


@compiled
def viterbi(forest):
    """Fill best [v] and pointer [v]; of equal edges the first wins."""
    num_axioms, item_weights = forest.num_axioms, forest.item_weights
    for item in range(num_axioms):
        forest.best[item] = item_weights[item]
        forest.pointer[item] = -1
    for item in range(num_axioms, len(item_weights)):
        highest = -np.inf
        chosen = -1
        for edge in range(forest.edge_offsets[item], forest.edge_offsets[item + 1]):
            weight = edge_weight(forest, edge)
            if weight > highest:
                highest = weight
                chosen = edge
        highest += item_weights[item]
        forest.best[item] = highest
        forest.pointer[item] = chosen if highest > -np.inf else -1


@inner(forceinline=True)
def sift_down(items, begin, size, hole):
    """Move the entry at `hole` down to its place in the heap of `size` entries at `begin`."""
    heap_weights, heap_edges = items.heap_weights, items.heap_edges
    weight = heap_weights[begin + hole]
    edge = heap_edges[begin + hole]
    child = 2 * hole + 1
    while child < size:
        c = begin + child
        if child + 1 < size and (
            heap_weights[c + 1] > heap_weights[c]
            or (heap_weights[c + 1] == heap_weights[c] and heap_edges[c + 1] < heap_edges[c])
        ):
            child += 1
            c += 1
        if weight > heap_weights[c] or (weight == heap_weights[c] and edge < heap_edges[c]):
            break
        heap_weights[begin + hole] = heap_weights[c]
        heap_edges[begin + hole] = heap_edges[c]
        hole = child
        child = 2 * hole + 1
    heap_weights[begin + hole] = weight
    heap_edges[begin + hole] = edge


@inner
def open_item(item, forest, items):
    """Heap the best derivation of every edge of the item but the best edge, in O(edges)."""
    begin = forest.edge_offsets[item]
    size = np.int64(0)
    for edge in range(begin, forest.edge_offsets[item + 1]):
        if edge != forest.pointer[item]:
            weight = edge_weight(forest, edge) + forest.item_weights[item]
            if weight > -np.inf:
                items.heap_weights[begin + size] = weight
                items.heap_edges[begin + size] = edge
                size += 1
    for hole in range(size // 2 - 1, -1, -1):
        sift_down(items, begin, size, hole)
    items.waiting[item] = size
    items.state[item, heap.OPENED] = 1


@inner
def add_candidate(new, last, position, child, item, forest, state, nodes):
    """Whether node `new`, which is `last` with another child at `position`, is a candidate."""
    links = nodes.links
    edge = nodes.edges[last] if last > 0 else forest.pointer[item]
    heap.write_follower(nodes, new, last, position, child)
    # Summed afresh in the order of Viterbi: only so are the weights monotone in every rank.
    weight = 0.0
    begin = forest.tail_offsets[edge]
    node = new
    for t in range(forest.tail_offsets[edge + 1] - 1, begin - 1, -1):
        if node > 0 and links[node, heap.POSITION] == t - begin:
            weight += nodes.weights[links[node, heap.CHILD]]
            node = np.int64(links[node, heap.PREVIOUS])
        else:
            weight += forest.best[forest.tails[t]]
    nodes.edges[new] = edge
    nodes.weights[new] = weight + forest.item_weights[item]
    if nodes.weights[new] == -np.inf:
        return False
    state[item, heap.HEAP] = heap.meld(nodes, np.int64(state[item, heap.HEAP]), new)
    return True


@inner
def take_next(new, item, begin, items, nodes):
    """Whether node `new` was used to make the best candidate of the item its next derivation."""
    state, waiting, heap_weights, heap_edges = items
    links = nodes.links
    last = np.int64(state[item, heap.LAST])
    top = np.int64(state[item, heap.HEAP])
    node = heap.NONE
    if waiting[item] > 0 and (
        top == 0
        or heap_weights[begin] > nodes.weights[top]
        or (heap_weights[begin] == nodes.weights[top] and heap_edges[begin] < nodes.edges[top])
    ):
        node = new
        heap.write_node(nodes, node, heap_edges[begin], heap_weights[begin])
        size = waiting[item] - 1
        waiting[item] = size
        heap_weights[begin] = heap_weights[begin + size]
        heap_edges[begin] = heap_edges[begin + size]
        if size > 1:
            sift_down(items, begin, size, np.int64(0))
    elif top > 0:
        node = top
        state[item, heap.HEAP] = heap.without_top(nodes, top)
    if last > 0:
        links[last, heap.NEXT] = node
    else:
        state[item, heap.FIRST] = node
    if node > 0:
        links[node, heap.RANK] = links[last, heap.RANK] + 1
        state[item, heap.LAST] = node
    return node == new


class Progress(NamedTuple):
    """Where a search stands, so that it can go on when it has been given more room."""

    numbers: NDArray[np.int64]  # [3]: derivations found, nodes used, frames on the stack
    # [v+1 2] A frame is an item whose next derivation is wanted, and the tail to raise next for it.
    # Tails come before heads, so no item is in two frames.
    stack: NDArray[np.int64]


@compiled
def search(forest, root, k, items, nodes, progress):
    """Goes on until the k best derivations, or all, are found: whether there was room for nodes.

    The nodes of the derivations after the best are a list from `state[root, FIRST]` by NEXT.
    """
    tail_offsets, tails, state, links = forest.tail_offsets, forest.tails, items.state, nodes.links
    found, used, depth = progress.numbers
    stack = progress.stack
    while found < k:
        if depth == 0:
            depth = 1
            stack[0, 0] = root
            stack[0, 1] = links[state[root, heap.LAST], heap.POSITION]
        while depth > 0:
            item = stack[depth - 1, 0]
            position = stack[depth - 1, 1]
            if state[item, heap.OPENED] == 0:
                open_item(item, forest, items)
            last = np.int64(state[item, heap.LAST])
            edge = nodes.edges[last] if last > 0 else forest.pointer[item]
            begin = tail_offsets[edge]
            arity = tail_offsets[edge + 1] - begin
            if used + arity + 1 > len(nodes.edges):
                progress.numbers[0], progress.numbers[1], progress.numbers[2] = found, used, depth
                return False
            wanted = heap.NONE
            while position < arity:
                tail = tails[begin + position]
                if tail >= forest.num_axioms:
                    if links[last, heap.CHILD] > 0 and links[last, heap.POSITION] == position:
                        follower = np.int64(links[links[last, heap.CHILD], heap.NEXT])
                    else:
                        follower = np.int64(state[tail, heap.FIRST])
                    if follower == 0:
                        wanted = np.int64(tail)
                        break
                    if follower > 0 and add_candidate(
                        used, last, position, follower, item, forest, state, nodes
                    ):
                        used += 1
                position += 1
            if wanted == heap.NONE:
                if take_next(used, item, forest.edge_offsets[item], items, nodes):
                    used += 1
                depth -= 1
            else:
                stack[depth - 1, 1] = position
                stack[depth, 0] = wanted
                stack[depth, 1] = links[state[wanted, heap.LAST], heap.POSITION]
                depth += 1
        last = np.int64(state[root, heap.LAST])
        if (links[last, heap.NEXT] if last > 0 else state[root, heap.FIRST]) == heap.NONE:
            break
        found += 1
    progress.numbers[0] = found
    return True


@inner(forceinline=True)
def edge_of(forest, item, node, nodes):
    """The edge at the top of a derivation of an item."""
    return nodes.edges[node] if node > 0 else forest.pointer[item]


@inner(forceinline=True)
def push_parts(forest, edge, node, nodes, stack, depth):
    """Pushes the derived tails of a derivation with this edge, rightmost first: the new depth.

    A row is an item and the node of its derivation.
    """
    links = nodes.links
    begin = forest.tail_offsets[edge]
    arity = forest.tail_offsets[edge + 1] - begin
    changed = node if links[node, heap.CHILD] > 0 else np.int64(0)
    for position in range(arity - 1, -1, -1):
        child = np.int64(0)
        if changed > 0 and links[changed, heap.POSITION] == position:
            child = np.int64(links[changed, heap.CHILD])
            changed = np.int64(links[changed, heap.PREVIOUS])
        if forest.tails[begin + position] >= forest.num_axioms:
            stack[depth, 0] = forest.tails[begin + position]
            stack[depth, 1] = child
            depth += 1
    return depth


@compiled
def measure(forest, root, root_nodes, nodes, trees, limit):
    """Edges in all derivations of the root together, cut at limit; sizes of all their subtrees."""
    best_sizes, node_sizes, stack = trees.best_sizes, trees.node_sizes, trees.stack
    total = 0
    for root_node in root_nodes:
        stack[0, 0] = root
        stack[0, 1] = root_node
        depth = np.int64(1)
        while depth > 0:
            item = stack[depth - 1, 0]
            node = stack[depth - 1, 1]
            edge = edge_of(forest, item, node, nodes)
            end = push_parts(forest, edge, node, nodes, stack, depth)
            # Of the parts just pushed only those whose size is not known stay.
            size = 1
            top = depth
            for place in range(depth, end):
                tail, child = stack[place, 0], stack[place, 1]
                part = node_sizes[child] if child > 0 else best_sizes[tail]
                size = min(size + part, limit)
                if part == 0:
                    stack[top, 0] = tail
                    stack[top, 1] = child
                    top += 1
            if top > depth:
                depth = top
                continue
            if node > 0:
                node_sizes[node] = size
            else:
                best_sizes[item] = size
            depth -= 1
        total = min(total + (node_sizes[root_node] if root_node > 0 else best_sizes[root]), limit)
        if total == limit:
            break
    return total


@compiled
def walk(forest, root, root_nodes, nodes, trees, offsets, output):
    """Write the edges of all derivations in preorder; a subtree met again is copied."""
    best_sizes, node_sizes, best_places, node_places, stack = trees
    place = 0
    for r in range(len(root_nodes)):
        stack[0, 0] = root
        stack[0, 1] = root_nodes[r]
        depth = np.int64(1)
        while depth > 0:
            depth -= 1
            item = stack[depth, 0]
            node = stack[depth, 1]
            seen = node_places[node] if node > 0 else best_places[item]
            if seen > 0:
                size = node_sizes[node] if node > 0 else best_sizes[item]
                for i in range(size):
                    output[place + i] = output[seen - 1 + i]
                place += size
                continue
            if node > 0:
                node_places[node] = place + 1
            else:
                best_places[item] = place + 1
            edge = edge_of(forest, item, node, nodes)
            output[place] = edge
            place += 1
            depth = push_parts(forest, edge, node, nodes, stack, depth)
        offsets[r + 1] = place
