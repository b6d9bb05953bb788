"""Kernels for Viterbi and the exact lazy k-best derivations of a forest, on the CPU (numba).

The k-best search is algorithm 3 of Huang & Chiang, "Better k-best parsing" (IWPT 2005), with
explicit stacks instead of recursion. One total order on the derivations of an item holds
everywhere, and the lists follow it exactly:

1. the higher weight first;
2. among equal weights, the smaller id of the edge at the top;
3. among equal edges, the lexicographically smaller vector of the children's ranks (left to right),
   where the rank of a child is its place in this same order among the derivations of its item.

The order does not depend on k, so the k best are a prefix of the k+1 best. Weights are sums of
log-weights taken right to left over the tails, then the head's own weight; floating-point sums are
monotone in each term, so the order is exact for the weights as computed.

A derivation other than the best of its item is a *node*: an edge, and the tails whose child is not
the best one. Node j' comes only from the node j that is one rank lower at the last changed tail of
j', so that nothing is generated twice and no set of visited nodes is needed. The changed tails form
a list from right to left that nodes share (`PREVIOUS`), so a node has the same small size at any
arity. Node 0 stands for "the best derivation of the item", whichever item is meant.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled

# The kernels write np.int64(...) around what they pass on: numba would compile each helper again
# for a literal and again for an int32, which trebles the seconds of the first call.

# Columns of the links of a node. A node that changes no tail has CHILD 0.
PREVIOUS = 0  # node that holds the next changed tail to the left, or 0
POSITION = 1  # the last changed tail
CHILD = 2  # node that is the child there
RANK = 3  # place among the derivations of the item, once known
NEXT = 4  # node of the next rank: 0 not searched yet, NONE if there is none
HEAP_CHILD = 5  # pairing heap of the candidates of an item
HEAP_SIBLING = 6
COLUMNS = 7

# Columns of the state of an item.
FIRST = 0  # node of rank 1: 0 not searched yet, NONE if there is none
LAST = 1  # node of the highest rank known, 0 if that is the best
HEAP = 2  # top of the pairing heap of its candidate nodes, or 0
OPENED = 3  # whether its edges have been put in their heap
ITEM_COLUMNS = 4

NONE = -1


@compiled(forceinline=True)
def edge_weight(edge, tail_offsets, tails, best):
    """Weight of the best derivation with this edge at its top, without the head's own weight."""
    weight = 0.0
    for t in range(tail_offsets[edge + 1] - 1, tail_offsets[edge] - 1, -1):
        weight += best[tails[t]]
    return weight


@compiled
def viterbi(num_axioms, edge_offsets, tail_offsets, tails, item_weights, best, pointer):
    """Fill best [v] and pointer [v]; of equal edges the first wins."""
    for item in range(num_axioms):
        best[item] = item_weights[item]
        pointer[item] = -1
    for item in range(num_axioms, len(item_weights)):
        highest = -np.inf
        chosen = -1
        for edge in range(edge_offsets[item], edge_offsets[item + 1]):
            weight = edge_weight(edge, tail_offsets, tails, best)
            if weight > highest:
                highest = weight
                chosen = edge
        highest += item_weights[item]
        best[item] = highest
        pointer[item] = chosen if highest > -np.inf else -1


@compiled(forceinline=True)
def sift_down(heap_weights, heap_edges, begin, size, hole):
    """Move the entry at `hole` down to its place in the heap of `size` entries at `begin`."""
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


