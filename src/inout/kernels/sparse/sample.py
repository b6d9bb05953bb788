"""`sample`: random trees of each sentence."""

from __future__ import annotations

import numpy as np

from inout._core.errors import ArgumentError
from inout.kernels.sparse import trees
from inout.kernels.sparse.cpu import sample as kernel
from inout.kernels.sparse.cpu.passes import ParsingPasses


def sample(passes: ParsingPasses, count: int, seed: int) -> list[trees.Trees]:
    """`count` independent samples of the trees of each sentence.

    None for a sentence without a tree. The scores are log-weights, not probabilities. Sample x of
    sentence b depends on the seed (0 to 2^64 - 1), b and x, not on the number of samples or
    threads. Cost: an inside pass, then for each sample the rules of its symbols where those have
    not been met before, and n log(rules of a symbol) + n² otherwise.

    >>> from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
    >>> rules = RuleArrays.compile(1, 0, np.array([[0, 0, 0]]), np.empty((0, 2), int))
    >>> words = SentenceArrays(np.array([0, 3]), np.arange(4), np.zeros(3, np.int32))
    >>> passes = ParsingPasses(rules, words, np.zeros(1), np.empty(0), np.zeros(3))
    >>> trees = sample(passes, 1000, seed=1)[0].nodes
    >>> 450 < sum(int(x[1, 1] == 1) for x in trees) < 550
    True
    """
    if count < 0:
        raise ArgumentError("count", f"must be 0 or more. Got {count}")
    if not 0 <= seed < 2**64:
        raise ArgumentError("seed", f"must be in 0 to 2^64 - 1. Got {seed}")
    rules, starts, lengths = passes.rules, passes.sentences.starts, passes.sentences.lengths
    results = [trees.Trees(np.empty(0), []) for _ in lengths]
    scaled, logs, most = passes.scaled_problem(), passes.log_problem, trees.most_edges(passes)

    def draw(b: int) -> None:
        n = int(lengths[b])
        scores, offsets = np.empty(count), np.zeros(count + 1, np.int64)
        nodes = np.empty((count * (2 * n - 1), 5), np.int64)
        items = trees.new_items(n, rules.num_symbols, 1)
        found = kernel.sample(
            scaled, logs, rules.ways, int(starts[b]), n, items, most, np.uint64(seed), b, scores,
            offsets, nodes,
        )  # fmt: skip
        if found:
            results[b] = trees.cut(scores, offsets, nodes)

    if count:
        trees.for_each_sentence(passes, draw)
    return results
