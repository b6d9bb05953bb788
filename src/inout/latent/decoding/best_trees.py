"""The best tree of a sentence by the posteriors of its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import expect_one_of
from inout.grammars.treebank import original_label
from inout.kernels.latent.cpu import decode
from inout.kernels.latent.op import BlockPasses
from inout.latent.graphs import Chart
from inout.latent.layout import Numbers, Vector
from inout.latent.treebank import treebank_label

Constituents = Callable[[str, bool], Sequence[str]]
"""The labels of constituents that a nonterminal stands for, given whether it stands above words."""
Method = Literal["goodman", "min_risk", "max_rule"]


def treebank_constituents(name: str, above_word: bool) -> Sequence[str]:
    """The constituents that `treebank_tree` makes of a symbol; tags and new nodes are none.

    >>> treebank_constituents("S+VP", False), treebank_constituents("NP+NN", True)
    (['S', 'VP'], ['NP'])
    >>> treebank_constituents("NP|<>", False), treebank_constituents("NN", True)
    ([], [])
    """
    label = original_label(name)
    if label is None:
        return []
    parts = [treebank_label(part) for part in label.split("+")]
    return parts[:-1] if above_word else parts


class ConstituentTable:
    """The constituents of each symbol in numbers, for sums over the items of a chart."""

    def __init__(self, nonterminals: Sequence[str], label: Constituents) -> None:
        numbers: dict[tuple[str, int], int] = {}
        # Symbol a has row 2a above others and row 2a + 1 above words: some stand above both.
        rows = [
            [numbers.setdefault(part, len(numbers)) for part in _counted(label(name, above_word))]
            for name in nonterminals
            for above_word in (False, True)
        ]
        self.count = len(numbers)
        self._sizes = np.array([len(row) for row in rows], np.int64)
        self._offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._sizes)])
        self._labels = np.array([part for row in rows for part in row], np.int64)

    def gains(
        self,
        symbols: NDArray[np.int32],
        spans: NDArray[np.int32],
        num_words: int,
        expected: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """For each item the sum of (posterior - 1/2) over its constituents.

        A constituent over a span is as likely as all symbols that hold it are together.
        """
        # In trees without unary rules what stands over one word stands above it.
        kinds = 2 * symbols.astype(np.int64) + (spans[:, 1] - spans[:, 0] == 1)
        sizes = self._sizes[kinds]
        owners = np.repeat(np.arange(len(symbols)), sizes)
        ends = np.cumsum(sizes)
        inner = np.arange(len(owners)) - np.repeat(ends - sizes, sizes)
        labels = self._labels[np.repeat(self._offsets[kinds], sizes) + inner]
        cells = spans[:, 0].astype(np.int64) * (num_words + 1) + spans[:, 1]
        keys = cells[owners] * max(self.count, 1) + labels
        places, where = np.unique(keys, return_inverse=True)
        totals = np.bincount(where, weights=expected[owners], minlength=len(places))
        gains = np.bincount(owners, weights=totals[where] - 0.5, minlength=len(symbols))
        return np.asarray(gains, np.float64)


def _counted(parts: Sequence[str]) -> list[tuple[str, int]]:
    """The parts, each with how many like it came before: the second NP of a chain is another."""
    return [(part, list(parts[:place]).count(part)) for place, part in enumerate(parts)]


def best_items(
    passes: BlockPasses, chart: Chart, table: ConstituentTable, method: Method
) -> Numbers | None:
    """The items of the best tree in preorder, None if there is none.

    goodman: the largest Σ of posteriors μ(a, i, j) / p(x) over its nodes (Goodman 1996). min_risk:
    the largest Σ (posterior - 1/2) over the treebank's constituents: the fewest expected wrong and
    missing constituents; other nodes, such as tags, are chosen as by goodman. max_rule: the largest
    product of the posteriors of its rules (Petrov & Klein 2007), which must all be positive.
    """
    expect_one_of("method", method, get_args(Method))
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
