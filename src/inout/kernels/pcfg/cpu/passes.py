"""Weighted grammars on the CPU: scaled arithmetic, and which elements it is not enough for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.math.underflow import ScaledPasses
from inout.kernels.pcfg.cpu import decode as decoding
from inout.kernels.pcfg.cpu import logspace
from inout.kernels.pcfg.cpu.chart import Chart, Direction, Weights, possibilities, weigh
from inout.kernels.pcfg.cpu.scaled import Array
from inout.kernels.shapes import PerElement, Trees
from inout.kernels.threads import groups, over_batch


class CpuGrammarPasses(ScaledPasses):
    """Elements at one setting of root [b nt], rules [1|b nt s s] and words [b n pt].

    Those that do not fit scaled arithmetic are left to another object: float64 for float32, log
    space for float64.
    """

    shortest = 2

    def __init__(self, root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> None:
        self.root, self.rules, given = (
            x.detach().contiguous().numpy() for x in (root, rules, words)
        )
        self.lengths: Array = lengths.contiguous().numpy()
        self.dtype = given.dtype
        real = np.arange(given.shape[1]) < self.lengths[:, None]
        self.words: Array = np.where(real[..., None], given, self.dtype.type(-np.inf))

    def _of(self, elements: Array) -> tuple[Array, Array, Array]:
        """Root, rules and words of some elements."""
        rules = self.rules if len(self.rules) == 1 else self.rules[elements]
        return self.root[elements], rules, self.words[elements]

    @cached_property
    def chart(self) -> Chart:
        """Inside values; totals below tiny are 0 in it, whether possible or not."""
        weights, scales = weigh(self.root, self.rules, self.words)
        return Chart(weights, scales, self.lengths, self.tiny)

    def _upper_chart(self, elements: Array, floor: float) -> Chart:
        weights, scales = weigh(*self._of(elements))
        return Chart(weights, scales, self.lengths[elements], self.tiny, floor)

    def _possible_chart(self, elements: Array) -> Chart:
        return Chart(*possibilities(*self._of(elements)), self.lengths[elements], 0.0)

    @cached_property
    def fallback(self) -> CpuGrammarPasses | LogSpacePasses | None:
        """The elements that do not fit."""
        if not len(self.bad):
            return None
        make = CpuGrammarPasses if self.dtype == np.float32 else LogSpacePasses
        root, rules, words = (torch.from_numpy(x.astype(np.float64)) for x in self._of(self.bad))
        return make(root, rules, words, torch.from_numpy(self.lengths[self.bad]))

    def log_chart(self) -> Array:
        """Log inside values [b n n s], preterminals at width 1 and nonterminals above it."""
        b, n, nt = self.chart.size
        chart = np.full((b, n, n, self.rules.shape[-1]), -np.inf)
        place = np.arange(n)
        with np.errstate(divide="ignore"):
            chart[..., :nt] = np.log(self.chart.betas.astype(np.float64))
        chart[..., :nt] += self.chart.log_scales()[..., None]
        chart[:, place, place, nt:] = self.words
        if self.fallback is not None:
            chart[self.bad] = self.fallback.log_chart()
        return chart

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradients by root, rules and words."""
        w = self.chart.weights
        at_root = w.root * self._root_factors(weights)
        _, rules, words = self.chart.outside(at_root)
        rules *= w.rules
        words *= w.words
        results = (at_root * self.chart.at_root(self.chart.betas), rules, words)
        if self.fallback is not None:
            self._insert(results, self.fallback.gradients(weights[torch.from_numpy(self.bad)]))
        return tuple(torch.from_numpy(x) for x in results)

    def span_marginals(self) -> Float[Tensor, "b n n nt"]:
        """Posteriors of nonterminals over spans, in float64."""
        ones = torch.ones(len(self.words))
        gradients, _, _ = self.chart.outside(self.chart.weights.root * self._root_factors(ones))
        result: Array = (gradients * self.chart.betas).astype(np.float64)
        if self.fallback is not None:
            result[self.bad] = self.fallback.span_marginals().numpy()
        return torch.from_numpy(result)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian times the directions for root, rules and words, and E[U]."""
        w = self.chart.weights
        root, rules, words = (x.detach().numpy() for x in directions)
        change = Weights(w.root * root, w.rules * rules, w.words * words)
        direction = Direction(self.chart, change, self._totals)
        factors = self._root_factors(weights)
        by_rules, by_words, d_rules, d_words = direction.outside(
            w.root * factors, change.root * factors
        )
        betas, d_betas = map(self.chart.at_root, (self.chart.betas, direction.changes.betas))
        results = (
            factors * (change.root * betas + w.root * d_betas),
            change.rules * by_rules + w.rules * d_rules,
            direction.changes.words * by_words + w.words * d_words,
            direction.expected.astype(self.dtype),
        )
        if self.fallback is not None:
            bad = torch.from_numpy(self.bad)
            own = directions[1] if len(directions[1]) == 1 else directions[1][bad]
            given = (directions[0][bad].double(), own.double(), directions[2][bad].double())
            self._insert(results, self.fallback.tangents(weights[bad], given))
        return tuple(torch.from_numpy(x) for x in results)

    def best(self) -> Trees:
        """Symbols of the spans of the best tree, -1 elsewhere (everywhere if there is none).

        Ties go to the first split, then to smaller symbols. Needs no inside values.
        """
        given = [x.astype(np.float64, copy=False) for x in (self.root, self.rules, self.words)]
        b, n, _ = self.words.shape
        events, scores = np.empty((b, n, n), np.int64), np.empty(b)

        def part(lo: int, hi: int) -> None:
            decoding.viterbi(*given, self.lengths, lo, hi, events, scores)

        over_batch(part, b, b * n**4)
        return torch.from_numpy(events)

    def sample(self, count: int, seed: int) -> Int[Tensor, "m b n n"]:
        """`count` independent trees of each element; -1 everywhere if there is none."""
        chart, log_z = self.log_chart(), self.log_z.numpy()
        root, rules = (x.astype(np.float64, copy=False) for x in (self.root, self.rules))
        b, n, _ = self.words.shape
        events = np.empty((b, count, n, n), np.int64)

        def part(lo: int, hi: int) -> None:
            for e in range(lo, hi):
                decoding.sample(
                    root[e], rules[e if len(rules) > 1 else 0], self.lengths[e], chart[e],
                    log_z[e], np.uint64(seed), e * count, events[e],
                )  # fmt: skip

        over_batch(part, b, b * count * n**3)
        return torch.from_numpy(events.swapaxes(0, 1).copy())


class LogSpacePasses:
    """Elements [b ...] in float64 log space, each by one thread."""

    def __init__(self, root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> None:
        self.root, self.rules, self.words = (
            x.detach().double().contiguous().numpy() for x in (root, rules, words)
        )
        self.lengths: Array = lengths.contiguous().numpy()
        b, n, _ = self.words.shape
        self.charts: Array = np.empty((b, n, n, self.rules.shape[-1]))
        self.logs: Array = np.empty(b)

        def part(lo: int, hi: int) -> None:
            for e in range(lo, hi):
                self.logs[e] = logspace.inside(
                    self.root[e], self._rules(e), self.words[e], self.lengths[e], self.charts[e]
                )

        over_batch(part, b, self.charts.size * n)

    @property
    def log_z(self) -> PerElement:
        """log Z in float64."""
        return torch.from_numpy(self.logs)

    def _rules(self, e: int) -> Array:
        rules: Array = self.rules[e if len(self.rules) > 1 else 0]
        return rules

    def log_chart(self) -> Array:
        """Log inside values [b n n s]."""
        return self.charts

    def posteriors(self, weights: Tensor) -> tuple[Array, Array]:
        """weights[b] * posteriors of symbols over spans [b n n s], and rule counts [bs nt s s]."""
        masses = np.empty_like(self.charts)
        scales = weights.detach().double().numpy()

        def element(e: int, rules: Array) -> None:
            logspace.outside(
                self.root[e], self._rules(e), self.lengths[e], self.charts[e], self.logs[e],
                masses[e], rules,
            )  # fmt: skip
            masses[e] *= scales[e]
            rules *= scales[e]

        return masses, self._sum_over_elements(element)

    def _sum_over_elements(self, element: Callable[[int, Array], None]) -> Array:
        """What element(e, out) writes for the rules [bs nt s s], summed if they are shared."""
        b, shape = len(self.words), self.rules.shape[1:]
        bounds = groups(b)
        sums = np.zeros((len(bounds) - 1 if len(self.rules) == 1 else b, *shape))

        def part(lo: int, hi: int) -> None:
            own = np.empty(shape)
            for g in range(lo, hi):
                for e in range(bounds[g], bounds[g + 1]):
                    element(e, own)
                    sums[g if len(self.rules) == 1 else e] += own

        over_batch(part, len(bounds) - 1, self.charts.size * self.charts.shape[1])
        return sums.sum(0, keepdims=True) if len(self.rules) == 1 else sums

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradients by root, rules and words."""
        masses, rules = self.posteriors(weights)
        nt = self.root.shape[-1]
        element = np.arange(len(masses))
        root = masses[element, 0, self.lengths - 1, :nt]
        words = masses.diagonal(0, 1, 2).swapaxes(1, 2)[..., nt:]
        return tuple(torch.from_numpy(x.copy()) for x in (root, rules, words))

    def span_marginals(self) -> Float[Tensor, "b n n nt"]:
        """Posteriors of nonterminals over spans."""
        masses, _ = self.posteriors(torch.ones(len(self.words)))
        return torch.from_numpy(masses[..., : self.root.shape[-1]])

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian times the directions for root, rules and words, and E[U]."""
        u_root, u_rules, u_words = (x.detach().double().contiguous().numpy() for x in directions)
        scales = weights.detach().double().numpy()
        nt = self.root.shape[-1]
        root, words = np.empty_like(self.root), np.empty_like(self.words)
        expected = np.empty(len(words))

        def element(e: int, rules: Array) -> None:
            changes = np.empty(self.charts.shape[1:])
            expected[e] = logspace.tangent(
                self.root[e], self._rules(e), self.lengths[e], self.charts[e], self.logs[e],
                u_root[e], u_rules[e if len(u_rules) > 1 else 0], u_words[e], root[e], rules,
                changes,
            )  # fmt: skip
            root[e] *= scales[e]
            rules *= scales[e]
            words[e] = scales[e] * changes.diagonal(0, 0, 1).T[:, nt:]

        rules = self._sum_over_elements(element)
        return tuple(torch.from_numpy(x) for x in (root, rules, words, expected))
