"""`kbest`: the k best trees of each sentence."""

from __future__ import annotations

from inout._core.errors import ArgumentError
from inout.kernels.sparse.cpu import kbest as kernel
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.trees import (
    Trees,
    cut,
    for_each_sentence,
    most_edges,
    new_items,
    no_trees,
)


def kbest(passes: ParsingPasses, k: int) -> list[Trees]:
    """For each sentence its k best trees, or all if there are fewer, in order.

    Duplicate rules give different trees; no tree is repeated. Ties are broken as by `best_trees`,
    then by the ranks of the subtrees, so that the k best are the first of the k+1 best. Cost: that
    of `best_trees`, then for each tree the edges of symbols over spans whose second best tree is
    needed for the first time. Huang & Chiang (IWPT 2005), algorithm 3.

    >>> import numpy as np
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
    results = [no_trees() for _ in lengths]
    problem, most = passes.best_problem, most_edges(passes)

    def search(b: int) -> None:
        n = int(lengths[b])
        items = new_items(n, rules.num_symbols, 4)
        results[b] = cut(*kernel.kbest(problem, rules.ways, int(starts[b]), n, items, k, most * n))

    if k:
        for_each_sentence(passes, search)
    return results
