"""`sample_items`: random trees of a block graph."""

from __future__ import annotations

import numpy as np

from inout.kernels.latent.arrays import LogBlocks, Numbers, Vector
from inout.kernels.latent.cpu import decode
from inout.kernels.latent.op import BlockPasses
from inout.kernels.limits import LATENT_MOST_KEPT


def sample_items(passes: BlockPasses, num_words: int, count: int, seed: int) -> Numbers:
    """The items of `count` independent trees of one sentence, each in preorder: [count 2w-1].

    The graph must be that of a sentence with a tree, its items numbered from the leaves up, and no
    parameter negative. Each tree is as likely as it is given the sentence, whatever the latent
    values: these are drawn too, and forgotten. Sample x depends on the seed (0 to 2^64 - 1) and x
    alone. Cost: m² for each edge of each (item, value) when it is first met; then m² for each node
    of each sample.
    """
    graph, rules = passes.graph, passes.rules
    starts, logs = passes.narrow.starts, _log_inside(passes)
    parameters = _logs(passes.parameters)
    sizes = np.diff(starts)[graph.roots]
    values = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    items = np.repeat(graph.roots.astype(np.int64), sizes)
    shares = parameters[np.repeat(graph.root_offsets, sizes) + values]
    shares = shares + logs[starts[items] + values]
    first_groups = np.searchsorted(graph.heads, np.arange(len(graph.symbols) + 1))
    most = int(np.diff(graph.ends[first_groups]).max(initial=0))
    found = np.empty((count, 2 * num_words - 1), np.int64)
    decode.sample(
        LogBlocks(rules.rules, rules.sizes, rules.offsets, parameters),
        graph.arrays, first_groups, starts, logs, np.stack([items, values], axis=1),
        np.cumsum(np.exp(shares - shares.max())), (most, LATENT_MOST_KEPT), np.uint64(seed), found,
    )  # fmt: skip
    return found


def _log_inside(passes: BlockPasses) -> Vector:
    """The logs of all entries of the inside vectors, one item after the other."""
    starts, values, powers = (passes.wide or passes.narrow).inside.values
    if passes.wide is None:
        powers = np.repeat(powers, np.diff(starts))
    return np.asarray(_logs(values) + powers * np.log(2.0))


def _logs(values: Vector) -> Vector:
    return np.log(values, out=np.full(len(values), -np.inf), where=values > 0)
