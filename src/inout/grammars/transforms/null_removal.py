"""Removal of empty rules; every non-empty sentence keeps its weight."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout.grammars.structure import useful_rules
from inout.grammars.table import RuleTable, table_of_numbers
from inout.grammars.transforms.base import RuleTransform, Vector
from inout.grammars.transforms.nulls import NullRules, NullTrees
from inout.grammars.transforms.pieces import Piece, Pieces, choose
from inout.grammars.transforms.sums import summed
from inout.semirings import Log, Max

Integers = NDArray[np.int64]

_NOTHING = np.iinfo(np.int32).min  # in place of a symbol


class NullRemoval(RuleTransform):
    """The rules of a binarised table without the empty ones.

    Where C can vanish, A -> B C gives A -> B as well, with the weight of all empty trees of C; so
    a new unary rule may come from several old ones, its *origins*. The weight of the empty
    sentence is that of the empty trees of the start symbol.
    """

    def __init__(self, source: RuleTable) -> None:
        self.source, self.nulls = source, NullRules(source)
        candidates = self._candidates()
        symbols, first, place = np.unique(
            candidates[:, :3], axis=0, return_index=True, return_inverse=True
        )
        # Numbered by the first origin, so that without empty rules nothing changes.
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        table = _table(source, symbols[order])
        useful = np.flatnonzero(useful_rules(table))
        number = np.full(len(table), -1)
        number[useful] = np.arange(len(useful))
        new = number[rank[place.reshape(-1)]]
        self.table = table.select(useful)
        kept = new >= 0
        by_rule = np.argsort(new[kept], kind="stable")
        self.origin_rules: Integers = candidates[kept, 3][by_rule]
        self.origin_nulls: Integers = candidates[kept, 4][by_rule]  # symbol that vanishes, or -1
        self.origin_holes: Integers = candidates[kept, 5][by_rule]  # its place, 0 or 1
        self.new_rules: Integers = new[kept][by_rule]  # what the origin is an origin of
        self.offsets: Integers = np.searchsorted(self.new_rules, np.arange(len(self.table) + 1))

    def _candidates(self) -> Integers:
        """Left side, two symbols, old rule, vanishing symbol and its place: [x 6]."""
        source, null = self.source, self.nulls.symbols
        arities, lhs = source.arities, source.lhs.astype(np.int64)
        rules = np.flatnonzero(arities > 0)
        first = source.rhs[source.offsets[rules]].astype(np.int64)
        second = np.full(len(rules), _NOTHING, np.int64)
        two = arities[rules] == 2
        second[two] = source.rhs[source.offsets[rules[two]] + 1]

        def rows(which: Integers, left: Integers, gone: Integers, place: int) -> Integers:
            full = [lhs[rules[which]], left, np.full(len(which), _NOTHING), rules[which]]
            return np.stack([*full, gone, np.full(len(which), place)], axis=1)

        every = np.stack(
            [lhs[rules], first, second, rules, np.full(len(rules), -1), np.zeros(len(rules), int)],
            axis=1,
        )
        without_second = np.flatnonzero(two & null[np.maximum(second, 0)])
        without_first = np.flatnonzero(two & null[np.maximum(first, 0)] & (first >= 0))
        parts = [
            every,
            rows(without_second, first[without_second], second[without_second], 1),
            rows(without_first, second[without_first], first[without_first], 0),
        ]
        return np.concatenate(parts)

    def log_empty(self, old: Float[Tensor, " r"]) -> Float[Tensor, ""]:
        """The log-weight of the empty sentence."""
        return self.nulls.log_sums(old)[0]

    def log_weights(
        self, old: Float[Tensor, "*c r"], base: Float[Tensor, " r"] | None = None
    ) -> Float[Tensor, "*c k"]:
        """Weights of the new rules; `base` are the weights in empty trees, if not the same."""
        if not self.nulls.rules.any():
            return old[..., torch.from_numpy(self.origin_rules)]
        sums = self.nulls.log_sums(old if base is None else base)
        vanishing = torch.cat([sums, sums.new_zeros(1)])[torch.from_numpy(self.origin_nulls)]
        terms = old[..., torch.from_numpy(self.origin_rules)] + vanishing
        return summed(Log(), terms, torch.from_numpy(self.new_rules), len(self.table))

    def best_log_weights(self, old: Vector, base: Vector | None = None) -> Vector:
        terms = old[self.origin_rules]
        gone = self.origin_nulls >= 0
        if gone.any():
            trees = self.nulls.trees(old if base is None else base)
            terms[gone] += trees.best_log_weights()[self.origin_nulls[gone]]
        places = torch.from_numpy(self.new_rules)
        return summed(Max(), torch.from_numpy(terms), places, len(self.table)).numpy()

    def pieces(self, old: Vector, base: Vector | None = None) -> Pieces:
        return _OriginPieces(self, old, old if base is None else base)


class _OriginPieces(Pieces):
    """The origins of the rules, with empty trees in place of what vanishes."""

    def __init__(self, removal: NullRemoval, old: Vector, base: Vector) -> None:
        self._removal, self._old = removal, old
        self._trees: NullTrees = removal.nulls.trees(base)
        self._base = base

    @cached_property
    def _sums(self) -> Vector:
        return self._removal.nulls.log_sums(torch.from_numpy(self._base)).numpy()

    def best(self, rule: int) -> Piece:
        return self.ranked(rule, 1)[0][1]

    def sample(self, rule: int, random: np.random.Generator) -> Piece:
        removal = self._removal
        origins = range(removal.offsets[rule], removal.offsets[rule + 1])
        logs = [
            float(self._old[removal.origin_rules[x]])
            + (float(self._sums[gone]) if (gone := removal.origin_nulls[x]) >= 0 else 0.0)
            for x in origins
        ]
        origin = origins[choose(logs, random)]
        gone = int(removal.origin_nulls[origin])
        tree = self._trees.sample(gone, random) if gone >= 0 else []
        return self._piece(origin, tree)

    def ranked(self, rule: int, k: int) -> list[tuple[float, Piece]]:
        removal = self._removal
        found = []
        for origin in range(removal.offsets[rule], removal.offsets[rule + 1]):
            log = float(self._old[removal.origin_rules[origin]])
            gone = int(removal.origin_nulls[origin])
            trees = self._trees.ranked(gone, k) if gone >= 0 else [(0.0, [])]
            found += [(log + weight, self._piece(origin, tree)) for weight, tree in trees]
        found.sort(key=lambda entry: -entry[0])
        return found[:k]

    def _piece(self, origin: int, tree: list[int]) -> Piece:
        rule = int(self._removal.origin_rules[origin])
        if self._removal.origin_nulls[origin] < 0:
            holes = self._removal.source.inner_counts[rule]
            return (rule, *(-1 - k for k in range(holes)))
        if self._removal.origin_holes[origin] == 0:
            return (rule, *tree, -1)
        return (rule, -1, *tree)


def _table(source: RuleTable, symbols: Integers) -> RuleTable:
    sides = [[n for n in row if n != _NOTHING] for row in symbols[:, 1:].tolist()]
    lhs = symbols[:, 0].tolist()
    return table_of_numbers(source.start, source.nonterminals, source.terminals, lhs, sides)
