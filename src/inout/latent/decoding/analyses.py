"""`LatentAnalyses`: the trees of one sentence under a latent-variable grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from inout._core.checks import at_least
from inout._core.lazy import lazy_property
from inout._core.randomness import checked_generator, random_seed
from inout.grammars.tree import Tree, nltk_tree
from inout.kernels.latent.decode import sample_items
from inout.kernels.latent.op import BlockPasses
from inout.latent.decoding.best_trees import ConstituentTable, Method, best_items
from inout.latent.decoding.pruning import CoarseGrammar
from inout.latent.graphs import Chart, block_rules
from inout.latent.model import LPCFG

Places = dict[tuple[str, int, int], float]
"""A number for nonterminal a over words i to j-1."""


@dataclass(frozen=True, eq=False)
class LatentAnalyses:
    """All trees of a sentence that are in its chart, summed over their latent values."""

    words: tuple[str, ...]  # the words as they were given
    known: Sequence[str]  # the words with classes for those that the grammar does not have
    model: LPCFG
    chart: Chart
    table: ConstituentTable
    coarse: CoarseGrammar

    @lazy_property
    def passes(self) -> BlockPasses:
        return BlockPasses(block_rules(self.model.layout), self.chart.graph, self.model.parameters)

    @property
    def log_partition(self) -> float:
        """log |p(x)|; -inf where p(x) is 0."""
        return float(self.passes.log_partitions[0])

    @property
    def sign(self) -> int:
        """The sign of p(x): that of an estimate may be -1, or 0."""
        return int(np.sign(self.passes.partitions[0][0]))

    @property
    def posteriors(self) -> Places:
        """μ(a, i, j) / p(x): how many constituents a over words i to j-1 to expect."""
        return self._places(self.passes.expected_items)

    @property
    def marginals(self) -> Places:
        """μ(a, i, j), the sum of p(τ) over the trees of the sentence with a over words i to j-1.

        May underflow to 0; `posteriors` and `log_partition` do not.
        """
        mantissas, powers = self.passes.partitions
        return self._places(_ldexp(self.passes.expected_items * mantissas[0], powers[:1]))

    def _places(self, values: NDArray[np.float64]) -> Places:
        names, symbols = self.model.skeleton.nonterminals, self.chart.graph.symbols.tolist()
        items = zip(symbols, self.chart.spans.tolist(), values.tolist(), strict=True)
        return {(names[a], i, j): value for a, (i, j), value in items}

    def lost_mass(self) -> float:
        """The share of the sentence's probability under the skeletal rules that pruning lost."""
        return self.coarse.lost_mass(self.known, self.chart)

    def best_tree(self, method: Method = "max_rule") -> Tree | None:
        """The best tree in the model's labels; None if the sentence has no mass.

        See `best_items` for the methods goodman, min_risk and max_rule. Posteriors are
        ratios: a negative p(x) does them no harm.
        """
        if self.sign == 0:
            return None
        items = best_items(self.passes, self.chart, self.table, method)
        return None if items is None else self._tree(items.tolist())

    def sample(self, n: int, generator: torch.Generator | None = None) -> list[Tree]:
        """n independent samples, in the model's labels, of the trees given the sentence.

        `generator` makes them reproducible; by default torch's own is used. Trees are drawn from
        the top down, each node with its latent value, which is discarded; the model must have no
        negative parameters. None without a tree. Sample x does not depend on the number of
        samples. For the cost see `sample_items`.
        """
        n = at_least("n", n, 0)
        checked_generator(generator)
        self.model.refuse_negative("to draw trees from it; `best_tree` works with them")
        if self.sign == 0:
            return []
        seed = random_seed(generator, bits=62)
        found = sample_items(self.passes, self.chart.num_words, n, seed)
        return [self._tree(row) for row in found.tolist()]

    def _tree(self, items: list[int]) -> Tree:
        """The tree of items in preorder."""
        names, spans = self.model.skeleton.nonterminals, self.chart.spans
        make, waiting = nltk_tree(), list[Tree]()
        for item in reversed(items):
            label = names[self.chart.graph.symbols[item]]
            i, j = spans[item]
            if j == i + 1:
                waiting.append(make(label, [self.words[i]]))
            else:
                waiting.append(make(label, [waiting.pop(), waiting.pop()]))
        return waiting.pop()


def _ldexp(values: NDArray[np.float64], exponents: NDArray[np.integer]) -> NDArray[np.float64]:
    """value · 2^exponent for any exponents; what is too large is infinite.

    >>> _ldexp(np.array([0.5, 1.0, 0.0]), np.array([1, 10**9, 10**9])).tolist()
    [1.0, inf, 0.0]
    """
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.ldexp(values, np.clip(exponents, -3000, 3000)))
