"""Trees as arrays of nodes, and what all decoders of a batch of sentences have in common."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout.kernels.sparse.cpu.inside import filled_chart
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.cpu.viterbi import Search, viterbi
from inout.kernels.threads import over_batch

Array = NDArray[Any]


class Trees(NamedTuple):
    """Some trees of one sentence, or one of each: scores, -inf without a tree, and nodes of each.

    nodes[x] [m 5], parents first, left before right: start, end (exclusive), symbol above the unary
    rule, number of the unary rule or -1, number of the binary rule or, for a leaf, of its entry.
    m is 2 n - 1 for n words, less with arcs, 0 without a tree; `leaves` tells which are leaves.
    """

    scores: Array
    nodes: list[Array]


def leaves(nodes: Array) -> Array:
    """Which nodes [m 5] are entries [m].

    A node with children is followed by its left one, which starts at the same place.

    >>> leaves(np.array([[0, 3, 0, -1, 7], [0, 2, 1, -1, 5], [2, 3, 1, -1, 4]]))
    array([False,  True,  True])
    """
    found = np.ones(len(nodes), np.bool_)
    found[:-1] = nodes[1:, 0] != nodes[:-1, 0]
    return found


def most_edges(passes: ParsingPasses) -> int:
    """A bound on the entries and rules, or unary rules, of a symbol over a span."""
    words = passes.sentences
    entries = sum(int(np.diff(x).max(initial=0)) for x in (words.offsets, words.arc_offsets))
    widest = int(np.diff(passes.rules.ways.head_offsets).max(initial=0))
    return max(entries + widest, 1 + len(passes.rules.grammar.unary_head))


def cut(scores: Array, offsets: Array, nodes: Array) -> Trees:
    """Trees out of one array of all their nodes."""
    return Trees(scores, [nodes[x:y] for x, y in pairwise(offsets)])


def new_items(n: int, num_symbols: int, columns: int) -> Array:
    """Zeros for each symbol over each span, above and below the unary rules.

    Memory is taken from the system only where they are touched.
    """
    return np.zeros((n * (n + 1) * num_symbols, columns), np.int32)


def for_each_sentence(passes: ParsingPasses, function: Callable[[int], None]) -> None:
    """Calls function(b) for each sentence that has words, in threads."""
    lengths = passes.sentences.lengths

    def part(lo: int, hi: int) -> None:
        for group in passes.groups[lo:hi]:
            for b in group:
                if lengths[b] > 0:
                    function(int(b))

    over_batch(part, len(passes.groups), passes.work)


def best_trees(passes: ParsingPasses) -> Trees:
    """The best tree of each sentence and its log-weight.

    Ties go to no unary rule, then to entries, then to the first rule, then to the first split.

    >>> from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
    >>> rules = RuleArrays.compile(2, 0, np.array([[0, 1, 1], [0, 0, 1]]), np.empty((0, 2), int))
    >>> words = SentenceArrays(np.array([0, 3]), np.arange(4), np.array([1, 1, 1], np.int32))
    >>> logs = np.log([0.75, 0.25])
    >>> best = best_trees(ParsingPasses(rules, words, logs, np.empty(0), np.zeros(3)))
    >>> best.nodes[0][:, [0, 1, 4]].tolist()
    [[0, 3, 1], [0, 2, 0], [0, 1, 0], [1, 2, 1], [2, 3, 2]]
    """
    lengths, starts, ways = passes.sentences.lengths, passes.sentences.starts, passes.rules.ways
    scores, problem = np.full(len(lengths), -np.inf), passes.best_problem
    nodes: list[Array] = [np.empty((0, 5), np.int64) for _ in lengths]

    def find(b: int) -> None:
        n, start = int(lengths[b]), int(starts[b])
        own, stack = np.empty((2 * n - 1, 5), np.int64), np.empty((n + 1, 3), np.int64)
        chart, _ = filled_chart(problem, start, n)
        scores[b], size = viterbi(Search(problem, ways, start, chart), stack, own)
        nodes[b] = own[:size]

    for_each_sentence(passes, find)
    return Trees(scores, nodes)
