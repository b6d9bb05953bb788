"""`CoarseGrammar`: pruning by the rules without latent values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from inout.grammars.parser.parser import Parser
from inout.kernels.latent.op import BlockPasses
from inout.latent.graphs import Chart, block_rules
from inout.latent.model import LPCFG
from inout.latent.refined import refined_grammar


@dataclass(frozen=True, eq=False)
class CoarseGrammar:
    """The skeletal rules with one probability each, for a first pass over a sentence."""

    model: LPCFG  # one latent value each

    @cached_property
    def parser(self) -> Parser:
        """The parser of the rules as an ordinary grammar."""
        start = "TOP"
        while start in self.model.skeleton.nonterminal_numbers:
            start += "'"
        return Parser(refined_grammar(self.model, start))

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of symbols among the labels of the parser's marginals, and in the skeleton."""
        numbers = self.model.skeleton.nonterminal_numbers
        labels = self.parser.marginals([]).labels
        shared = [(x, numbers[name]) for x, name in enumerate(labels) if name in numbers]
        pairs = np.array(shared, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def expected(self, words: Sequence[str]) -> NDArray[np.float64] | None:
        """How many constituents a over words i to j-1 to expect [n n+1 a]; None without a tree."""
        analyses = self.parser.given(words)
        if not words or analyses.log_z == -np.inf:
            return None
        counts = analyses.marginals().constituent_counts
        sources, targets = self._places
        found = np.zeros((*counts.shape[:2], len(self.model.skeleton.nonterminals)))
        found[:, :, targets] = counts[:, :, sources]
        return found

    def lost_mass(self, words: Sequence[str], chart: Chart) -> float:
        """The share of the coarse probability of trees that are not in a chart of the sentence."""
        whole = float(self.parser.log_partition(words))
        if whole == -np.inf:
            return 0.0
        layout = self.model.layout
        graph = replace(
            chart.graph,
            leaf_offsets=layout.lexical_offsets[chart.leaf_rules],
            root_offsets=layout.root_offsets[chart.graph.symbols[chart.graph.roots]],
        )
        kept = BlockPasses(block_rules(layout), graph, self.model.parameters).log_partitions[0]
        return max(0.0, -float(np.expm1(kept - whole)))
