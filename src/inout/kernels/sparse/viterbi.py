"""`best_trees`: the best tree of each sentence."""

from __future__ import annotations

import numpy as np

from inout.kernels.sparse.cpu import viterbi
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.trees import Trees
from inout.kernels.threads import over_batch


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
    sentences, b = passes.sentences, len(passes.sentences)
    offsets = np.append(0, np.maximum(2 * sentences.lengths - 1, 0).cumsum())
    nodes = np.zeros((int(offsets[-1]), 5), np.int64)
    scores, sizes = np.full(b, -np.inf), np.zeros(b, np.int64)
    problem, ways = passes.best_problem, passes.rules.ways

    def part(lo: int, hi: int) -> None:
        for group in passes.groups[lo:hi]:
            viterbi.viterbi(problem, ways, sentences.starts, group, offsets, scores, sizes, nodes)

    over_batch(part, len(passes.groups), passes.work)
    return Trees(scores, [nodes[x : x + m] for x, m in zip(offsets, sizes, strict=False)])
