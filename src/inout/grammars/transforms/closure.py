"""Sums over chains of unary rules: all ways from A to B over the same words, with cycles."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import ArgumentError
from inout._core.graphs import strong_components
from inout.grammars.structure import useful_rules
from inout.grammars.table import RuleTable
from inout.grammars.transforms.base import Vector, summed
from inout.grammars.transforms.pieces import Piece, Pieces, choose, filled
from inout.semirings import Log, Max

Integers = NDArray[np.int64]
Star = Callable[[Tensor], Tensor]


class _DivergenceError(ArgumentError):
    """The sum over a cycle is infinite, or its best way has no end."""


@dataclass(frozen=True, eq=False)
class _Level:
    """Pairs whose chains begin in symbols of one level: sums over a first step and a pair below.

    Terms are weights[steps] ⊗ (values[below], or 1 for below = −1), summed by place.
    """

    size: int
    steps: Tensor
    below: Tensor
    places: Tensor


@dataclass(frozen=True, eq=False)
class _Knot:
    """Symbols on common cycles: a square block of steps, and the pairs that leave it.

    `steps`, `step_places` (in the block, row by row): the rules within. `exits`: the pairs that
    begin here as a level without the cycles, row by row over the symbols and the targets outside.
    """

    size: int
    steps: Tensor
    step_places: Tensor
    exits: _Level


class UnaryClosure:
    """The pairs (A, B) with a chain A ⇒⁺ B of unary rules, at least one; sums over the chains.

    Symbols without cycles are summed step by step, level by level. For symbols on cycles the sum
    is that of the geometric series of their block, by Gauss-Jordan elimination in log space
    (Kleene 1956), in which only additions of positive numbers and 1/(1−x) occur: no digits cancel,
    and the sum is exact whatever the number of rounds. Differentiable to any order.
    """

    def __init__(self, table: RuleTable) -> None:
        self.table = table
        single = np.flatnonzero(table.arities == 1)
        inner = table.rhs[table.offsets[single]] >= 0
        self.rules: Integers = single[inner]  # [m] numbers of the unary rules
        self.heads = table.lhs[self.rules].astype(np.int64)
        self.children = table.rhs[table.offsets[self.rules]].astype(np.int64)
        self._steps: dict[int, list[int]] = {}
        for step, head in enumerate(self.heads.tolist()):
            self._steps.setdefault(head, []).append(step)
        self._compile()

    def _compile(self) -> None:
        """The pairs, and the sums that make them, from the leaves up."""
        size = len(self.table.nonterminals)
        self._numbers: dict[tuple[int, int], int] = {}
        self._targets: dict[int, list[int]] = {}
        self._stages: list[_Level | _Knot] = []
        self.on_cycle = np.zeros(size, dtype=bool)
        heights = np.zeros(size, dtype=np.int64)
        levels: dict[int, list[int]] = {}
        knots: dict[int, list[list[int]]] = {}
        children = self.children.tolist()
        for part in strong_components(size, self.heads, self.children):
            members = part.tolist()
            own = set(members)
            steps = [s for a in members for s in self._steps.get(a, [])]
            if not steps:
                continue
            below = {children[s] for s in steps}
            height = 1 + max((int(heights[b]) for b in below - own), default=0)
            heights[part] = height
            if below & own:
                self.on_cycle[part] = True
                knots.setdefault(height, []).append(members)
            else:
                levels.setdefault(height, []).extend(members)
        for height in sorted({*levels, *knots}):
            if height in levels:
                self._stages.append(self._level(levels[height], frozenset()))
            for members in knots.get(height, []):
                self._stages.append(self._knot(members))
        pairs = np.array(list(self._numbers), dtype=np.int64)
        self.pairs: Integers = pairs.reshape(-1, 2)  # [u 2]

    def _reach(self, symbol: int, block: frozenset[int]) -> dict[int, None]:
        """What chains from a symbol lead to, steps into the block left out."""
        found: dict[int, None] = {}
        for step in self._steps[symbol]:
            child = int(self.children[step])
            if child not in block:
                found[child] = None
                found.update(dict.fromkeys(self._targets.get(child, [])))
        return found

    def _level(self, symbols: list[int], block: frozenset[int]) -> _Level:
        """The sums for symbols that have no cycle, or (for a block) without their cycles."""
        if block:
            targets = dict.fromkeys(b for a in symbols for b in self._reach(a, block))
            places = {
                (a, b): n for n, (a, b) in enumerate((a, b) for a in symbols for b in targets)
            }
        else:
            places = {}
            for a in symbols:
                self._targets[a] = list(self._reach(a, block))
                places.update({(a, b): len(places) + n for n, b in enumerate(self._targets[a])})
        terms = []
        for a in symbols:
            for step in self._steps[a]:
                child = int(self.children[step])
                if child in block:
                    continue
                terms.append((step, -1, places[a, child]))
                terms += [
                    (step, self._numbers[child, b], places[a, b])
                    for b in self._targets.get(child, [])
                ]
        if not block:
            for pair in places:
                self._numbers[pair] = len(self._numbers)
        columns = torch.tensor(terms, dtype=torch.int64).reshape(-1, 3).T
        return _Level(len(places), *columns)

    def _knot(self, members: list[int]) -> _Knot:
        block, local = frozenset(members), {a: n for n, a in enumerate(members)}
        inside = [
            (s, local[a] * len(members) + local[int(self.children[s])])
            for a in members
            for s in self._steps[a]
            if int(self.children[s]) in block
        ]
        exits = self._level(members, block)
        outside = list(dict.fromkeys(b for a in members for b in self._reach(a, block)))
        for a in members:
            self._targets[a] = [*members, *outside]
        pairs = [(a, b) for a in members for b in members]
        for pair in pairs + [(a, b) for a in members for b in outside]:
            self._numbers[pair] = len(self._numbers)
        steps, places = torch.tensor(inside, dtype=torch.int64).T
        return _Knot(len(members), steps, places, exits)

    def find(self, head: int, child: int) -> int | None:
        """The number of a pair, None where no chain leads from one to the other."""
        return self._numbers.get((head, child))

    def steps(self, head: int) -> list[int]:
        """The places in `rules` of the unary rules of a symbol."""
        return self._steps.get(head, [])

    def log_weights(self, rules: Float[Tensor, "*c r"]) -> Float[Tensor, "*c u"]:
        """The log of the sum of the weights of the chains of each pair, given those of all rules.

        ArgumentError where the sum over a cycle diverges, unless the cycle stands in no tree.
        """
        return self._evaluate(rules, Log(), self._log_star)

    def best_log_weights(self, rules: Vector) -> Vector:
        """The log-weight of the best chain of each pair: [u]."""
        values = self._evaluate(torch.from_numpy(rules), Max(), self._best_star).numpy()
        # A cycle that gains by rounding alone is no better than none.
        around = self.pairs[:, 0] == self.pairs[:, 1]
        return np.where(around, np.minimum(values, 0.0), values)

    def _log_star(self, x: Tensor) -> Tensor:
        if bool((x >= 0).any()):
            raise _DivergenceError(
                None,
                "the weights of chains of unary rules must have a finite sum. They diverge: "
                + self._cycle_names(),
            )
        # −log(1 − eˣ), whose digits are those of expm1 for x near 0.
        return -torch.where(x > -0.7, (-torch.expm1(x)).log(), torch.log1p(-torch.exp(x)))

    def _best_star(self, x: Tensor) -> Tensor:
        if bool((x > 1e-12).any()):
            raise _DivergenceError(
                None,
                "there is no best tree: cycles of unary rules have weights above 1: "
                + self._cycle_names(),
            )
        return torch.zeros_like(x)

    def _cycle_names(self) -> str:
        names = [self.table.nonterminals[a] for a in np.flatnonzero(self.on_cycle)]
        return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")

    def _evaluate(self, rules: Tensor, semiring: Log | Max, star: Star) -> Tensor:
        """The value of every pair; leading dimensions are copies side by side."""
        try:
            return self._evaluated(rules, semiring, star)
        except _DivergenceError:
            alive = (rules.detach() > -torch.inf).reshape(-1, len(self.table)).any(0)
            useful = torch.from_numpy(useful_rules(self.table, alive.cpu().numpy()))
            if bool(useful[torch.from_numpy(self.rules)].all()):
                raise
            return self._evaluated(torch.where(useful, rules, -torch.inf), semiring, star)

    def _evaluated(self, rules: Tensor, semiring: Log | Max, star: Star) -> Tensor:
        weights = rules[..., torch.from_numpy(self.rules)]
        shape = weights.shape[:-1]
        weights = weights.reshape(shape.numel(), weights.shape[-1])
        copies = weights.shape[0]
        values = weights.new_zeros(copies, 0)
        for stage in self._stages:
            if isinstance(stage, _Level):
                fresh = _level_values(semiring, weights, values, stage)
            else:
                fresh = _knot_values(semiring, star, weights, values, stage)
            values = torch.cat([values, fresh], dim=1)
        return values.reshape(*shape, values.shape[-1])

    def chains(self, weights: Vector, pieces: Pieces | None = None) -> Chains:
        """The chains themselves, at these weights of the rules (and pieces of the rules)."""
        return Chains(self, weights, pieces)


def _level_values(semiring: Log | Max, weights: Tensor, values: Tensor, level: _Level) -> Tensor:
    below = torch.cat([values, values.new_zeros(len(values), 1)], dim=1)[:, level.below]
    return summed(semiring, weights[:, level.steps] + below, level.places, level.size)


def _knot_values(
    semiring: Log | Max, star: Star, weights: Tensor, values: Tensor, knot: _Knot
) -> Tensor:
    size, copies = knot.size, len(weights)
    block = summed(semiring, weights[:, knot.steps], knot.step_places, size * size)
    block = block.reshape(copies, size, size)
    for k in range(size):
        around = star(block[:, k, k])[:, None, None]
        through = block[:, :, k, None] + around + block[:, None, k, :]
        block = semiring.plus(block.reshape(-1), through.reshape(-1)).reshape(block.shape)
    inner = block.reshape(copies, size * size)
    if knot.exits.size == 0:
        return inner
    exits = _level_values(semiring, weights, values, knot.exits)
    exits = exits.reshape(copies, 1, size, -1)
    # Out at once, or after at least one step inside.
    through = block[:, :, :, None] + exits
    width = exits.shape[-1]
    places = torch.arange(size)[:, None, None] * width + torch.arange(width)
    places = places.expand(size, size, width).reshape(-1)
    terms = torch.cat([through.reshape(copies, -1), exits.reshape(copies, -1)], dim=1)
    places = torch.cat([places, torch.arange(size * width)])
    return torch.cat([inner, summed(semiring, terms, places, size * width)], dim=1)


class Chains(Pieces):
    """The chains of each pair as pieces with one hole, at one setting of the weights.

    A step is a unary rule, or a piece that it stands for where `pieces` are given.
    """

    def __init__(self, closure: UnaryClosure, weights: Vector, pieces: Pieces | None) -> None:
        self._closure, self._weights, self._pieces = closure, weights, pieces
        self._cache: dict[tuple[int, int], list[tuple[float, Piece]]] = {}

    @cached_property
    def log_sums(self) -> Vector:
        """The log of the sum of the weights of the chains of each pair: [u]."""
        return self._closure.log_weights(torch.from_numpy(self._weights)).numpy()

    @cached_property
    def _best(self) -> Vector:
        return self._closure.best_log_weights(self._step_weights)

    @cached_property
    def _step_weights(self) -> Vector:
        """The best log-weight of each rule of the table; only unary rules count."""
        if self._pieces is None:
            return self._weights
        weights = np.full(len(self._weights), -np.inf)
        for rule in self._closure.rules.tolist():
            ranked = self._step_pieces(rule, 1)
            weights[rule] = ranked[0][0] if ranked else -np.inf
        return weights

    def best(self, rule: int) -> Piece:
        return self.ranked(rule, 1)[0][1]

    def sample(self, rule: int, random: np.random.Generator) -> Piece:
        closure, sums = self._closure, self.log_sums
        here, target = closure.pairs[rule].tolist()
        chain: list[int] = []
        while True:
            # One step, then either the end or a further chain.
            options: list[tuple[int, int | None]] = []
            logs = []
            for step in closure.steps(here):
                child, number = int(closure.children[step]), int(closure.rules[step])
                weight = float(self._weights[number])
                if child == target:
                    options.append((number, None))
                    logs.append(weight)
                pair = closure.find(child, target)
                if pair is not None:
                    options.append((number, child))
                    logs.append(weight + float(sums[pair]))
            number, further = options[choose(logs, random)]
            chain.append(number)
            if further is None:
                break
            here = further
        if self._pieces is None:
            return (*chain, -1)
        return _joined([self._pieces.sample(n, random) for n in chain])

    def ranked(self, rule: int, k: int) -> list[tuple[float, Piece]]:
        key = (rule, k)
        if key not in self._cache:
            head, target = self._closure.pairs[rule].tolist()
            self._cache[key] = self._search(head, target, k)
        return self._cache[key]

    def _search(self, head: int, target: int, k: int) -> list[tuple[float, Piece]]:
        """The k best chains by best-first search, with what is left to come known exactly.

        Among equals the shorter chain comes first: a cycle of weight 1 does not trap the search.
        """
        closure = self._closure

        def rest(symbol: int) -> float:
            pair = closure.find(symbol, target)
            through = -np.inf if pair is None else float(self._best[pair])
            return max(through, 0.0) if symbol == target else through

        order = count()
        found: list[tuple[float, Piece]] = []
        # (−log-weight at best, steps, tie, log-weight so far, symbol reached, steps taken)
        start: tuple[Any, ...] = (-rest(head), 0, next(order), 0.0, head, ())
        agenda = [start]
        while agenda and len(found) < k:
            cost, length, _, log, symbol, chain = heapq.heappop(agenda)
            if symbol is None:
                found.append((log, _joined(chain)))
                continue
            if symbol == target and chain:
                heapq.heappush(agenda, (max(cost, -log), length, next(order), log, None, chain))
            for step in closure.steps(symbol):
                child, number = int(closure.children[step]), int(closure.rules[step])
                left = rest(child)
                if left == -np.inf:
                    continue
                for weight, piece in self._step_pieces(number, k):
                    total = log + weight
                    if total + left > -np.inf:
                        # Never better than its beginning, or a cycle whose weight is 1 but for
                        # rounding would be gone round for ever.
                        worst = max(cost, -(total + left))
                        entry = (worst, length + 1, next(order), total, child)
                        heapq.heappush(agenda, (*entry, (*chain, piece)))
        return found

    def _step_pieces(self, rule: int, k: int) -> list[tuple[float, Piece]]:
        if self._weights[rule] == -np.inf:
            return []
        if self._pieces is None:
            return [(float(self._weights[rule]), (rule, -1))]
        return self._pieces.ranked(rule, k)


def _joined(parts: Any) -> Piece:
    """One piece with one hole of many, the first outermost."""
    whole: Piece = (-1,)
    for part in reversed(parts):
        whole = filled(part, [whole])
    return whole
