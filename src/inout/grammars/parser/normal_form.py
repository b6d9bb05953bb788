"""`NormalForm`: a grammar compiled for the parsing kernels, once, from the rules alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout.grammars.parser.ways import Ways
from inout.grammars.table import RuleTable
from inout.grammars.transforms.base import Selection, Vector
from inout.grammars.transforms.binarisation import Binarisation
from inout.grammars.transforms.closure import Chains, UnaryClosure
from inout.grammars.transforms.null_removal import NullRemoval
from inout.grammars.transforms.pieces import Pieces
from inout.kernels.sparse.arrays import RuleArrays

Integers = NDArray[np.int64]


class FormWeights(NamedTuple):
    """Log-weights of the rules of the form [*c k] and of its chains of unary rules [*c u].

    `barred_chains` are those over spans where no constituent may be, None if no chain differs.
    """

    rules: Tensor
    chains: Tensor
    barred_chains: Tensor | None = None


class NormalForm:
    """Binary rules, summed chains of unary rules, and words; and the mapping back.

    In order: useless rules are removed (`Selection`), right sides are binarised (`Binarisation`),
    empty rules are removed (`NullRemoval`), chains of unary rules are summed (`UnaryClosure`). All
    steps are differentiable in the weights.
    """

    def __init__(self, table: RuleTable) -> None:
        self.selection = Selection.trimming(table)
        self.binarisation = Binarisation(self.selection.table)
        self.removal = NullRemoval(self.binarisation.table)
        self.table = self.removal.table
        self.closure = UnaryClosure(self.table)
        arities, offsets = self.table.arities, self.table.offsets
        self.binary: Integers = np.flatnonzero(arities == 2)  # numbers of rules of the form
        single = np.flatnonzero(arities == 1)
        self.lexical: Integers = single[self.table.rhs[offsets[single]] < 0]
        places = offsets[self.binary][:, None] + np.arange(2)
        heads = self.table.lhs[self.binary]
        triples = np.concatenate([heads[:, None], self.table.rhs[places]], axis=1)
        self.arrays = RuleArrays.compile(
            len(self.table.nonterminals), 0, triples, self.closure.pairs
        )

    @cached_property
    def lexicon(self) -> dict[str, Integers]:
        """The lexical rules (numbers of rules of the form) of each terminal."""
        terminals = -1 - self.table.rhs[self.table.offsets[self.lexical]]
        order = np.argsort(terminals, kind="stable")
        bounds = np.searchsorted(terminals[order], np.arange(len(self.table.terminals) + 1))
        return {
            text: self.lexical[order[bounds[n] : bounds[n + 1]]]
            for n, text in enumerate(self.table.terminals)
        }

    @cached_property
    def original_rules(self) -> Integers:
        """The original rule of each rule of the form, −1 for what binarisation added.

        Unary rules may come from several: for them only the first is given.
        """
        kept = np.append(self.selection.kept, -1)
        binarised = self.binarisation.original[self.removal.origin_rules]
        first = self.removal.offsets[:-1]
        return kept[binarised[first]] if len(first) else np.empty(0, np.int64)

    @cached_property
    def is_original(self) -> NDArray[np.bool_]:
        """Which symbols of the form are symbols of the grammar."""
        names = set(self.selection.table.nonterminals)
        return np.array([name in names for name in self.table.nonterminals], dtype=bool)

    def log_weights(
        self, original: Float[Tensor, "*c r"], base: Float[Tensor, " r"] | None = None
    ) -> FormWeights:
        """Sums of weights, differentiable; `base` are those in empty trees, if not the same."""
        weights = self.binarisation.log_weights(self.selection.log_weights(original))
        if base is not None:
            base = self.binarisation.log_weights(self.selection.log_weights(base))
        return self.with_chains(self.removal.log_weights(weights, base))

    def with_chains(self, rules: Float[Tensor, "*c k"]) -> FormWeights:
        """The weights of the chains beside those of the rules of the form."""
        chains = self.closure.log_weights(rules)
        barred = self.closure.log_weights(rules + self.bar) if self.leaks else None
        return FormWeights(rules, chains, barred)

    @cached_property
    def bar(self) -> Tensor:
        """−inf for the unary rules [k] of and to constituents, 0 for the others."""
        found = torch.zeros(len(self.table), dtype=torch.float64)
        closure, own = self.closure, self.is_original
        steps = closure.rules[own[closure.children] | own[closure.heads]]
        found[torch.from_numpy(steps)] = -torch.inf
        return found

    @cached_property
    def leaks(self) -> bool:
        """Whether a chain between parts of long rules goes through a constituent.

        It takes symbols that vanish. Over a span where no constituent may be, such a chain must
        not count, although both its ends may be there.
        """
        own, pairs = self.is_original, self.closure.pairs
        above = pairs[~own[pairs[:, 0]] & own[pairs[:, 1]], 1]
        below = pairs[own[pairs[:, 0]] & ~own[pairs[:, 1]], 0]
        return bool(np.isin(above, below).any())

    def log_empty(self, original: Float[Tensor, " r"]) -> Float[Tensor, ""]:
        """The log-weight of the empty sentence, differentiable."""
        weights = self.binarisation.log_weights(self.selection.log_weights(original))
        return self.removal.log_empty(weights)

    def setting(self, original: Vector, base: Vector | None = None) -> Setting:
        """The form at these weights [r] of the original rules, for the way back."""
        binarised = self._binarised(original)
        return Setting(self, binarised, binarised if base is None else self._binarised(base))

    def _binarised(self, original: Vector) -> Vector:
        return self.binarisation.best_log_weights(self.selection.best_log_weights(original))

    def original_derivation(self, binarised: list[int]) -> list[int]:
        """The derivation by original rules, given one by binarised rules."""
        # The first part of a rule is the rule; the others only hand their children on.
        kept, size = self.selection.kept, len(self.selection.table)
        return [int(kept[n]) for n in binarised if n < size]


@dataclass(frozen=True, eq=False)
class Setting:
    """A normal form at one setting of weights: best weights, and pieces to choose from."""

    form: NormalForm
    binarised: Vector
    base: Vector  # the weights in empty trees
    is_barred: bool = False  # for spans where no constituent may be

    @cached_property
    def barred(self) -> Setting:
        """The same for spans where no constituent may be."""
        return replace(self, is_barred=True)

    @cached_property
    def ways(self) -> Ways:
        """How many pieces there are."""
        return Ways(self.form, self.binarised, self.base, self.is_barred)

    @cached_property
    def best(self) -> FormWeights:
        """The weights of the best pieces."""
        form, best = self.form, self.form.closure.best_log_weights
        rules = form.removal.best_log_weights(self.binarised, self.base)
        chains = torch.from_numpy(best(rules))
        barred = torch.from_numpy(best(rules + form.bar.numpy())) if form.leaks else None
        return FormWeights(torch.from_numpy(rules), chains, barred)

    @cached_property
    def sums(self) -> FormWeights:
        """The weights of all pieces together, outside any graph."""
        return self.form.with_chains(self._rule_sums)

    @property
    def _rule_sums(self) -> Tensor:
        removal = self.form.removal
        return removal.log_weights(torch.from_numpy(self.binarised), torch.from_numpy(self.base))

    @cached_property
    def pieces(self) -> Pieces:
        """What the rules of the form stand for, by binarised rules."""
        return self.form.removal.pieces(self.binarised, self.base)

    @cached_property
    def chains(self) -> Chains:
        """What the chains of the form stand for, by binarised rules."""
        sums = self._rule_sums  # and not `sums`: best chains exist where no sum is finite
        if self.is_barred:
            sums = sums + self.form.bar
        return self.form.closure.chains(sums.numpy(), self.pieces)
