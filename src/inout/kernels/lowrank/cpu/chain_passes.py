"""Factored chains on the CPU: see `FactoredPasses`; and samples."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from inout.kernels.lowrank.cpu import sampling
from inout.kernels.lowrank.cpu.chain_chart import ChainChart, LogChart, Potentials
from inout.kernels.lowrank.cpu.passes import FactoredPasses
from inout.kernels.lowrank.reference import factored_alphas, reference_factored_chain
from inout.kernels.math.underflow import Array
from inout.kernels.threads import over_batch


class CpuFactoredChainPasses(FactoredPasses):
    """Elements at one setting of nodes, source and target; see `Potentials`."""

    shortest = 1
    reference = staticmethod(reference_factored_chain)
    chart_of = ChainChart

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

    def log_chart(self) -> LogChart:
        """Logs of the chart; of latent values up to a factor for each position."""
        with np.errstate(divide="ignore"):
            alphas, latent = (
                np.log(x.astype(np.float64)) for x in (self.chart.betas, self.chart.arrays.latent)
            )
        found = LogChart(alphas + self.chart.log_scales[..., None], latent)
        return self._with_exact(found, self._exact_log_chart)

    def _exact_log_chart(self) -> LogChart:
        given = [*self._of(self.bad), self.lengths[self.bad]]
        return torch_log_chart(*map(torch.from_numpy, given))

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
