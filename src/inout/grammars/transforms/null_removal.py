"""Removal of empty rules; every non-empty sentence keeps its weight. Trees without words."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import cached_property
from itertools import count, product

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.grammars.expectations import proper_log_weights
from inout.grammars.partition import log_partitions
from inout.grammars.structure import Mask, nullable, useful_rules
from inout.grammars.table import RuleTable, table_of_numbers
from inout.grammars.transforms.base import RuleTransform, Vector, summed
from inout.grammars.transforms.pieces import Derivation, Piece, Pieces, choose
from inout.semirings import Log, Max

Integers = NDArray[np.int64]
_NOTHING = np.iinfo(np.int32).min  # in place of a symbol


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
