"""Samples without replacement from the leaves of a tree of choices, by Gumbel top-k.

An event is a leaf of the tree: a sequence of choices whose probabilities multiply. Its *key* is its
log-probability plus a Gumbel variable of its own, and the events with the k largest keys, in their
order, are k samples without replacement (Yellott 1977). The largest key below a node of the tree is
Gumbel too, with the log-probability of the node as its location, so keys are drawn from the top
down, and only where they matter (Kool, van Hoof & Welling 2019, section 4): the node with the
largest key is opened, one of its children has this key as well, and those of the others are lower.
Which child it is does not depend on the key, only on the children's probabilities, and the others'
keys are Gumbel variables truncated there (Maddison, Tarlow & Minka 2014). So drawn, nothing
cancels, and two events have the same key only where it is rounded.

A family of trees is a NamedTuple with two operations: `choices` and `enter`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.math.cpu.draws import UNIT_53, next_uniform, stream
from inout.kernels.math.cpu.heap import keep_best
from inout.kernels.math.cpu.operations import operation

# Columns of the links of a node.
PARENT = 0
CHOICE = 1  # the last choice that was made
NEXT = 2  # what is to be chosen next, NOTHING at a leaf
PLACE, END, BELOW = 3, 4, 5  # for forests: see there
COLUMNS = 6

NOTHING = -1

# Numbers of a search.
USED = 0  # nodes
WAITING = 1  # entries of the heap of nodes
KEPT = 2  # of the largest keys
FOUND = 3  # leaves
CURRENT = 4  # the node to be opened next, NOTHING if it comes from the heap
NUMBERS = 5


class Nodes(NamedTuple):
    """Sequences of choices that have been begun, with room for more; node 0 is the root."""

    links: NDArray[np.int64]  # [m COLUMNS]
    masses: NDArray[np.float64]  # [m], log-probabilities
    keys: NDArray[np.float64]  # [m], the largest below each node
    waiting: NDArray[np.int64]  # [m], a heap of nodes, that of the largest key on top


class Search(NamedTuple):
    """What a search knows besides its nodes."""

    numbers: NDArray[np.int64]  # [NUMBERS]
    random: NDArray[np.uint64]  # [1], the state of its stream
    largest: NDArray[np.float64]  # [k+1], the largest keys so far, a heap with the least on top
    largest_nodes: NDArray[np.int64]  # [k+1]
    found: NDArray[np.int64]  # [k], leaves in the order of their keys
    logits: NDArray[np.float64]  # [w], for the children of one node
    codes: NDArray[np.int64]  # [w]


@operation()
def choices(problem, nodes, node, logits, codes):
    """Fills logits and codes with the choices that a node has; how many.

    Logits are log-probabilities up to a constant, -inf for choices that are impossible.
    """


@operation()
def enter(problem, nodes, node):
    """Fills what is to be chosen NEXT at a new node whose PARENT and CHOICE are known.

    The root has neither.
    """


@inner
def exponential(random):
    """(the next state of the stream, an exponential variable)."""
    random, uniform = next_uniform(random)
    return random, -math.log1p(-uniform)


@inner
def lowered(key, mass, variable):
    """A Gumbel variable of location `mass`, truncated at `key`, from an exponential variable.

    -log(exp(-key) + variable exp(-mass)), without leaving the range of floats.
    """
    if variable == 0.0:
        return key
    excess = key - mass + math.log(variable)
    return key - max(excess, 0.0) - math.log1p(math.exp(-abs(excess)))


@inner
def above(nodes, a, b):
    """Whether node a is to be opened before node b."""
    return nodes.keys[a] > nodes.keys[b] or (nodes.keys[a] == nodes.keys[b] and a < b)


@inner
def push(nodes, size, node):
    """Adds a node to the heap of `size` nodes that wait."""
    heap, hole = nodes.waiting, size
    while hole > 0 and above(nodes, node, heap[(hole - 1) // 2]):
        heap[hole] = heap[(hole - 1) // 2]
        hole = (hole - 1) // 2
    heap[hole] = node


@inner
def pop(nodes, size):
    """Takes the first node off the heap of `size` nodes that wait."""
    heap = nodes.waiting
    first, moved, hole = heap[0], heap[size - 1], 0
    while 2 * hole + 1 < size - 1:
        below = 2 * hole + 1
        if below + 1 < size - 1 and above(nodes, heap[below + 1], heap[below]):
            below += 1
        if not above(nodes, heap[below], moved):
            break
        heap[hole] = heap[below]
        hole = below
    heap[hole] = moved
    return first


@inner
def matters(search, key, node):
    """Whether a key is among the k + 1 largest so far; if so, it is kept."""
    limit, kept = search.largest.shape[0], search.numbers[KEPT]
    if kept == limit and key <= search.largest[0]:
        return False
    search.numbers[KEPT] = keep_best(
        search.largest, search.largest_nodes, kept, limit, key, np.int64(node)
    )
    return True


@inner
def write_child(problem, nodes, search, parent, code, mass, key):
    """A new node for one choice."""
    node = search.numbers[USED]
    search.numbers[USED] = node + 1
    nodes.links[node, PARENT], nodes.links[node, CHOICE] = parent, code
    nodes.masses[node], nodes.keys[node] = mass, key
    enter(problem, nodes, node)
    return node


@inner
def open_node(problem, nodes, search, node):
    """Makes those children of a node that matter; the one with its key, or NOTHING without any."""
    logits, codes = search.logits, search.codes
    count = choices(problem, nodes, node, logits, codes)
    top, total = -np.inf, 0.0
    for x in range(count):
        top = max(top, logits[x])
    if top == -np.inf:
        return np.int64(NOTHING)
    for x in range(count):
        total += math.exp(logits[x] - top)
    random, target = next_uniform(search.random[0])
    target *= total
    heir, sums = 0, 0.0
    for x in range(count):
        share = math.exp(logits[x] - top)
        if share > 0.0 and sums <= target:
            heir = x  # the last one whose predecessors do not reach the target
        sums += share
    key, own = nodes.keys[node], np.int64(NOTHING)
    shift = nodes.masses[node] - top - math.log(total)
    for x in range(count):
        if logits[x] == -np.inf:
            continue
        mass = logits[x] + shift
        if x == heir:
            own = write_child(problem, nodes, search, node, codes[x], mass, key)
            continue
        random, variable = exponential(random)
        lower = lowered(key, mass, variable)
        if matters(search, lower, search.numbers[USED]):
            child = write_child(problem, nodes, search, node, codes[x], mass, lower)
            push(nodes, search.numbers[WAITING], child)
            search.numbers[WAITING] += 1
    search.random[0] = random
    return own


@inner
def begin(problem, nodes, search, seed, number):
    """Writes the root, whose key is a Gumbel variable of location 0."""
    random, variable = exponential(stream(seed, number))
    search.random[0] = random
    # Where all 53 bits of a uniform number are 0, its key would be infinite: the next largest.
    nodes.keys[0] = -math.log(max(variable, UNIT_53))
    nodes.masses[0] = 0.0
    nodes.links[0, PARENT], nodes.links[0, CHOICE] = NOTHING, NOTHING
    enter(problem, nodes, np.int64(0))
    search.largest[0], search.largest_nodes[0] = nodes.keys[0], 0
    for x in range(NUMBERS):
        search.numbers[x] = 0
    search.numbers[USED] = search.numbers[KEPT] = 1


@inner
def search_leaves(problem, nodes, search, seed, number):
    """Goes on until k leaves are found, or all: whether it is done, or needs more room for nodes.

    Compiled code of a family calls it, so that it is cached with the operations of the family.
    """
    numbers, room = search.numbers, nodes.masses.shape[0]
    if numbers[USED] == 0:
        begin(problem, nodes, search, seed, number)
    while True:
        if numbers[CURRENT] == NOTHING:
            if numbers[FOUND] == search.found.shape[0] or numbers[WAITING] == 0:
                return True
            numbers[CURRENT] = pop(nodes, numbers[WAITING])
            numbers[WAITING] -= 1
        node = numbers[CURRENT]
        if nodes.links[node, NEXT] == NOTHING:
            search.found[numbers[FOUND]] = node
            numbers[FOUND] += 1
            numbers[CURRENT] = NOTHING
        elif numbers[USED] + search.logits.shape[0] > room:
            return False
        else:
            numbers[CURRENT] = open_node(problem, nodes, search, node)


@compiled
def write_choices(nodes, found, offsets, out):
    """Fills offsets [m+1] with the numbers of choices of the leaves, or `out` with their choices.

    The latter if `out` has any room: `offsets` are those to write to then.
    """
    for rank in range(found.shape[0]):
        node, count = found[rank], 0
        place = offsets[rank + 1]
        while node > 0:
            count += 1
            if out.shape[0] > 0:
                out[place - count] = nodes.links[node, CHOICE]
            node = nodes.links[node, PARENT]
        if out.shape[0] == 0:
            offsets[rank + 1] = offsets[rank] + count
