"""Charts of factored grammars on the CPU: the compiled passes, shared out among threads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inout.kernels.lowrank.cpu import grammar
from inout.kernels.lowrank.cpu.grammar import Arrays, Factors, Gradients
from inout.kernels.lowrank.cpu.weights import per_element, per_position
from inout.kernels.math.underflow import Array
from inout.kernels.pcfg.cpu.chart import Scales, SpanChart
from inout.kernels.threads import groups, over_batch


class LogChart(NamedTuple):
    """Logs of a chart [b n n ...], -inf where there is nothing."""

    betas: Array  # of nonterminals
    lefts: Array
    rights: Array


class Potentials(NamedTuple):
    """Log-weights, or weights relative to the largest; a head [1 0 0] if there is none."""

    root: Array  # [b nt]
    head: Array  # [1|b nt r]
    left: Array  # [1|b r s]
    right: Array  # [1|b r s]
    words: Array  # [b n pt]

    def weigh(self) -> tuple[Potentials, Scales]:
        """Weights, and their scales."""
        root, head, left, right = map(per_element, self[:-1])
        words, word_tops = per_position(self.words)
        rule_tops = head[1] + left[1] + right[1]
        weights = Potentials(root[0], head[0], left[0], right[0], words)
        return weights, Scales(root[1], rule_tops, word_tops)


def _cut(given: Potentials) -> Factors:
    """The factors, those of children apart for nonterminals and words."""
    nt = given.root.shape[-1]
    left, right = given.left, given.right
    parts = left[..., :nt], left[..., nt:], right[..., :nt], right[..., nt:]
    return Factors(np.ascontiguousarray(given.head), *map(np.ascontiguousarray, parts))


class GrammarChart(SpanChart):
    """Betas, lefts and rights of all spans under some weights, real or complex.

    As `pcfg.cpu.chart.Chart`, whose `tiny` and `floor` these are.
    """

    def __init__(
        self, weights: Potentials, scales: Scales, lengths: Array, tiny: float, floor: float = 0.0
    ) -> None:
        self.weights, self.scales, self.lengths = weights, scales, lengths
        b, n, pt = weights.words.shape
        rank, s = weights.left.shape[1:]
        nt, kind = s - pt, weights.words.dtype
        self.size = b, n, nt
        self.work = b * n * n * rank * (n + s)
        self.betas: Array = np.zeros((b, n, n, nt), kind)
        self.sigmas: Array = np.full((b, n, n), -np.inf)
        self.low: Array = np.zeros(b, np.bool_)
        word_sigmas = np.where(scales.words > -np.inf, 0.0, -np.inf)
        self.arrays = Arrays(
            factors=_cut(weights),
            words=weights.words,
            word_sigmas=word_sigmas.astype(weights.words.real.dtype),
            lengths=lengths,
            lefts=np.zeros((b, n, n, rank), kind),
            rights=np.zeros((b, n, n, rank), kind),
            betas=self.betas,
            sigmas=self.sigmas,
        )

        def part(lo: int, hi: int) -> None:
            grammar.inside(self.arrays, lo, hi, tiny, floor, self.low)

        over_batch(part, b, self.work)
        self.total: Array = self.sums() + floor
        with np.errstate(divide="ignore"):
            logs = np.log(self.total.real.astype(np.float64))
        self.log_z: Array = logs + scales.root + self.at_root(self.log_scales())

    def sums(self) -> Array:
        """The totals of the whole elements [b] as weights and chart are now."""
        found: Array = (self.weights.root * self.at_root(self.betas)).sum(-1)
        return found

    def shift(self, change: Array) -> None:
        """Multiply the weights of all words by 1 + a small number for each element [b]."""
        place = np.arange(self.size[1])
        widths = (place - place[:, None] + 1).clip(min=0)
        powers = (1 + change[:, None, None] * widths)[..., None]
        for table in (self.betas, self.arrays.lefts, self.arrays.rights):
            table *= powers
        self.arrays.words[:] *= (1 + change)[:, None, None]

    def gradients(self, factors: Array) -> tuple[Array, ...]:
        """Derivatives of the sum of factors [b] . totals by the logarithms of the weights."""
        w, at_root = self.weights, self.weights.root * factors[:, None]
        _, *parts = self.outside(at_root)
        rest = (x * y for x, y in zip(parts, w[1:], strict=True))
        return at_root * self.at_root(self.betas), *rest

    def outside(self, root_gradient: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Gradients of the sum of root_gradient [b nt] . betas of the whole elements.

        By the betas [b n n nt], the weights of head, left and right, and the words' [b n pt].
        """
        arrays, bounds = self.arrays, groups(self.size[0])
        count = len(bounds) - 1

        def room(like: Array) -> Array:
            places = count if len(like) == 1 else len(like)
            return np.zeros((places, *like.shape[1:]), like.dtype)

        made = Factors(*map(room, arrays.factors))
        kind, (_, n, rank) = self.betas.dtype, arrays.lefts.shape[1:]
        gradients = Gradients(
            words=np.empty_like(arrays.words),
            lefts=np.empty((count, n, n, rank), kind),
            rights=np.empty((count, n, n, rank), kind),
            betas=np.empty_like(self.betas),
        )

        def part(lo: int, hi: int) -> None:
            for g in range(lo, hi):
                grammar.outside(arrays, bounds[g], bounds[g + 1], root_gradient, gradients, made, g)

        over_batch(part, count, 3 * self.work)
        by = Factors(
            *(
                x.sum(0, keepdims=True) if len(given) == 1 else x
                for x, given in zip(made, arrays.factors, strict=True)
            )
        )
        left = np.concatenate([by.left, by.left_words], -1)
        right = np.concatenate([by.right, by.right_words], -1)
        return gradients.betas, by.head, left, right, gradients.words
