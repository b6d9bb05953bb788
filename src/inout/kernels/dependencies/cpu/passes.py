"""Projective dependency trees on the CPU: the compiled passes, divided among threads."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from inout._core.tracing import numbers
from inout.kernels.dependencies.cpu import decode, marginals, tangent
from inout.kernels.dependencies.cpu.chart import Array
from inout.kernels.shapes import Arcs, Heads, Lengths, Siblings
from inout.kernels.threads import over_batch


class Sentences:
    """Scores of arcs [b n+1 n] and of siblings [b n n n], if any, for the compiled code."""

    def __init__(
        self, scores: Arcs, siblings: Siblings | None, lengths: Lengths, single_root: bool
    ) -> None:
        b, _, n = scores.shape
        self.scores = array(scores)
        self.siblings = np.empty((0, n, n, n)) if siblings is None else array(siblings)
        self.given = self.scores, self.siblings, array(lengths, np.int64), single_root
        self.size, self.work = b, b * n**3

    def tables(self) -> tuple[Array, Array]:
        """New arrays of the shapes of the scores."""
        return np.empty_like(self.scores), np.empty_like(self.siblings)

    def best(self) -> Heads:
        """The best tree of each element, -1 in the padding and if there is none."""
        heads = np.empty((self.size, self.scores.shape[2]), np.int64)
        over_batch(lambda lo, hi: decode.best(*self.given, lo, hi, heads), self.size, 2 * self.work)
        return torch.from_numpy(heads)

    def sample(self, count: int, seed: int) -> Int[Tensor, "m b n"]:
        """`count` independent trees of each element, -1 in the padding and if there is none."""
        n = self.scores.shape[2]
        heads = np.empty((self.size, count, n), np.int64)
        over_batch(
            lambda lo, hi: decode.sample(*self.given, lo, hi, np.uint64(seed), heads),
            self.size,
            self.work + 4 * count * self.size * n * n,
        )
        return torch.from_numpy(heads.swapaxes(0, 1).copy())


class CpuDependencyPasses(Sentences):
    """log Z at one setting of the scores, and the marginals if derivatives will be `wanted`."""

    def __init__(
        self,
        scores: Arcs,
        siblings: Siblings | None,
        lengths: Lengths,
        single_root: bool,
        wanted: bool,
    ) -> None:
        super().__init__(scores, siblings, lengths, single_root)
        log_z = np.empty(self.size)
        self.found = self.tables() if wanted else (self.scores[:0], self.siblings[:0])
        over_batch(
            lambda lo, hi: marginals.marginals(*self.given, lo, hi, log_z, *self.found),
            self.size,
            3 * self.work if wanted else self.work,
        )
        self.log_z = torch.from_numpy(log_z)

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * P(arc) [b n+1 n], and of siblings [b n n n]."""
        return self._weighted(weights, *self.found)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[part, U] in the shapes of the scores, and E[U] [b]."""
        u = array(directions[0]), array(directions[1]) if len(directions) > 1 else self.siblings
        expected, found = np.empty(self.size), self.tables()
        over_batch(
            lambda lo, hi: tangent.tangents(*self.given, lo, hi, u, expected, *found),
            self.size,
            9 * self.work,
        )
        return *self._weighted(weights, *found), torch.from_numpy(expected)

    def _weighted(self, weights: Tensor, *tables: Array) -> tuple[Tensor, ...]:
        """Tables [b ...] times the weights of their elements, 0 where there is no tree."""
        scale = torch.where(self.log_z == -torch.inf, 0.0, weights.detach().double())
        return tuple(
            torch.from_numpy(x) * scale.reshape(-1, *[1] * (x.ndim - 1))
            for x in tables
            if len(x) == self.size
        )


def array(x: Tensor, dtype: type = np.float64) -> Array:
    """A tensor as a contiguous array for the compiled code."""
    return np.ascontiguousarray(numbers(x), dtype)


def faults(heads: Heads, lengths: Lengths) -> Int[Tensor, " m"]:
    """What is wrong with the heads of each element, as bits; see `decode`."""
    found = np.empty(len(heads), np.int64)
    decode.faults(array(heads, np.int64), array(lengths, np.int64), found)
    return torch.from_numpy(found)
