"""Charts of weighted grammars on the CPU: the compiled passes, shared out among threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout.kernels.pcfg.cpu import scaled, tangent
from inout.kernels.threads import groups, over_batch

Array = NDArray[Any]
Kernel = Callable[..., Any]

# numba's dispatchers have no types for starred arguments.
inside: Kernel = scaled.inside
outside: Kernel = scaled.outside
tangent_inside: Kernel = tangent.inside
tangent_outside: Kernel = tangent.outside


class Weights:
    """exp of the potentials, each block relative to its largest entry, cut for the products.

    root [b nt], rules [bs nt s s] and words [b n pt], where -inf gives 0. Arrays of numpy, here
    and below: torch's threads, waiting for more work, would be in the way of ours.
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

    @property
    def arrays(self) -> tuple[Array, ...]:
        """both [bs nt*nt nt], left [bs nt pt s], right [bs nt pt nt], words [b n pt]."""
        return self.both, self.left, self.right, self.words

    def join(self, both: Array, left: Array, right: Array) -> Array:
        """Rules [bs nt s s] of three blocks [slots ...], added up where the rules are shared."""
        nt, _, _ = self.sizes
        if len(self.rules) == 1:
            both, left, right = (x.sum(0, keepdims=True) for x in (both, left, right))
        rules = np.empty_like(self.rules)
        rules[:, :, :nt, :nt] = both.swapaxes(1, 2).reshape(-1, nt, nt, nt)
        rules[:, :, nt:] = left
        rules[:, :, :nt, nt:] = right.swapaxes(2, 3)
        return rules


class Scales(NamedTuple):
    """Logarithms, in float64, of what the entries of `Weights` are relative to."""

    root: Array  # [b]
    rules: Array  # [bs]
    words: Array  # [b n], -inf for words without any possible preterminal


