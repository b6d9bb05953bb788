"""Factored chains on the CPU: see `FactoredPasses`; and samples."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from inout.kernels.lowrank.cpu import sampling
from inout.kernels.lowrank.cpu.chain_chart import ChainChart, Potentials, weigh
from inout.kernels.lowrank.cpu.passes import FactoredPasses
from inout.kernels.lowrank.reference import factored_alphas, reference_factored_chain
from inout.kernels.math.underflow import Array
from inout.kernels.threads import over_batch


class LogChart(NamedTuple):
    """Logs of sums up to each position: by label [b n s], by latent value [b n r]."""

    alphas: Array
    latent: Array


class CpuFactoredChainPasses(FactoredPasses):
    """Elements at one setting of nodes, source and target; see `Potentials`."""

    shortest = 1
    reference = staticmethod(reference_factored_chain)

    def __init__(self, nodes: Tensor, source: Tensor, target: Tensor, lengths: Tensor) -> None:
        self.lengths = lengths.contiguous().numpy()
        given = Potentials(*(x.detach().contiguous().numpy() for x in (nodes, source, target)))
        self.dtype = given.nodes.dtype
        real = np.arange(given.nodes.shape[1]) < self.lengths[:, None]

        def without_padding(factor: Array) -> Array:
            if factor.shape[:2] != (len(real), real.shape[1] - 1):
                return factor
            kept: Array = np.where(real[:, 1:, None, None], factor, self.dtype.type(0))
            return kept

        self.potentials = Potentials(
            np.where(real[..., None], given.nodes, self.dtype.type(0)),
            *map(without_padding, given[1:]),
        )

    def _weigh(self, given: Potentials) -> tuple[Potentials, Array]:
        return weigh(given)

    def _chart(
        self, weights: Any, scales: Any, lengths: Array, tiny: float, floor: float = 0.0
    ) -> ChainChart:
        return ChainChart(weights, scales, lengths, tiny, floor)

    def log_chart(self) -> LogChart:
        """Logs of the chart; of latent values up to a factor for each position."""
        with np.errstate(divide="ignore"):
            alphas, latent = (
                np.log(x.astype(np.float64)) for x in (self.chart.betas, self.chart.arrays.latent)
            )
        found = LogChart(alphas + self.chart.log_scales[..., None], latent)
        if isinstance(self.fallback, CpuFactoredChainPasses):
            exact = self.fallback.log_chart()
        elif self.fallback is not None:
            given = [*self._of(self.bad), self.lengths[self.bad]]
            exact = torch_log_chart(*map(torch.from_numpy, given))
        if self.fallback is not None:
            for table, other in zip(found, exact, strict=True):
                table[self.bad] = other
        return found

    def sample(self, count: int, seed: int) -> Int[Tensor, "m b n"]:
        """`count` independent labellings of each element; -1 everywhere if there is none."""
        chart, log_z = self.log_chart(), self.log_z.numpy()
        given = Potentials(*(x.astype(np.float64, copy=False) for x in self.potentials))
        b, n, s = given.nodes.shape
        labels = np.empty((count, b, n), np.int64)

        def part(lo: int, hi: int) -> None:
            sampling.sample_labels(
                given, chart, self.lengths, log_z, lo, hi, np.uint64(seed), labels
            )

        over_batch(part, b, b * count * n * (s + chart.latent.shape[2]))
        return torch.from_numpy(labels)


def torch_log_chart(nodes: Tensor, source: Tensor, target: Tensor, lengths: Tensor) -> LogChart:
    """The chart of `factored_alphas` as arrays."""
    with torch.no_grad():
        alphas, latent = factored_alphas(nodes, source, target, lengths)
    nothing = nodes.new_zeros(len(nodes), source.shape[3], dtype=torch.float64)
    tables = (torch.stack(x, 1).cpu().numpy() for x in (alphas, [nothing, *latent]))
    return LogChart(*tables)
