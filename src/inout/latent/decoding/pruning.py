"""`CoarseGrammar`: pruning by the rules without latent values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from inout.grammars.expectations import expectations
from inout.grammars.grammar import Grammar
from inout.grammars.parser.parser import Parser
from inout.grammars.table import Rule
from inout.kernels.latent.op import BlockPasses
from inout.latent.graphs import Chart, block_rules
from inout.latent.model import LPCFG
from inout.latent.refined import refined_grammar
from inout.latent.treebank import JOINT


@dataclass(frozen=True, eq=False)
class CoarseGrammar:
    """The skeletal rules with one probability each, for a first pass over a sentence."""

    model: LPCFG  # one latent value each

    @cached_property
    def parser(self) -> Parser:
        """The parser of the rules as an ordinary grammar."""
        start = "TOP"
        known = {x for name in self.model.skeleton.nonterminals for x in name.split(JOINT)}
        while start in known or start in self.model.skeleton.nonterminal_numbers:
            start += "'"
        return Parser(refined_grammar(self.model, start))

    @cached_property
    def by_steps(self) -> Parser:
        """The parser of the same rules with every chain S+VP taken apart into its steps.

        It knows chains that no tree had as a whole, as a grammar that was read off the trees
        does. The probabilities are those of the skeletal rules, by their expected numbers.
        """
        grammar = self.parser.grammar
        table, logs = grammar.rules, grammar.numpy_log_weights
        counts = expectations(table, logs).rule_counts
        counts = counts if np.isfinite(counts).all() else np.exp(logs)
        steps: dict[Rule, float] = {}
        totals: dict[str, float] = {}
        for rule, weight in zip(table, counts.tolist(), strict=True):
            first = [x.split(JOINT)[0] if isinstance(x, str) else x for x in rule.rhs]
            heads = rule.lhs.split(JOINT)
            for head, side in zip(heads, [*((x,) for x in heads[1:]), tuple(first)], strict=True):
                step = Rule(head, side)
                steps[step] = steps.get(step, 0.0) + weight
                totals[head] = totals.get(head, 0.0) + weight
        shares = {step: weight / totals[step.lhs] for step, weight in steps.items() if weight > 0}
        return Parser(Grammar(grammar.start, list(shares), np.log(list(shares.values()))))

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