def relative(values: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """(exp(values - top), top) with the largest over `axes` as top, 0 where all are -inf."""
    top = values.max(axes, keepdims=True)
    top = np.where(top == -np.inf, top.dtype.type(0), top)
    return np.exp(values - top), top.squeeze(axes).astype(np.float64)


def weigh(root: Array, rules: Array, words: Array) -> tuple[Weights, Scales]:
    """Weights of the potentials, and what they are relative to."""
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


class Chart:
    """Betas and sigmas of all spans under some weights; `total` [b] and `log_z` [b] of all trees.

    A beta stands for exp(sigma) as much. `tiny` = 0: possibility only, all sigmas 0. With a
    `floor`, every sum over trees starts from it instead of 0, in its span's scale.
    """

    def __init__(
        self,
        weights: Weights,
        scales: Scales,
        lengths: Array,
        tiny: float,
        floor: float = 0.0,
    ) -> None:
        self.weights, self.lengths = weights, lengths
        b, n, _ = weights.words.shape
        nt, _, s = weights.sizes
        kind = weights.words.dtype
        self.size = b, n, nt
        self.lefts: Array = np.empty((b, nt, n, s), kind)
        self.rights: Array = np.empty((b, nt, n, nt), kind)
        self.betas: Array = np.zeros((b, n, n, nt), kind)
        self.sigmas: Array = np.full((b, n, n), -np.inf)
        self.low: Array = np.zeros(b, np.bool_)
        self.work = b * n * n * nt * nt * (n + nt)
        self.given: tuple[Any, ...] = (
            *weights.arrays, scales.words, scales.rules, self.lengths,
        )  # fmt: skip
        self.made: tuple[Any, ...] = (self.lefts, self.rights, self.betas, self.sigmas)

        def part(lo: int, hi: int) -> None:
            inside(*self.given, lo, hi, tiny, floor, *self.made, self.low)

        over_batch(part, b, self.work)
        self.total: Array = (weights.root * self.at_root(self.betas)).sum(-1) + floor
        with np.errstate(divide="ignore"):
            logs = np.log(self.total.astype(np.float64))
        self.log_z: Array = logs + scales.root + self.at_root(self.sigmas)

    def at_root(self, chart: Array) -> Array:
        """Entries of a chart [b n n ...] at the spans over the whole elements."""
        entries: Array = chart[np.arange(self.size[0]), 0, self.lengths - 1]
        return entries

    def _slots(self) -> tuple[int, list[int]]:
        """How many sums of the rules' gradients to make, and the bounds of their elements."""
        b = self.size[0]
        bounds = groups(b)
        return len(bounds) - 1 if len(self.weights.rules) == 1 else b, bounds

    def _empty_gradients(self, slots: int) -> list[Array]:
        """Zeros for both, left and right [slots ...], and room for the words' [b n pt]."""
        *rules, words = self.weights.arrays
        return [np.zeros((slots, *x.shape[1:]), x.dtype) for x in rules] + [np.empty_like(words)]

    def outside(self, root_gradient: Array) -> tuple[Array, Array, Array]:
        """Gradients of the sum of root_gradient [b nt] . betas of the whole elements.

        By the betas [b n n nt], the rules' weights [bs nt s s] and the words' [b n pt].
        """
        slots, bounds = self._slots()
        betas, gradients = np.empty_like(self.betas), self._empty_gradients(slots)

        def part(lo: int, hi: int) -> None:
            for g in range(lo, hi):
                outside(
                    *self.given, bounds[g], bounds[g + 1], *self.made, root_gradient, betas,
                    *gradients, g,
                )  # fmt: skip

        over_batch(part, len(bounds) - 1, 3 * self.work)
        return betas, self.weights.join(*gradients[:3]), gradients[3]


class Direction:
    """Derivatives of the weights [as `Weights`] and of the betas, in the chart's scales.

    `expected` [b] is the derivative of log Z; it needs the chart's totals, with inf for elements
    that are done elsewhere. The direction is then shifted, by the same number at every word, so
    that it is 0: every tree has as many words, so no second derivative changes, and nothing large
    is left to cancel.
    """

    def __init__(self, chart: Chart, weights: Weights, totals: Array) -> None:
        self.chart, self.weights = chart, weights
        self.lefts, self.rights, self.betas = (
            np.empty_like(x) for x in (chart.lefts, chart.rights, chart.betas)
        )

        def part(lo: int, hi: int) -> None:
            tangent_inside(*chart.given, lo, hi, *chart.made, *self.arrays)

        over_batch(part, chart.size[0], 3 * chart.work)
        changed = chart.at_root(self.betas)
        change = (weights.root * chart.at_root(chart.betas) + chart.weights.root * changed).sum(-1)
        self.expected: Array = change / totals
        self._centre((self.expected / chart.lengths).astype(totals.dtype))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What the kernels read: the weights' derivatives, those of the words' matrices, betas."""
        return *self.weights.arrays, self.lefts, self.rights, self.betas

    def _centre(self, mean: Array) -> None:
        chart = self.chart
        place = np.arange(chart.size[1])
        widths = (place - place[:, None] + 1).clip(min=0).astype(mean.dtype)
        mean = mean[:, None, None, None]
        self.betas -= chart.betas * (mean * widths[None, :, :, None])
        self.lefts -= mean * chart.lefts
        self.rights -= mean * chart.rights
        self.weights.words = self.weights.words - mean[..., 0] * chart.weights.words

    def outside(self, gradient: Array, d_gradient: Array) -> tuple[Array, ...]:
        """Gradients by the weights of rules and words as `Chart.outside`, and their derivatives."""
        chart = self.chart
        slots, bounds = chart._slots()
        gradients, changes = chart._empty_gradients(slots), chart._empty_gradients(slots)

        def part(lo: int, hi: int) -> None:
            for g in range(lo, hi):
                tangent_outside(
                    *chart.given, bounds[g], bounds[g + 1], *chart.made, *self.arrays,
                    gradient, d_gradient, *gradients, *changes, g,
                )  # fmt: skip

        over_batch(part, len(bounds) - 1, 8 * chart.work)
        rules, d_rules = (chart.weights.join(*x[:3]) for x in (gradients, changes))
        return rules, gradients[3], d_rules, changes[3]
