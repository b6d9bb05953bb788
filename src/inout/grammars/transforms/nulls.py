"""Trees without words: the sums of their weights, the best of them, samples."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import cached_property
from itertools import count, product

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.grammars.expectations import proper_log_weights
from inout.grammars.partition import log_partitions
from inout.grammars.structure import Mask, nullable
from inout.grammars.table import RuleTable
from inout.grammars.transforms.base import Vector
from inout.grammars.transforms.pieces import Derivation, choose
from inout.semirings import Log


class NullRules:
    """The rules of a table whose right sides can vanish."""

    def __init__(self, table: RuleTable) -> None:
        self.table = table
        self.symbols: Mask = nullable(table)  # [nt]
        solid = (table.rhs < 0) | ~self.symbols[np.maximum(table.rhs, 0)]
        solids = np.bincount(table.owners, weights=solid, minlength=len(table))
        self.rules: Mask = solids == 0  # [r]

    def log_sums(self, old: Float[Tensor, " r"]) -> Float[Tensor, " nt"]:
        """The log of the sum of the weights of the empty trees of each symbol, differentiable.

        The sums solve a polynomial system, which `log_partitions` does without a graph. Newton's
        method doubles the number of right Taylor coefficients with each step as it does digits:
        two steps from the solution give the first three derivatives.
        """
        weights = old.detach().numpy()
        values = log_partitions(self.table, np.where(self.rules, weights, -np.inf))
        if np.isposinf(values).any():
            names = [self.table.nonterminals[a] for a in np.flatnonzero(np.isposinf(values))]
            raise ArgumentError(
                None,
                "the weights of the trees without words must have a finite sum. It is infinite "
                f"for {', '.join(names[:5])}",
            )
        sums = torch.from_numpy(values)
        if not old.requires_grad:
            return sums
        live = np.isfinite(values)
        alive = self.rules & (weights > -np.inf)
        inner = self.table.rhs >= 0
        dead = inner & ~live[np.maximum(self.table.rhs, 0)]
        alive[self.table.owners[dead]] = False
        for _ in range(2):
            sums = self._newton_step(sums, old, live, alive)
        return sums

    def _newton_step(self, sums: Tensor, old: Tensor, live: Mask, alive: Mask) -> Tensor:
        table, size = self.table, int(live.sum())
        local = torch.from_numpy(np.cumsum(live) - 1)
        kept = np.flatnonzero(alive)
        places = np.cumsum(alive) - 1
        used = (table.rhs >= 0) & alive[table.owners]
        owners = torch.from_numpy(places[table.owners[used]])
        children = torch.from_numpy(table.rhs[used].astype(np.int64))
        heads = local[torch.from_numpy(table.lhs[kept].astype(np.int64))]
        terms = old[torch.from_numpy(kept)].index_add(0, owners, sums[children])
        totals = Log().sum(terms, heads, size)
        shares = (terms - totals[heads]).exp()
        jacobian = terms.new_zeros(size, size).index_put(
            (heads[owners], local[children]), shares[owners], accumulate=True
        )
        now = sums[torch.from_numpy(live)]
        identity = torch.eye(size, dtype=terms.dtype)
        step = torch.linalg.solve(identity - jacobian, totals - now)
        where = torch.from_numpy(np.flatnonzero(live))
        return sums.index_put((where,), now + step)

    def trees(self, old: Vector) -> NullTrees:
        """The empty trees themselves, at these weights."""
        return NullTrees(self, old)


class NullTrees:
    """Trees without words, at one setting of the weights."""

    def __init__(self, rules: NullRules, old: Vector) -> None:
        self._table = rules.table
        self._old = np.where(rules.rules, old, -np.inf)
        # How many were asked for, and they: replaced together, as threads may ask at once.
        self._ranked: tuple[int, list[list[tuple[float, Derivation]]]] = (0, [])

    @cached_property
    def _log_probabilities(self) -> Vector:
        """Of each rule given its left side: the same trees, in the same order, by probability.

        No probability is above 1, so a tree is never better than its parts, and the best come
        first when parts are taken in order (Knuth 1977).
        """
        log_z = log_partitions(self._table, self._old)
        return proper_log_weights(self._table, self._old, log_z)

    def best_log_weights(self) -> Vector:
        """The log-weight of the best empty tree of each symbol, −inf without: [nt]."""
        best = [self.ranked(a, 1) for a in range(len(self._table.nonterminals))]
        return np.array([trees[0][0] if trees else -np.inf for trees in best])

    def ranked(self, symbol: int, k: int) -> list[tuple[float, Derivation]]:
        """The k best empty trees of a symbol and their log-weights, in order."""
        most, trees = self._ranked
        if k > most:
            trees = self._enumerate(k)
            self._ranked = (k, trees)
        return trees[symbol][:k]

    def sample(self, symbol: int, random: np.random.Generator) -> Derivation:
        """An empty tree of a symbol, drawn in proportion to the weights."""
        table, logs = self._table, self._log_probabilities
        derivation, agenda = [], [symbol]
        while agenda:
            head = agenda.pop()
            rules = np.flatnonzero((table.lhs == head) & (logs > -np.inf))
            rule = int(rules[choose(logs[rules].tolist(), random)])
            derivation.append(rule)
            agenda.extend(table.right_side(rule)[::-1])
        return derivation

    def _enumerate(self, k: int) -> list[list[tuple[float, Derivation]]]:
        """For each symbol its k best empty trees, by taking trees from an agenda, best first.

        A tree taken is combined with those taken before it (Huang 2005).
        """
        table, logs = self._table, self._log_probabilities
        taken: list[list[tuple[float, Derivation]]] = [[] for _ in table.nonterminals]
        users: dict[int, list[int]] = {}
        order = count()  # ties: first in, first out
        # (−log-probability, tie, rule, which tree of each symbol on its right side)
        agenda: list[tuple[float, int, int, tuple[int, ...]]] = []
        rights = {}
        for rule in np.flatnonzero(logs > -np.inf).tolist():
            rights[rule] = table.right_side(rule)
            for symbol in dict.fromkeys(rights[rule]):
                users.setdefault(symbol, []).append(rule)
            if not rights[rule]:
                agenda.append((-float(logs[rule]), next(order), rule, ()))
        heapq.heapify(agenda)
        while agenda:
            cost, _, rule, ranks = heapq.heappop(agenda)
            head, right = int(table.lhs[rule]), rights[rule]
            if len(taken[head]) == k:
                continue
            parts = [taken[c][r][1] for c, r in zip(right, ranks, strict=True)]
            taken[head].append((-cost, [rule, *(n for part in parts for n in part)]))
            for user in users.get(head, []):
                for found in _with_newest(rights[user], head, taken):
                    log = float(logs[user])
                    log += sum(taken[c][r][0] for c, r in zip(rights[user], found, strict=True))
                    heapq.heappush(agenda, (-log, next(order), user, found))
        return [[(float(self._old[d].sum()), d) for _, d in trees] for trees in taken]


def _with_newest(
    right: list[int], symbol: int, taken: list[list[tuple[float, Derivation]]]
) -> Iterator[tuple[int, ...]]:
    """The ranks of trees for a right side in which the last tree taken of a symbol occurs."""
    newest = len(taken[symbol]) - 1
    for place, child in enumerate(right):
        if child == symbol:
            # At this place for the first time, so that no combination comes twice.
            before = [range(newest if c == symbol else len(taken[c])) for c in right[:place]]
            after = [range(len(taken[c])) for c in right[place + 1 :]]
            yield from product(*before, (newest,), *after)