@compiled
def open_item(item, forest, items):
    """Heap the best derivation of every edge of the item but the best edge, in O(edges).

    The heap lies where the edges of the item lie in the forest, so it needs no pool.
    """
    edge_offsets, tail_offsets, tails, item_weights, best, pointer = forest
    state, waiting, heap_weights, heap_edges = items
    begin = edge_offsets[item]
    size = np.int64(0)
    for edge in range(begin, edge_offsets[item + 1]):
        if edge != pointer[item]:
            weight = edge_weight(edge, tail_offsets, tails, best) + item_weights[item]
            if weight > -np.inf:
                heap_weights[begin + size] = weight
                heap_edges[begin + size] = edge
                size += 1
    for hole in range(size // 2 - 1, -1, -1):
        sift_down(heap_weights, heap_edges, begin, size, hole)
    waiting[item] = size
    state[item, OPENED] = 1


@compiled
def precedes(a, b, nodes):
    """Whether node a comes before node b, two different nodes of one item."""
    links, edges, weights = nodes
    if weights[a] != weights[b]:
        return weights[a] > weights[b]
    if edges[a] != edges[b]:
        return edges[a] < edges[b]
    # Right to left over the changed tails: the leftmost difference is the last one seen. Both
    # nodes change a tail, for an edge leaves its own heap before any node of it is made.
    before = False
    while a != b:
        place_a = links[a, POSITION] if a > 0 else -1
        place_b = links[b, POSITION] if b > 0 else -1
        if place_a == place_b:
            rank_a = links[links[a, CHILD], RANK]
            rank_b = links[links[b, CHILD], RANK]
            if rank_a != rank_b:
                before = rank_a < rank_b
        else:
            before = place_a < place_b
        if place_a >= place_b:
            a = links[a, PREVIOUS]
        if place_b >= place_a:
            b = links[b, PREVIOUS]
    return before


@compiled
def meld(a, b, nodes):
    """Top of the pairing heap made of the heaps a and b."""
    if a == 0:
        return b
    if b == 0:
        return a
    if precedes(b, a, nodes):
        a, b = b, a
    links = nodes[0]
    links[b, HEAP_SIBLING] = links[a, HEAP_CHILD]
    links[a, HEAP_CHILD] = b
    return a


@compiled
def without_top(top, nodes):
    """Top of the pairing heap left when its top is taken off (two passes over its children)."""
    links = nodes[0]
    pairs = np.int64(0)
    node = np.int64(links[top, HEAP_CHILD])
    while node > 0:
        other = np.int64(links[node, HEAP_SIBLING])
        rest = np.int64(0)
        if other > 0:
            rest = np.int64(links[other, HEAP_SIBLING])
            node = meld(node, other, nodes)
        links[node, HEAP_SIBLING] = pairs
        pairs = node
        node = rest
    top = np.int64(0)
    while pairs > 0:
        rest = np.int64(links[pairs, HEAP_SIBLING])
        top = meld(top, pairs, nodes)
        pairs = rest
    return top


@compiled
def add_candidate(new, last, position, child, item, forest, state, nodes):
    """Whether node `new`, which is `last` with another child at `position`, is a candidate."""
    edge_offsets, tail_offsets, tails, item_weights, best, pointer = forest
    links, edges, weights = nodes
    edge = edges[last] if last > 0 else pointer[item]
    if links[last, CHILD] == 0:
        links[new, PREVIOUS] = 0
    else:
        links[new, PREVIOUS] = links[last, PREVIOUS] if links[last, POSITION] == position else last
    links[new, POSITION] = position
    links[new, CHILD] = child
    for column in range(RANK, COLUMNS):
        links[new, column] = 0
    edges[new] = edge
    # Summed afresh in the order of Viterbi: only so are the weights monotone in every rank.
    weight = 0.0
    begin = tail_offsets[edge]
    node = new
    for t in range(tail_offsets[edge + 1] - 1, begin - 1, -1):
        if node > 0 and links[node, POSITION] == t - begin:
            weight += weights[links[node, CHILD]]
            node = links[node, PREVIOUS]
        else:
            weight += best[tails[t]]
    weights[new] = weight + item_weights[item]
    if weights[new] == -np.inf:
        return False
    state[item, HEAP] = meld(np.int64(state[item, HEAP]), new, nodes)
    return True


@compiled
def take_next(new, item, edge_offsets, items, nodes):
    """Whether node `new` was used to make the best candidate of the item its next derivation."""
    state, waiting, heap_weights, heap_edges = items
    links, edges, weights = nodes
    begin = edge_offsets[item]
    last = state[item, LAST]
    top = np.int64(state[item, HEAP])
    node = np.int64(NONE)
    if waiting[item] > 0 and (
        top == 0
        or heap_weights[begin] > weights[top]
        or (heap_weights[begin] == weights[top] and heap_edges[begin] < edges[top])
    ):
        node = new
        weights[node] = heap_weights[begin]
        edges[node] = heap_edges[begin]
        for column in range(COLUMNS):
            links[node, column] = 0
        size = waiting[item] - 1
        waiting[item] = size
        heap_weights[begin] = heap_weights[begin + size]
        heap_edges[begin] = heap_edges[begin + size]
        if size > 1:
            sift_down(heap_weights, heap_edges, begin, size, np.int64(0))
    elif top > 0:
        node = top
        state[item, HEAP] = without_top(top, nodes)
    if last > 0:
        links[last, NEXT] = node
    else:
        state[item, FIRST] = node
    if node > 0:
        links[node, RANK] = links[last, RANK] + 1
        state[item, LAST] = node
    return node == new


@compiled
def grown(array, size):
    """Copy of the rows with room for `size` of them."""
    result = np.empty((size, array.shape[1]), array.dtype)
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            result[i, j] = array[i, j]
    return result


@compiled
def grown_vector(array, size):
    """Copy of the vector with room for `size` entries."""
    result = np.empty(size, array.dtype)
    for i in range(len(array)):
        result[i] = array[i]
    return result


@compiled
def search(num_axioms, forest, root, k, max_nodes, items):
    """Number of derivations found, k at most, and the nodes; 0 if there are too many nodes.

    The nodes of the derivations after the best are a list from `state[root, FIRST]` by NEXT.
    """
    edge_offsets, tail_offsets, tails, item_weights, best, pointer = forest
    state = items[0]
    links = np.zeros((1024, COLUMNS), np.int32)
    edges = np.zeros(1024, np.int64)
    weights = np.zeros(1024, np.float64)
    used = np.int64(1)
    # A frame is an item whose next derivation is wanted, and the tail to raise next for it. Tails
    # come before heads, so no item is in two frames and the depth is at most that of the forest.
    stack = np.zeros((64, 2), np.int64)
    found = 1
    while found < k:
        depth = 1
        stack[0, 0] = root
        stack[0, 1] = links[state[root, LAST], POSITION]
        while depth > 0:
            item = stack[depth - 1, 0]
            position = stack[depth - 1, 1]
            if state[item, OPENED] == 0:
                open_item(item, forest, items)
            last = state[item, LAST]
            edge = edges[last] if last > 0 else pointer[item]
            begin = tail_offsets[edge]
            arity = tail_offsets[edge + 1] - begin
            if used + arity + 1 > len(edges):
                if used + arity + 1 > max_nodes:
                    return 0, links, edges, weights
                size = min(2 * (used + arity + 1), max_nodes)
                links = grown(links, size)
                edges = grown_vector(edges, size)
                weights = grown_vector(weights, size)
            nodes = (links, edges, weights)
            wanted = NONE
            while position < arity:
                tail = tails[begin + position]
                if tail >= num_axioms:
                    if links[last, CHILD] > 0 and links[last, POSITION] == position:
                        follower = links[links[last, CHILD], NEXT]
                    else:
                        follower = state[tail, FIRST]
                    if follower == 0:
                        wanted = tail
                        break
                    if follower > 0 and add_candidate(
                        used, last, position, follower, item, forest, state, nodes
                    ):
                        used += 1
                position += 1
            if wanted == NONE:
                if take_next(used, item, edge_offsets, items, nodes):
                    used += 1
                depth -= 1
            else:
                stack[depth - 1, 1] = position
                if depth == len(stack):
                    stack = grown(stack, 2 * depth)
                stack[depth, 0] = wanted
                stack[depth, 1] = links[state[wanted, LAST], POSITION]
                depth += 1
        last = state[root, LAST]
        if (links[last, NEXT] if last > 0 else state[root, FIRST]) == NONE:
            break
        found += 1
    return found, links, edges, weights


@compiled
def measure(num_axioms, forest, root, root_nodes, nodes, best_sizes, node_sizes, limit):
    """Edges in all derivations of the root together, cut at limit; sizes of all their subtrees."""
    edge_offsets, tail_offsets, tails, item_weights, best, pointer = forest
    links, edges, weights = nodes
    stack = np.zeros((64, 2), np.int64)
    total = 0
    for root_node in root_nodes:
        stack[0, 0] = root
        stack[0, 1] = root_node
        depth = 1
        while depth > 0:
            item = stack[depth - 1, 0]
            node = stack[depth - 1, 1]
            edge = edges[node] if node > 0 else pointer[item]
            begin = tail_offsets[edge]
            arity = tail_offsets[edge + 1] - begin
            if depth + arity > len(stack):
                stack = grown(stack, 2 * (depth + arity))
            size = 1
            top = depth
            changed = node if links[node, CHILD] > 0 else 0
            for position in range(arity - 1, -1, -1):
                tail = tails[begin + position]
                child = 0
                if changed > 0 and links[changed, POSITION] == position:
                    child = links[changed, CHILD]
                    changed = links[changed, PREVIOUS]
                if tail >= num_axioms:
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
def walk(
    num_axioms,
    forest,
    root,
    root_nodes,
    nodes,
    best_sizes,
    node_sizes,
    best_places,
    node_places,
    offsets,
    output,
):
    """Write the edges of all derivations in preorder; a subtree met again is copied.

    The places say where a subtree begins in the output, plus one; they start as zeros.
    """
    edge_offsets, tail_offsets, tails, item_weights, best, pointer = forest
    links, edges, weights = nodes
    stack = np.zeros((64, 2), np.int64)
    place = 0
    for r in range(len(root_nodes)):
        stack[0, 0] = root
        stack[0, 1] = root_nodes[r]
        depth = 1
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
                edge = edges[node]
            else:
                best_places[item] = place + 1
                edge = pointer[item]
            output[place] = edge
            place += 1
            begin = tail_offsets[edge]
            arity = tail_offsets[edge + 1] - begin
            if depth + arity > len(stack):
                stack = grown(stack, 2 * (depth + arity))
            changed = node if links[node, CHILD] > 0 else 0
            for position in range(arity - 1, -1, -1):
                child = 0
                if changed > 0 and links[changed, POSITION] == position:
                    child = links[changed, CHILD]
                    changed = links[changed, PREVIOUS]
                if tails[begin + position] >= num_axioms:
                    stack[depth, 0] = tails[begin + position]
                    stack[depth, 1] = child
                    depth += 1
        offsets[r + 1] = place
