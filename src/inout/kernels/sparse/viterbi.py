"""`best_trees`: the best tree of each sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from inout.kernels.sparse.cpu import viterbi
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.trees import BestTrees, ways_of
from inout.kernels.threads import over_batch

# numba's dispatchers have no types for starred arguments.
_viterbi: Callable[..., Any] = viterbi.viterbi


def best_trees(passes: ParsingPasses) -> BestTrees:
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
    rules, b = passes.rules, len(passes.sentences)
    offsets = np.append(0, np.maximum(2 * passes.sentences.lengths - 1, 0).cumsum())
    nodes = np.zeros((int(offsets[-1]), 5), np.int64)
    scores, sizes = np.full(b, -np.inf), np.zeros(b, np.int64)
    grammar, *given = passes.log_arguments()

    def part(lo: int, hi: int) -> None:
        for group in passes.groups[lo:hi]:
            _viterbi(
                grammar, ways_of(rules), *given, group, rules.root, rules.num_unary_symbols,
                rules.order, offsets, scores, sizes, nodes,
            )  # fmt: skip

    over_batch(part, len(passes.groups), passes.work)
    return BestTrees(scores, [nodes[x : x + m] for x, m in zip(offsets, sizes, strict=False)])
