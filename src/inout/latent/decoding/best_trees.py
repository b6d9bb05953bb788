"""The best tree of a sentence by the posteriors of its parts."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import expect_one_of
from inout.kernels.latent.cpu import decode
from inout.kernels.latent.op import BlockPasses
from inout.latent.decoding.labels import ConstituentTable
from inout.latent.graphs import Chart

Vector = NDArray[np.float64]
Numbers = NDArray[np.int64]
Method = Literal["goodman", "min_risk", "max_rule"]


def check_method(method: str) -> None:
    """Raise ArgumentError unless there is such a method."""
    expect_one_of("method", method, get_args(Method))


def best_items(
    passes: BlockPasses, chart: Chart, table: ConstituentTable, method: Method
) -> Numbers | None:
    """The items of the best tree in preorder, None if there is none.

    goodman: the largest Σ of posteriors μ(a, i, j) / p(x) over its nodes (Goodman 1996). min_risk:
    the largest Σ (posterior - 1/2) over the treebank's constituents: the fewest expected wrong and
    missing constituents; other nodes, such as tags, are chosen as by goodman. max_rule: the largest
    product of the posteriors of its rules (Petrov & Klein 2007), which must all be positive.
    """
    check_method(method)
    graph, items = chart.graph, passes.expected_items
    edges = ties = np.zeros(0)
    if method == "goodman":
        gains = items
    elif method == "min_risk":
        gains = table.gains(graph.symbols, chart.spans, chart.num_words, items)
        ties = items
    else:
        gains = np.zeros(len(items))
        gains[graph.leaves] = _logs(items[graph.leaves])
        edges = _logs(passes.expected_edges)
    best = np.full(len(items), -np.inf)
    best[graph.leaves] = gains[graph.leaves]
    second = np.zeros(len(items))
    if len(ties):
        second[graph.leaves] = ties[graph.leaves]
    choices = np.full((len(items), 2), -1, np.int64)
    decode.best_edges(graph.arrays, gains, edges, ties, best, second, choices)
    # The whole sentence may be a symbol that never is a root: only μ above 0 will do there.
    roots = graph.roots[items[graph.roots] > 0]
    if not len(roots) or best[roots].max() == -np.inf:
        return None
    found, groups = np.empty((2, 2 * chart.num_words - 1), np.int64)
    top = roots[np.lexsort((second[roots], best[roots]))[-1]]
    decode.walk(graph.arrays, choices, top, found, groups)
    return found


def _logs(values: Vector) -> Vector:
    return np.log(values, out=np.full(len(values), -np.inf), where=values > 0)
