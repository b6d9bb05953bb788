"""Removal of unary rules by folding every chain into the rule at its end."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout.grammars.structure import useful_rules
from inout.grammars.table import RuleTable, table_of_numbers
from inout.grammars.transforms.base import RuleTransform, Vector, summed
from inout.grammars.transforms.closure import UnaryClosure
from inout.grammars.transforms.pieces import Piece, Pieces, choose, filled
from inout.semirings import Log, Max

Integers = NDArray[np.int64]


class UnaryRemoval(RuleTransform):
    """Rules A -> α for every B -> α with A ⇒* B by unary rules, α no single nonterminal.

    The weight is that of all chains from A to B (`UnaryClosure`), times the rule's.
    """

    def __init__(self, source: RuleTable) -> None:
        self.source, self.closure = source, UnaryClosure(source)
        unary = np.zeros(len(source), dtype=bool)
        unary[self.closure.rules] = True
        by_head: dict[int, list[int]] = {}
        for rule in np.flatnonzero(~unary).tolist():
            by_head.setdefault(int(source.lhs[rule]), []).append(rule)
        origins: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}
        rhs, offsets = source.rhs.tolist(), source.offsets.tolist()
        chains = [(a, a, -1) for a in by_head]
        chains += [(a, b, n) for n, (a, b) in enumerate(self.closure.pairs.tolist())]
        for head, last, pair in chains:
            for rule in by_head.get(last, []):
                key = (head, tuple(rhs[offsets[rule] : offsets[rule + 1]]))
                origins.setdefault(key, []).append((pair, rule))
        table = table_of_numbers(
            source.start,
            source.nonterminals,
            source.terminals,
            [head for head, _ in origins],
            [side for _, side in origins],
        )
        useful = np.flatnonzero(useful_rules(table))
        self.table = table.select(useful)
        lists = list(origins.values())
        self.origins = [lists[n] for n in useful.tolist()]
        rows = [(n, *origin) for n, found in enumerate(self.origins) for origin in found]
        new, pairs, rules = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        self._new, self._pairs, self._rules = map(torch.from_numpy, (new, pairs, rules))

    def log_weights(self, old: Float[Tensor, "*c r"]) -> Float[Tensor, "*c k"]:
        return self._summed(Log(), old, self.closure.log_weights(old))

    def best_log_weights(self, old: Vector) -> Vector:
        best = torch.from_numpy(self.closure.best_log_weights(old))
        return self._summed(Max(), torch.from_numpy(old), best).numpy()

    def _summed(self, semiring: Log | Max, old: Tensor, chains: Tensor) -> Tensor:
        # Pair −1 is the chain without steps: the last place.
        chains = torch.cat([chains, chains.new_zeros(*chains.shape[:-1], 1)], dim=-1)
        terms = chains[..., self._pairs] + old[..., self._rules]
        return summed(semiring, terms, self._new, len(self.table))

    def pieces(self, old: Vector) -> Pieces:
        return _FoldedPieces(self, old)


class _FoldedPieces(Pieces):
    """A chain of unary rules, then the rule at its end."""

    def __init__(self, removal: UnaryRemoval, old: Vector) -> None:
        self._removal, self._old = removal, old
        self._chains = removal.closure.chains(old)

    def best(self, rule: int) -> Piece:
        return self.ranked(rule, 1)[0][1]

    def sample(self, rule: int, random: np.random.Generator) -> Piece:
        origins, sums = self._removal.origins[rule], self._chains.log_sums
        logs = [float(self._old[r] + (sums[p] if p >= 0 else 0.0)) for p, r in origins]
        pair, last = origins[choose(logs, random)]
        chain = self._chains.sample(pair, random) if pair >= 0 else (-1,)
        return self._with(chain, last)

    def ranked(self, rule: int, k: int) -> list[tuple[float, Piece]]:
        found = []
        for pair, last in self._removal.origins[rule]:
            chains = self._chains.ranked(pair, k) if pair >= 0 else [(0.0, (-1,))]
            log = float(self._old[last])
            found += [(weight + log, self._with(chain, last)) for weight, chain in chains]
        found.sort(key=lambda entry: -entry[0])
        return found[:k]

    def _with(self, chain: Piece, last: int) -> Piece:
        holes = self._removal.source.inner_counts[last]
        return filled(chain, [(last, *(-1 - k for k in range(holes)))])
