"""Charts of weighted grammars on the CPU: the compiled passes, shared out among threads."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from inout.kernels.pcfg.cpu import scaled, tangent
from inout.kernels.pcfg.cpu.scaled import Array, Arrays, Changes
from inout.kernels.threads import groups, over_batch


class Weights:
    """exp of the potentials, each block relative to its largest entry, cut for the products.

    root [b nt], rules [bs nt s s] and words [b n pt], where -inf gives 0. Numpy arrays, here and
    below: torch's spinning threads would compete with ours.
    """

    def __init__(self, root: Array, rules: Array, words: Array) -> None:
        self.root, self.rules, self.words = root, rules, words
        nt = root.shape[-1]
        bs, s = len(rules), rules.shape[-1]
        self.sizes = nt, s - nt, s
        both = rules[:, :, :nt, :nt].reshape(bs, nt, nt * nt)
        self.both: Array = np.ascontiguousarray(both.swapaxes(1, 2))
        self.left: Array = np.ascontiguousarray(rules[:, :, nt:])
        self.right: Array = np.ascontiguousarray(rules[:, :, :nt, nt:].swapaxes(2, 3))

    def join(self, gradients: Changes) -> Array:
        """Rules [bs nt s s] of three blocks [slots ...], added up where the rules are shared."""
        nt, _, _ = self.sizes
        both, left, right = gradients.both, gradients.left, gradients.right
        if len(self.rules) == 1:
            both, left, right = (x.sum(0, keepdims=True) for x in (both, left, right))
        rules = np.empty_like(self.rules)
        rules[:, :, :nt, :nt] = both.swapaxes(1, 2).reshape(-1, nt, nt, nt)
        rules[:, :, nt:] = left
        rules[:, :, :nt, nt:] = right.swapaxes(2, 3)
        return rules


class Scales(NamedTuple):
    """Logarithms, in float64, of the scales of `Weights`."""

    root: Array  # [b]
    rules: Array  # [bs]
    words: Array  # [b n], -inf for words without any possible preterminal


def relative(values: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """(exp(values - top), top) with the largest over `axes` as top, 0 where all are -inf."""
    top = values.max(axes, keepdims=True)
    top = np.where(top == -np.inf, top.dtype.type(0), top)
    return np.exp(values - top), top.squeeze(axes).astype(np.float64)


def weigh(root: Array, rules: Array, words: Array) -> tuple[Weights, Scales]:
    """Weights of the potentials, and their scales."""
    root, root_tops = relative(root, (1,))
    rules, rule_tops = relative(rules, (1, 2, 3))
    words, word_tops = relative(words, (2,))
    word_tops = np.where(words.max(-1) == 0, -np.inf, word_tops)
    return Weights(root, rules, words), Scales(root_tops, rule_tops, word_tops)


def possibilities(root: Array, rules: Array, words: Array) -> tuple[Weights, Scales]:
    """1 for everything possible."""
    weights = Weights(*((x > -np.inf).astype(words.dtype) for x in (root, rules, words)))
    word_tops = np.where(weights.words.max(-1) == 0, -np.inf, 0.0)
    return weights, Scales(np.zeros(len(root)), np.zeros(len(rules)), word_tops)


class SpanChart:
    """What charts over spans in scaled arithmetic have in common."""

    size: tuple[int, int, int]  # b, n, nt
    scales: Scales
    sigmas: Array  # [b n n]
    lengths: Array

    def log_scales(self) -> Array:
        """What betas are relative to, as logarithms [b n n]: with rules and words of every tree."""
        place = np.arange(self.size[1])
        steps = np.maximum(place - place[:, None], 0)
        words = np.where(self.scales.words > -np.inf, self.scales.words, 0.0).cumsum(-1)
        before = np.pad(words, ((0, 0), (1, 0)))[:, :-1]
        scales: Array = self.sigmas * math.log(2.0) + self.scales.rules[:, None, None] * steps
        scales += words[:, None, :] - before[:, :, None]
        return scales

    def at_root(self, chart: Array) -> Array:
        """Entries of a chart [b n n ...] at the spans over the whole elements."""
        entries: Array = chart[np.arange(self.size[0]), 0, self.lengths - 1]
        return entries


class Chart(SpanChart):
    """Betas and sigmas of all spans under some weights; `total` [b] and `log_z` [b] of all trees.

    A beta represents beta * 2**sigma times the scales of its tree's rules and words. `tiny` = 0:
    only possibility, all sigmas 0. With a `floor`, every sum over trees starts from it instead of
    0, in its span's scale.
    """

    def __init__(
        self, weights: Weights, scales: Scales, lengths: Array, tiny: float, floor: float = 0.0
    ) -> None:
        self.weights, self.lengths, self.scales = weights, lengths, scales
        b, n, _ = weights.words.shape
        nt, _, s = weights.sizes
        kind = weights.words.dtype
        self.size = b, n, nt
        self.betas: Array = np.zeros((b, n, n, nt), kind)
        self.sigmas: Array = np.full((b, n, n), -np.inf)
        self.low: Array = np.zeros(b, np.bool_)
        self.work = b * n * n * nt * nt * (n + nt)
        self.arrays = Arrays(
            both=weights.both,
            left=weights.left,
            right=weights.right,
            words=weights.words,
            word_sigmas=np.where(scales.words > -np.inf, 0.0, -np.inf),
            lengths=lengths,
            lefts=np.empty((b, nt, n, s), kind),
            rights=np.empty((b, nt, n, nt), kind),
            betas=self.betas,
            sigmas=self.sigmas,
        )

        def part(lo: int, hi: int) -> None:
            scaled.inside(self.arrays, lo, hi, tiny, floor, self.low)

        over_batch(part, b, self.work)
        self.total: Array = (weights.root * self.at_root(self.betas)).sum(-1) + floor
        with np.errstate(divide="ignore"):
            logs = np.log(self.total.astype(np.float64))
        self.log_z: Array = logs + scales.root + self.at_root(self.log_scales())

    def _gradients(self, bounds: list[int], charts: int) -> Changes:
        """Memory for gradients: zeros for those of the rules, a set for each group or element.

        The betas' are for so many charts; what is between words and betas is for each group.
        """
        arrays, count = self.arrays, len(bounds) - 1
        slots = count if len(self.weights.rules) == 1 else self.size[0]

        def room(like: Array, places: int) -> Array:
            return np.zeros((places, *like.shape[1:]), like.dtype)

        return Changes(
            both=room(arrays.both, slots),
            left=room(arrays.left, slots),
            right=room(arrays.right, slots),
            words=np.empty_like(arrays.words),
            lefts=room(arrays.lefts, count),
            rights=room(arrays.rights, count),
            betas=room(arrays.betas, charts),
        )

    def outside(self, root_gradient: Array) -> tuple[Array, Array, Array]:
        """Gradients of the sum of root_gradient [b nt] . betas of the whole elements.

        By the betas [b n n nt], the rules' weights [bs nt s s] and the words' [b n pt].
        """
        bounds = groups(self.size[0])
        made = self._gradients(bounds, self.size[0])

        def part(lo: int, hi: int) -> None:
            for g in range(lo, hi):
                scaled.outside(self.arrays, bounds[g], bounds[g + 1], root_gradient, made, g)

        over_batch(part, len(bounds) - 1, 3 * self.work)
        return made.betas, self.weights.join(made), made.words


class Direction:
    """Derivatives of the weights [as `Weights`] and of the betas, in the chart's scales.

    `expected` [b] is the derivative of log Z; it needs the chart's totals, with inf for elements
    that are done elsewhere. The direction is then shifted, by the same number at every word, so
    that it is 0: every tree has as many words, so no second derivative changes, and nothing large
    is left to cancel.
    """

    def __init__(self, chart: Chart, weights: Weights, totals: Array) -> None:
        self.chart = chart
        given = chart.arrays
        made = (np.empty_like(x) for x in (given.lefts, given.rights, given.betas))
        self.changes = Changes(weights.both, weights.left, weights.right, weights.words, *made)

        def part(lo: int, hi: int) -> None:
            tangent.inside(given, self.changes, lo, hi)

        over_batch(part, chart.size[0], 3 * chart.work)
        changed = chart.at_root(self.changes.betas)
        change = (weights.root * chart.at_root(chart.betas) + chart.weights.root * changed).sum(-1)
        self.expected: Array = change / totals
        self._centre((self.expected / chart.lengths).astype(totals.dtype))

    def _centre(self, mean: Array) -> None:
        chart, given, own = self.chart, self.chart.arrays, self.changes
        place = np.arange(chart.size[1])
        widths = (place - place[:, None] + 1).clip(min=0).astype(mean.dtype)
        mean = mean[:, None, None, None]
        own.betas[:] -= given.betas * (mean * widths[None, :, :, None])
        own.lefts[:] -= mean * given.lefts
        own.rights[:] -= mean * given.rights
        self.changes = own._replace(words=own.words - mean[..., 0] * given.words)

    def outside(self, gradient: Array, d_gradient: Array) -> tuple[Array, ...]:
        """Gradients by the weights of rules and words as `Chart.outside`, and their derivatives."""
        chart, bounds = self.chart, groups(self.chart.size[0])
        made, changes = (chart._gradients(bounds, len(bounds) - 1) for _ in range(2))

        def part(lo: int, hi: int) -> None:
            for g in range(lo, hi):
                tangent.outside(
                    chart.arrays, self.changes, bounds[g], bounds[g + 1], gradient, d_gradient,
                    made, changes, g,
                )  # fmt: skip

        over_batch(part, len(bounds) - 1, 8 * chart.work)
        rules, d_rules = (chart.weights.join(x) for x in (made, changes))
        return rules, made.words, d_rules, changes.words
