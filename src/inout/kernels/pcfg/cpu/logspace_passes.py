"""Weighted grammars in log space: the passes for elements that fit no other arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout.kernels.pcfg.cpu import logspace
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
                self.logs[e] = logspace.inside(
                    self.root[e], self._rules(e), self.words[e], self.lengths[e], self.charts[e]
                )

        over_batch(part, b, self.charts.size * n)

    @property
    def log_z(self) -> Float[Tensor, " b"]:
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
