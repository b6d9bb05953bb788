"""`kbest`: the k best trees of each sentence."""

from __future__ import annotations

import numpy as np

from inout._core.errors import ArgumentError
from inout.kernels.math.cpu.heap import ITEM_COLUMNS, MOST_NODES, longer_nodes, new_nodes
from inout.kernels.sparse import trees
from inout.kernels.sparse.cpu import kbest as kernel
from inout.kernels.sparse.cpu.inside import filled_chart
from inout.kernels.sparse.cpu.kbest import Scratch, Tables
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.cpu.viterbi import Search


def kbest(passes: ParsingPasses, k: int) -> list[trees.Trees]:
    """For each sentence its k best trees, or all if there are fewer, in order.

    Duplicate rules give different trees; no tree is repeated. Ties are broken as by `best_trees`,
    then by the ranks of the subtrees, so that the k best are the first of the k+1 best. Cost: that
    of `best_trees`, then for each tree the edges of symbols over spans whose second best tree is
    needed for the first time. Huang & Chiang (IWPT 2005), algorithm 3.

    >>> from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
    >>> rules = RuleArrays.compile(1, 0, np.array([[0, 0, 0]]), np.empty((0, 2), int))
    >>> words = SentenceArrays(np.array([0, 3]), np.arange(4), np.zeros(3, np.int32))
    >>> passes = ParsingPasses(rules, words, np.zeros(1), np.empty(0), np.zeros(3))
    >>> [x[:, :2].tolist() for x in kbest(passes, 5)[0].nodes]
    [[[0, 3], [0, 1], [1, 3], [1, 2], [2, 3]], [[0, 3], [0, 2], [0, 1], [1, 2], [2, 3]]]
    """
    if k < 0:
        raise ArgumentError("k", f"must be 0 or more. Got {k}")
    rules, starts, lengths = passes.rules, passes.sentences.starts, passes.sentences.lengths
    results = [trees.Trees(np.empty(0), []) for _ in lengths]
    problem, most = passes.best_problem, trees.most_edges(passes)

    def search(b: int) -> None:
        n, start = int(lengths[b]), int(starts[b])
        chart, _ = filled_chart(problem, start, n)
        found = Search(problem, rules.ways, start, chart)
        items = trees.new_items(n, rules.num_symbols, ITEM_COLUMNS)
        results[b] = _trees(found, items, n, k, min(k, most * n))

    if k:
        trees.for_each_sentence(passes, search)
    return results


def _trees(search: Search, items: trees.Array, n: int, k: int, room: int) -> trees.Trees:
    """The k best trees of n words; of an item at most `room` edges are of use."""
    scratch = Scratch(np.empty((2 * n + 4, 5), np.int64), np.empty(room), np.empty(room, np.int64))
    tables = Tables(items, new_nodes(8 * n), np.ones(1, np.int64))
    progress = np.zeros(2, np.int64)
    while not kernel.find_trees(search, k, tables, scratch, progress):
        tables = _longer(tables, room + 5)
    found = int(progress[0])
    scores, offsets = np.empty(found), np.zeros(found + 1, np.int64)
    nodes = np.empty((found * (2 * n - 1), 5), np.int64)
    count = 0
    while count < found:
        count = kernel.write_trees(search, tables, scratch.stack, scores, offsets, nodes, count)
        if count < found:
            tables = _longer(tables, 4 * n)
    return trees.cut(scores, offsets, nodes)


def _longer(tables: Tables, more: int) -> Tables:
    needed = int(tables.used[0]) + more
    if needed > MOST_NODES:
        raise ArgumentError("k", f"is too large: more than {MOST_NODES} partial trees are needed")
    nodes = longer_nodes(tables.nodes, min(2 * needed, int(MOST_NODES)))
    return tables._replace(nodes=nodes)
