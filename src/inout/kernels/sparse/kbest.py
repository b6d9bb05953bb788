"""`kbest`: the k best trees of each sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inout._core.errors import ArgumentError
from inout.kernels.sparse.cpu import kbest as compiled
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.trees import (
    SentenceTrees,
    cut,
    for_each_sentence,
    most_edges,
    new_items,
    no_trees,
    ways_of,
)

_kbest: Callable[..., Any] = compiled.kbest


def kbest(passes: ParsingPasses, k: int) -> list[SentenceTrees]:
    """For each sentence its k best trees, or all if there are fewer, in order.

    The same rule given twice makes different trees; no tree is there twice. Ties are broken as by
    `best_trees`, then by the ranks of the subtrees, so that the k best are the first of the k+1
    best. Cost: that of `best_trees`, then for each tree the edges of those symbols over spans whose
    second best tree nobody has asked for before. Huang & Chiang (IWPT 2005), algorithm 3.

    >>> import numpy as np
    >>> from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
    >>> rules = RuleArrays.compile(1, 0, np.array([[0, 0, 0]]), np.empty((0, 2), int))
    >>> words = SentenceArrays(np.array([0, 3]), np.arange(4), np.zeros(3, np.int32))
    >>> passes = ParsingPasses(rules, words, np.zeros(1), np.empty(0), np.zeros(3))
    >>> [x[:, :2].tolist() for x in kbest(passes, 5)[0].nodes]
    [[[0, 3], [0, 1], [1, 3], [1, 2], [2, 3]], [[0, 3], [0, 2], [0, 1], [1, 2], [2, 3]]]
    """
    if k < 0:
        raise ArgumentError(f"k must be 0 or more. Got {k}")
    rules, lengths = passes.rules, passes.sentences.lengths
    results = [no_trees() for _ in lengths]
    grammar, *weights, starts = passes.log_arguments()

    def search(b: int) -> None:
        n = int(lengths[b])
        found = _kbest(
            grammar, ways_of(rules), *weights, int(starts[b]), n, rules.root,
            rules.num_unary_symbols, rules.order, new_items(n, rules.num_symbols, 4), k,
            most_edges(passes) * n,
        )  # fmt: skip
        results[b] = cut(*found)

    if k:
        for_each_sentence(passes, search)
    return results
