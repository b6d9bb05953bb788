"""log Z of weighted grammars as a torch function, differentiable to any order; single trees.

Forward, first and second derivative run width by width in scaled arithmetic. Elements whose range
does not fit run again in float64, and if that is not enough in log space. Third and higher
derivatives use the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from inout.kernels.autograd import differentiable_log_partition
from inout.kernels.cky.decoding import cpu as decoding
from inout.kernels.cky.logspace import cpu as logspace
from inout.kernels.cky.passes import TINY, Chart, Direction, Weights, relative
from inout.kernels.cky.reference import reference_grammar_log_partition
from inout.kernels.threads import groups, over_batch

Array = NDArray[Any]


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
                self.logs[e] = logspace.inside(*self._element(e), self.charts[e])  # type: ignore[call-arg]

        over_batch(part, b, self.charts.size * n)

    @property
    def log_z(self) -> Tensor:
        """log Z [b]."""
        return torch.from_numpy(self.logs)

    def _rules(self, e: int) -> Array:
        rules: Array = self.rules[e if len(self.rules) > 1 else 0]
        return rules

    def _element(self, e: int) -> tuple[Any, ...]:
        return self.root[e], self._rules(e), self.words[e], self.lengths[e]

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
        """What element(e, out) writes for the rules [bs nt s s], added up where they are shared."""
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

    def span_marginals(self) -> Array:
        """Posteriors of nonterminals over spans [b n n nt]."""
        return self.posteriors(torch.ones(len(self.words)))[0][..., : self.root.shape[-1]]

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


class GrammarPasses:
    """Elements [b ...] in scaled arithmetic; those that do not fit are left to another object."""

    def __init__(self, root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> None:
        given = [x.detach().contiguous().numpy() for x in (root, rules, words)]
        self.lengths: Array = lengths.contiguous().numpy()
        real = np.arange(words.shape[1]) < self.lengths[:, None]
        given[2] = np.where(real[..., None], given[2], given[2].dtype.type(-np.inf))
        self.dtype = given[2].dtype
        self.tiny = TINY[self.dtype]
        root_weights, root_tops = relative(given[0], (1,))
        rule_weights, tops = relative(given[1], (1, 2, 3))
        word_weights, word_tops = relative(given[2], (2,))
        self.weights = Weights(root_weights, rule_weights, word_weights)
        self.chart = Chart(self.weights, tops, word_tops, self.lengths, self.tiny)
        self.at_root = self.chart.at_root(self.chart.betas)
        self.total: Array = (root_weights * self.at_root).sum(-1)
        with np.errstate(divide="ignore"):
            self.logs: Array = np.log(self.total.astype(np.float64))
        self.logs += root_tops.astype(np.float64) + self.chart.at_root(self.chart.sigmas)
        self.bad = self._unfit(*given)
        self.fallback: GrammarPasses | LogSpacePasses | None = None
        if len(self.bad):
            make = GrammarPasses if self.dtype == np.float32 else LogSpacePasses
            own = given[1] if len(given[1]) == 1 else given[1][self.bad]
            parts = (given[0][self.bad], own, given[2][self.bad])
            r, s, w = (torch.from_numpy(x.astype(np.float64)) for x in parts)
            self.fallback = make(r, s, w, torch.from_numpy(self.lengths[self.bad]))
            self.logs[self.bad] = self.fallback.logs

    @property
    def log_z(self) -> Tensor:
        """log Z [b]."""
        return torch.from_numpy(self.logs)

    def _unfit(self, root: Array, rules: Array, words: Array) -> Array:
        """The elements in which something possible came out as 0."""
        low = self.chart.low | ~(self.total >= self.tiny)
        elements: Array = (low & (self.lengths > 1)).nonzero()[0]
        if not len(elements):
            return elements
        # The same chart with 1 for everything possible cannot underflow.
        own = rules if len(rules) == 1 else rules[elements]
        given = (root[elements], own, words[elements])
        weights = Weights(*((x > -np.inf).astype(self.dtype) for x in given))
        tops, word_tops = np.zeros(len(own)), np.zeros(words[elements].shape[:2])
        possible = Chart(weights, tops, word_tops, self.lengths[elements], 0.0)
        lost = (possible.betas > 0) & (self.chart.betas[elements] == 0)
        whole = (weights.root * possible.at_root(possible.betas)).sum(-1) > 0
        unfit = lost.any((1, 2, 3)) | (whole & ~(self.total[elements] >= self.tiny))
        lost_elements: Array = elements[unfit]
        return lost_elements

    def log_chart(self) -> Array:
        """Log inside values [b n n s], preterminals at width 1 and nonterminals above it."""
        b, n, nt = self.chart.size
        chart = np.full((b, n, n, self.weights.sizes[2]), -np.inf)
        place = np.arange(n)
        with np.errstate(divide="ignore"):
            chart[..., :nt] = np.log(self.chart.betas.astype(np.float64))
            chart[..., :nt] += self.chart.sigmas[..., None]
            words = np.log(self.weights.words.astype(np.float64))
        chart[:, place, place, nt:] = words + self.chart.word_sigmas[..., None]
        if self.fallback is not None:
            chart[self.bad] = self.fallback.log_chart()
        return chart

    def _root_factors(self, weights: Tensor) -> Array:
        """weights / total [b 1], 0 for elements without trees and those done elsewhere."""
        given = weights.detach().numpy().astype(self.dtype)
        factors = np.where(self.total > 0, given / np.where(self.total > 0, self.total, 1), 0)
        factors[self.bad] = 0
        return factors.astype(self.dtype)[:, None]

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradients by root, rules and words."""
        w = self.weights
        at_root = w.root * self._root_factors(weights)
        _, rules, words = self.chart.outside(at_root)
        rules *= w.rules
        words *= w.words
        results = (at_root * self.at_root, rules, words)
        if self.fallback is not None:
            self._insert(results, self.fallback.gradients(weights[torch.from_numpy(self.bad)]))
        return tuple(torch.from_numpy(x) for x in results)

    def span_marginals(self) -> Array:
        """Posteriors of nonterminals over spans [b n n nt]."""
        ones = torch.ones(len(self.total))
        gradients, _, _ = self.chart.outside(self.weights.root * self._root_factors(ones))
        result: Array = (gradients * self.chart.betas).astype(np.float64)
        if self.fallback is not None:
            result[self.bad] = self.fallback.span_marginals()
        return result

    def _insert(self, results: tuple[Array, ...], exact: tuple[Tensor, ...]) -> None:
        """Puts the fallback's results for root, rules, words (and E[U]) in their places."""
        for place, (result, other) in enumerate(zip(results, exact, strict=True)):
            if place == 1 and len(result) == 1:
                result += other.numpy().astype(self.dtype)
            else:
                result[self.bad] = other.numpy()

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian times the directions for root, rules and words, and E[U]."""
        w = self.weights
        root, rules, words = (x.detach().numpy() for x in directions)
        change = Weights(w.root * root, w.rules * rules, w.words * words)
        direction = Direction(self.chart, change, self.total)
        factors = self._root_factors(weights)
        by_rules, by_words, d_rules, d_words = direction.outside(
            w.root * factors, change.root * factors
        )
        d_betas = self.chart.at_root(direction.betas)
        results = (
            factors * (change.root * self.at_root + w.root * d_betas),
            change.rules * by_rules + w.rules * d_rules,
            change.words * by_words + w.words * d_words,
            direction.expected.astype(self.dtype),
        )
        if self.fallback is not None:
            bad = torch.from_numpy(self.bad)
            own = directions[1] if len(directions[1]) == 1 else directions[1][bad]
            given = (directions[0][bad].double(), own.double(), directions[2][bad].double())
            self._insert(results, self.fallback.tangents(weights[bad], given))
        return tuple(torch.from_numpy(x) for x in results)


def log_partition(
    root: Float[Tensor, "b nt"],
    rules: Float[Tensor, "bs nt s s"],
    words: Float[Tensor, "b n pt"],
    lengths: Int[Tensor, " b"],
) -> Float[Tensor, " b"]:
    """log Z of each element; bs is 1 or b, s = nt + pt; lengths at least 1.

    O(b (n³ nt² + n² nt³ + n nt s pt)) time; O(b n² nt) memory besides the weights of the rules.
    """
    return differentiable_log_partition(
        GrammarPasses(root, rules, words, lengths),
        lambda r, s, w: reference_grammar_log_partition(r, s, w, lengths),
        root,
        rules,
        words,
    )


def span_marginals(
    root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor
) -> Float[Tensor, "b n n nt"]:
    """Posterior probability of every nonterminal over every span."""
    return torch.from_numpy(GrammarPasses(root, rules, words, lengths).span_marginals())


def _arrays(*tensors: Tensor) -> list[Array]:
    return [x.detach().double().contiguous().numpy() for x in tensors]


def best_trees(root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> Int[Tensor, "b n n"]:
    """Symbols of the spans of the best tree, -1 elsewhere (everywhere if there is none)."""
    given, sizes = _arrays(root, rules, words), lengths.contiguous().numpy()
    b, n, _ = words.shape
    events, scores = np.empty((b, n, n), np.int64), np.empty(b)

    def part(lo: int, hi: int) -> None:
        decoding.viterbi(*given, sizes, lo, hi, events, scores)  # type: ignore[call-arg]

    over_batch(part, b, b * n**4)
    return torch.from_numpy(events)


def k_best_trees(
    root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor, k: int
) -> tuple[Int[Tensor, "k b n n"], Float[Tensor, "k b"]]:
    """The k trees with the highest scores, and those scores (-inf where there are fewer)."""
    given, sizes = _arrays(root, rules, words), lengths.contiguous().numpy()
    b, n, _ = words.shape
    events, scores = np.empty((k, b, n, n), np.int64), np.empty((k, b))

    def part(lo: int, hi: int) -> None:
        decoding.kbest(*given, sizes, lo, hi, k, events, scores)  # type: ignore[call-arg]

    over_batch(part, b, b * n**4)
    return torch.from_numpy(events), torch.from_numpy(scores)


def sample_trees(
    root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor, count: int, seed: int
) -> Int[Tensor, "m b n n"]:
    """`count` independent trees of each element: symbols of spans, -1 elsewhere."""
    passes = GrammarPasses(root, rules, words, lengths)
    chart = passes.log_chart()
    roots, rule_array = _arrays(root, rules)
    b, n, _ = words.shape
    events = np.empty((b, count, n, n), np.int64)

    def part(lo: int, hi: int) -> None:
        for e in range(lo, hi):
            decoding.sample(
                roots[e], rule_array[e if len(rule_array) > 1 else 0], passes.lengths[e],
                chart[e], passes.logs[e], np.uint64(seed), e * count, events[e],
            )  # fmt: skip

    over_batch(part, b, b * count * n**3)
    return torch.from_numpy(events.swapaxes(0, 1).copy())
