"""Charts of factored chains on the CPU: the compiled passes, shared out among threads."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from inout.kernels.lowrank.cpu import chain
from inout.kernels.lowrank.cpu.chain import Arrays
from inout.kernels.math.underflow import Array
from inout.kernels.pcfg.cpu.chart import relative
from inout.kernels.threads import groups, over_batch


class LogChart(NamedTuple):
    """Logs of sums up to each position: by label [b n s], by latent value [b n r]."""

    alphas: Array
    latent: Array


class Potentials(NamedTuple):
    """Log-weights, or weights relative to the largest of each position or block."""

    nodes: Array  # [b n s]
    source: Array  # [1|b 1|n-1 s r]
    target: Array  # [1|b 1|n-1 r s]

    def weigh(self) -> tuple[Potentials, Array]:
        """Weights, and the logs of their scales [b n]: at each position and before.

        A step's scales count at the position it leads to.
        """
        nodes, tops = relative(self.nodes, (2,))
        factors = []
        for factor in self[1:]:
            weights, steps = relative(factor, (2, 3))
            tops[:, 1:] += steps
            factors.append(weights)
        return Potentials(nodes, *factors), tops.cumsum(1)


class ChainChart:
    """Alphas of all positions under some weights, real or complex.

    `tiny` and `floor` as in `pcfg.cpu.chart.Chart`.
    """

    def __init__(
        self, weights: Potentials, tops: Array, lengths: Array, tiny: float, floor: float = 0.0
    ) -> None:
        self.weights, self.lengths = weights, lengths
        (b, n, s), rank, kind = weights.nodes.shape, weights.source.shape[3], weights.nodes.dtype
        self.work = b * n * s * rank
        self.betas: Array = np.zeros((b, n, s), kind)
        self.low: Array = np.zeros(b, np.bool_)
        self.arrays = Arrays(
            nodes=weights.nodes,
            source=np.ascontiguousarray(weights.source),
            target=np.ascontiguousarray(weights.target),
            lengths=lengths,
            latent=np.zeros((b, n, rank), kind),
            alphas=self.betas,
            sigmas=np.zeros((b, n)),
        )

        def part(lo: int, hi: int) -> None:
            chain.inside(self.arrays, lo, hi, tiny, floor, self.low)

        over_batch(part, b, self.work)
        self.log_scales: Array = self.arrays.sigmas * math.log(2.0) + tops
        self.total: Array = self.sums() + (lengths > 0) * self.betas.real.dtype.type(floor)
        with np.errstate(divide="ignore"):
            logs = np.log(self.total.real.astype(np.float64))
        scales = self.at_end(self.log_scales) if n else np.zeros(b)
        self.log_z: Array = np.where(lengths > 0, logs + scales, 0.0)

    def sums(self) -> Array:
        """The totals of the whole elements [b] as the chart is now; 1 of no positions."""
        if not self.betas.shape[1]:
            return np.ones(len(self.betas), self.betas.dtype)
        ones = self.betas.dtype.type(1)
        found: Array = np.where(self.lengths > 0, self.at_end(self.betas).sum(-1), ones)
        return found

    def at_end(self, table: Array) -> Array:
        """Entries of a table [b n ...] at the last positions; of the first, for no positions."""
        entries: Array = table[np.arange(len(table)), np.maximum(self.lengths - 1, 0)]
        return entries

    def shift(self, change: Array) -> None:
        """Multiply the weights of all nodes by 1 + a small number for each element [b]."""
        place = np.arange(self.betas.shape[1])
        change = change[:, None, None]
        self.betas *= 1 + change * (place + 1)[:, None]
        self.arrays.latent[:] *= 1 + change * place[:, None]
        self.arrays.nodes[:] *= 1 + change

    def gradients(self, factors: Array) -> tuple[Array, ...]:
        """Derivatives of the sum of factors [b] . totals by the logarithms of the weights."""
        size = self.weights.nodes.shape[2]
        parts = self.outside(np.repeat(factors[:, None], size, 1))
        return tuple(x * y for x, y in zip(parts, self.weights, strict=True))

    def outside(self, end_gradient: Array) -> tuple[Array, Array, Array]:
        """Gradients of the sum of end_gradient [b s] . alphas at the last positions.

        By the weights of nodes, source and target.
        """
        arrays, bounds = self.arrays, groups(len(self.lengths))
        count = len(bounds) - 1
        by_nodes = np.zeros_like(arrays.nodes)
        by_factors = [
            np.zeros((count if len(x) == 1 else len(x), *x.shape[1:]), x.dtype)
            for x in (arrays.source, arrays.target)
        ]

        def part(lo: int, hi: int) -> None:
            for g in range(lo, hi):
                chain.outside(
                    arrays, bounds[g], bounds[g + 1], end_gradient, by_nodes, *by_factors, g
                )

        over_batch(part, count, 3 * self.work)
        source, target = (
            x.sum(0, keepdims=True) if len(given) == 1 else x
            for x, given in zip(by_factors, (arrays.source, arrays.target), strict=True)
        )
        return by_nodes, source, target
