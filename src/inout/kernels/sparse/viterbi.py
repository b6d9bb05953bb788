"""`best_trees`: the best tree of each sentence."""

from __future__ import annotations

import numpy as np

from inout.kernels.sparse.cpu.inside import filled_chart
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.cpu.viterbi import Search, viterbi
from inout.kernels.sparse.trees import Array, Trees, for_each_sentence


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
