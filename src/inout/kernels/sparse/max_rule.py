"""`max_rule`: the tree of each sentence with the likeliest anchored rules."""

from __future__ import annotations

import numpy as np

from inout.kernels.sparse.cpu import max_rule as kernel
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.trees import Array, Trees, for_each_sentence, leaves


def max_rule(passes: ParsingPasses, total: bool = False) -> Trees:
    """The tree that maximises the product of the posteriors of its anchored rules.

    Anchored rules are binary rules with their span and split, unary rules with their span, and
    entries. With `total` their sum is maximised instead: the expected number of the tree's anchored
    rules that are correct. Scores are logarithms of the product (at most 0), or the sum. Ties as
    in `best_trees`. Petrov & Klein, "Improved inference for unlexicalized parsing" (NAACL 2007),
    section 4: max-rule-product and max-rule-sum.

    Cost: expected counts, another inside pass and one of maxima, whose sum of exponentials for each
    rule and split makes `total` several times slower; 7 O(symbols n²) numbers of 8 bytes.

    >>> from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
    >>> rules = RuleArrays.compile(1, 0, np.array([[0, 0, 0]]), np.empty((0, 2), int))
    >>> words = SentenceArrays(np.array([0, 3]), np.arange(4), np.zeros(3, np.int32))
    >>> passes = ParsingPasses(rules, words, np.zeros(1), np.empty(0), np.zeros(3))
    >>> float(np.exp(max_rule(passes).scores[0])), float(max_rule(passes, total=True).scores[0])
    (0.25, 4.0)
    """
    lengths = passes.sentences.lengths
    scores = np.full(len(lengths), -np.inf)
    nodes: list[Array] = [np.empty((0, 5), np.int64) for _ in lengths]

    def find(b: int) -> None:
        only, n = passes.only(b), int(lengths[b])
        own, found = np.empty((2 * n - 1, 5), np.int64), only.posteriors(0)
        scores[b], size = kernel.max_rule(
            only.scaled_problem(), only.log_problem, only.rules.ways, n, found, not total, own
        )
        # The entries of the one sentence are numbered from 0 on.
        entries = passes.sentences.select(np.array([b]))[1]
        nodes[b] = own[:size]
        leaf = leaves(nodes[b])
        nodes[b][leaf, 4] = entries[nodes[b][leaf, 4]]

    for_each_sentence(passes, find)
    return Trees(scores, nodes)
