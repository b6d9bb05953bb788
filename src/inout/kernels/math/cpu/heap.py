"""Derivations in order: the nodes of lazy k-best searches, their pairing heap, their order of ties.

Forests, dense grammars and sparse grammars list the k best derivations of an item by algorithm 3 of
Huang & Chiang, "Better k-best parsing" (IWPT 2005). One total order holds for all of them:

1. the higher weight first;
2. among equal weights, the smaller number of the edge at the top;
3. among equal edges, the lexicographically smaller vector of the children's ranks (left to right),
   where the rank of a child is its place in this same order among the derivations of its item.

The order does not depend on k, so the k best are a prefix of the k+1 best.

A *node* is a derivation: an edge, and the positions at which the child is not the best one. Node y
comes only from the node x that is one rank lower at the last changed position of y, so that nothing
is generated twice and no set of visited nodes is needed. The changed positions form a list from
right to left that nodes share (`PREVIOUS`), so a node has the same small size at any arity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import inner

# Columns of the links of a node. A node that changes no child has CHILD 0.
PREVIOUS = 0  # node that holds the next changed position to the left, or 0
POSITION = 1  # the last changed position
CHILD = 2  # node that is the child there
RANK = 3  # place among the derivations of the item, once known
NEXT = 4  # node of the next rank: 0 not searched yet, NONE if there is none
HEAP_CHILD = 5  # pairing heap of the candidates of an item
HEAP_SIBLING = 6
COLUMNS = 7

# Columns of an item. For forests, FIRST is the second best: their best have no nodes.
FIRST = 0  # node of the first derivation: 0 not searched yet, NONE if there is none
LAST = 1  # node of the last derivation known
HEAP = 2  # top of the pairing heap of its candidates, or 0
OPENED = 3  # whether its edges have been looked at
ITEM_COLUMNS = 4

NONE = np.int64(-1)
MOST_NODES = np.int64(2**31 - 1)  # links are 32 bits wide


class Nodes(NamedTuple):
    """Derivations, with room for more; node 0 is none."""

    links: NDArray[np.int32]  # [m COLUMNS]
    edges: NDArray[np.int64]  # [m], numbers in the order in which ties are broken
    weights: NDArray[np.float64]  # [m]


def new_nodes(size: int) -> Nodes:
    """Room for `size` nodes."""
    return Nodes(np.zeros((size, COLUMNS), np.int32), np.zeros(size, np.int64), np.zeros(size))


def longer_nodes(nodes: Nodes, size: int) -> Nodes:
    """A copy of the nodes with room for `size`; for callers that are not compiled."""
    longer, used = new_nodes(size), len(nodes.edges)
    longer.links[:used], longer.edges[:used], longer.weights[:used] = nodes
    return longer


empty_nodes = inner(new_nodes)


@inner
def longer_vector(vector, size):
    """Copy of the vector with room for `size` entries."""
    copy = np.empty(size, vector.dtype)
    for i in range(vector.shape[0]):
        copy[i] = vector[i]
    return copy


@inner
def longer_rows(rows, size):
    """Copy of the rows with room for `size` of them."""
    copy = np.empty((size, rows.shape[1]), rows.dtype)
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            copy[i, j] = rows[i, j]
    return copy


@inner
def with_room(nodes, used, more, most):
    """The nodes, copied where there is no room for so many more; at most `most` in all."""
    if used + more <= nodes.edges.shape[0]:
        return nodes
    size = min(2 * (used + more), most)
    return Nodes(
        longer_rows(nodes.links, size),
        longer_vector(nodes.edges, size),
        longer_vector(nodes.weights, size),
    )


@inner
def write_node(nodes, node, edge, weight):
    """Writes a derivation with the best children, in no list and no heap yet."""
    for column in range(COLUMNS):
        nodes.links[node, column] = 0
    nodes.edges[node] = edge
    nodes.weights[node] = weight


@inner
def write_follower(nodes, node, last, position, child):
    """Writes derivation `last` with another child at a position, without its edge and weight."""
    links = nodes.links
    previous = np.int64(0)
    if links[last, CHILD] > 0:
        previous = np.int64(links[last, PREVIOUS])
        if links[last, POSITION] != position:
            previous = last
    for column in range(RANK, COLUMNS):
        links[node, column] = 0
    links[node, PREVIOUS], links[node, POSITION], links[node, CHILD] = previous, position, child


@inner
def child_at(nodes, node, position):
    """The node of the child at a position, 0 if that is the best."""
    links = nodes.links
    while links[node, CHILD] > 0 and links[node, POSITION] > position:
        node = np.int64(links[node, PREVIOUS])
    return np.int64(links[node, CHILD]) if links[node, POSITION] == position else np.int64(0)


@inner
def precedes(nodes, a, b):
    """Whether node a comes before node b, two different candidates of one item."""
    links, edges, weights = nodes.links, nodes.edges, nodes.weights
    if weights[a] != weights[b]:
        return weights[a] > weights[b]
    if edges[a] != edges[b]:
        return edges[a] < edges[b]
    # Right to left over the changed positions: the leftmost difference is the last one seen. Both
    # nodes change a child, for the best derivation of an edge leaves before others of it are made.
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


@inner
def meld(nodes, a, b):
    """Top of the pairing heap made of the heaps with tops a and b; 0 is the empty heap."""
    if a == 0 or b == 0:
        return a + b
    if precedes(nodes, b, a):
        a, b = b, a
    nodes.links[b, HEAP_SIBLING] = nodes.links[a, HEAP_CHILD]
    nodes.links[a, HEAP_CHILD] = b
    return a


@inner
def without_top(nodes, top):
    """Top of the pairing heap when its top is taken off: its children by pairs, then all."""
    links = nodes.links
    pairs, node = np.int64(0), np.int64(links[top, HEAP_CHILD])
    while node > 0:
        other, rest = np.int64(links[node, HEAP_SIBLING]), np.int64(0)
        if other > 0:
            rest = np.int64(links[other, HEAP_SIBLING])
        node = meld(nodes, node, other)
        links[node, HEAP_SIBLING] = pairs
        pairs, node = node, rest
    while pairs > 0:
        rest = np.int64(links[pairs, HEAP_SIBLING])
        node = meld(nodes, node, pairs)
        pairs = rest
    return node


@inner
def take_next(item, nodes):
    """Makes the best candidate the next derivation of an item [ITEM_COLUMNS], if there is one."""
    last, top = np.int64(item[LAST]), np.int64(item[HEAP])
    nodes.links[last, NEXT] = top if top > 0 else NONE
    if top > 0:
        nodes.links[top, RANK] = nodes.links[last, RANK] + 1
        item[HEAP] = without_top(nodes, top)
        item[LAST] = top


@inner
def worse(weight, edge, other_weight, other_edge):
    """Whether an edge comes after another."""
    return weight < other_weight or (weight == other_weight and edge > other_edge)


@inner
def keep_best(kept, edges, count, limit, weight, edge):
    """Puts an edge among the `limit` best, a binary heap with the worst on top: how many now.

    Where there are `limit` already the edge must be better than the worst of them.
    """
    if count < limit:
        hole = count
        while hole > 0:
            above = (hole - 1) // 2
            if not worse(weight, edge, kept[above], edges[above]):
                break
            kept[hole], edges[hole] = kept[above], edges[above]
            hole = above
        count += 1
    else:
        hole = 0
        while 2 * hole + 1 < limit:
            below = 2 * hole + 1
            if below + 1 < limit and worse(
                kept[below + 1], edges[below + 1], kept[below], edges[below]
            ):
                below += 1
            if not worse(kept[below], edges[below], weight, edge):
                break
            kept[hole], edges[hole] = kept[below], edges[below]
            hole = below
    kept[hole], edges[hole] = weight, edge
    return count
