"""`Problem`: one sentence under a weighted grammar, as the kernels see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inout._core.lazy import lazy_property
from inout.grammars.grammar import Grammar
from inout.grammars.parser.normal_form import FormWeights, NormalForm, Setting
from inout.grammars.parser.restoring import Leaf, anchored
from inout.grammars.parser.sentences import Compiled
from inout.grammars.transforms.base import Vector
from inout.kernels.sparse.cpu.passes import ParsingPasses


@dataclass(frozen=True, eq=False)
class Problem:
    """Weights of rules, shared or of each span, on their way to the kernels.

    `rule_scores` [n n r], added to the log-weight of rule r over words i..j (both inclusive),
    make each span a setting of its own; empty trees have the grammar's weights alone.
    """

    grammar: Grammar
    form: NormalForm
    shared: Setting
    compiled: Compiled
    rule_scores: Tensor | None = None
    beam: float = 0.0

    @property
    def n(self) -> int:
        """The number of words, or of steps of a lattice."""
        return int(self.compiled.arrays.lengths[0])

    @property
    def base(self) -> Tensor:
        """The grammar's log-weights where the kernels are, on the CPU, with their graph."""
        return self.grammar.log_weights.cpu()

    def original(self, base: Tensor) -> Tensor:
        """The log-weights of the rules [r], or over each span [cells r]."""
        if self.rule_scores is None:
            return base
        return base + self.rule_scores.reshape(self.n**2, -1)

    def weights(self, base: Tensor) -> FormWeights:
        """The weights of the form, given those of the grammar; differentiable."""
        return self.form.log_weights(
            self.original(base), None if self.rule_scores is None else base
        )

    def potentials(self, weights: FormWeights) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs of the kernels: binary rules, chains, entries."""
        return self.compiled.potentials(self.form, weights)

    def passes_of(self, weights: FormWeights, beam: float = 0.0) -> ParsingPasses:
        """The passes at these weights."""
        binary, chains, entries = (x.detach().numpy() for x in self.potentials(weights))
        arrays, sentences = self.form.arrays, self.compiled.arrays
        return ParsingPasses(arrays, sentences, binary, chains, entries, beam)

    @lazy_property
    def sums(self) -> FormWeights:
        """The weights of the form, outside any graph."""
        if self.rule_scores is None:
            return self.shared.sums
        return self.weights(self.base.detach())

    @lazy_property
    def passes(self) -> ParsingPasses:
        """The passes for sums."""
        return self.passes_of(self.sums, self.beam)

    @lazy_property
    def best(self) -> FormWeights:
        """The weights of the best pieces."""
        if self.rule_scores is None:
            return self.shared.best
        nothing = self.shared.best
        # Cells below the diagonal are no spans.
        settings = [
            self.setting(cell).best if cell // self.n <= cell % self.n else nothing
            for cell in range(self.n**2)
        ]
        rules = torch.stack([x.rules for x in settings])
        chains = torch.stack([x.chains for x in settings])
        barred = [x.barred_chains for x in settings if x.barred_chains is not None]
        return FormWeights(rules, chains, torch.stack(barred) if barred else None)

    @lazy_property
    def best_passes(self) -> ParsingPasses:
        """The passes for best trees."""
        return self.passes_of(self.best)

    def setting(self, cell: int) -> Setting:
        """The weights over a cell i n + j, for the way back."""
        barred = self.compiled.barred is not None and bool(self.compiled.barred[cell])
        if self.rule_scores is None:
            return self.shared.barred if barred else self.shared
        if cell not in self._settings:
            base = self.grammar.numpy_log_weights
            scores: Vector = self.rule_scores.detach().reshape(self.n**2, -1)[cell].numpy()
            found = self.form.setting(base + scores, base)
            self._settings[cell] = found.barred if barred else found
        return self._settings[cell]

    @lazy_property
    def _settings(self) -> dict[int, Setting]:
        return {}

    @property
    def is_uniform(self) -> bool:
        """Whether all spans have the same setting."""
        return self.rule_scores is None and self.compiled.barred is None

    def log_weight(self, rules: Sequence[int], words: Sequence[Leaf]) -> float:
        """The log-weight of a derivation, that of its words and its places included."""
        total = float(self.grammar.numpy_log_weights[list(rules)].sum())
        total += sum(leaf.log_weight for leaf in words)
        if self.rule_scores is not None:
            scores = self.rule_scores.detach()
            for rule, start, end in anchored(self.grammar.rules, rules, words):
                total += float(scores[start, end - 1, rule]) if end > start else 0.0
        return total
