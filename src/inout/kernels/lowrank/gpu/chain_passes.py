"""Factored chains on a GPU: log Z, derivatives, samples."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from inout.kernels.lowrank.cpu.chain_passes import CpuFactoredChainPasses
from inout.kernels.lowrank.gpu import sampling
from inout.kernels.lowrank.gpu.chain import Messages, Potentials, Weights
from inout.kernels.lowrank.gpu.passes import Functions, ScaledPasses
from inout.kernels.lowrank.reference import reference_factored_chain
from inout.kernels.math.precision import exact_products


def inside(*given: Tensor, both: bool = False) -> Messages:
    """The messages of nodes, source and target, given with the lengths."""
    *potentials, lengths = given
    with exact_products(lengths):
        return Messages(Weights(Potentials(*potentials)), lengths, both=both)


def inside_and_outside(*given: Tensor) -> Messages:
    """The messages of both directions."""
    return inside(*given, both=True)


def gradients(messages: Messages, weights: Tensor) -> tuple[Tensor, ...]:
    """Gradients of weights . log Z by nodes, source and target."""
    with exact_products(weights):
        return messages.gradients(weights)


class GpuFactoredChainPasses(ScaledPasses):
    """Elements at one setting of nodes, source and target; n is at least 1."""

    reference = staticmethod(reference_factored_chain)

    def __init__(
        self,
        nodes: Tensor,
        source: Tensor,
        target: Tensor,
        lengths: Tensor,
        *,
        keep: bool = True,
        record: bool = True,
    ) -> None:
        real = torch.arange(nodes.shape[1], device=lengths.device) < lengths[:, None]

        def without_padding(factor: Tensor) -> Tensor:
            if factor.shape[:2] != (len(real), real.shape[1] - 1):
                return factor
            return factor.where(real[:, 1:, None, None], 0.0)

        given = nodes.where(real[..., None], 0.0), without_padding(source), without_padding(target)
        super().__init__([x.detach() for x in given], lengths, record=record)
        self.keep = keep

    @property
    def functions(self) -> Functions:
        return (inside_and_outside if self.keep else inside), gradients

    def _wider(self, *given: Tensor) -> GpuFactoredChainPasses:
        return GpuFactoredChainPasses(*given, keep=self.keep, record=False)

    @cached_property
    def bad(self) -> Int[Tensor, " bad"]:
        """The elements in which something possible that may matter was lost; asks the device."""
        chart: Messages = self.chart
        given = *self.potentials, self.lengths
        if not self.keep:
            if bool(chart.certain()):
                return torch.empty(0, dtype=torch.long, device=self.lengths.device)
            chart = inside_and_outside(*given)
        lost = chart.lost() & (self.lengths > 0)
        if not bool(lost.any()):
            return lost.nonzero()[:, 0]
        with exact_products(self.lengths):
            weights = Weights(Potentials(*self.potentials), possible=True)
            possible = Messages(weights, self.lengths).log_z > -torch.inf
        return (lost & possible).nonzero()[:, 0]

    def sample(self, count: int, seed: int) -> Int[Tensor, "m b n"]:
        """`count` independent labellings of each element; -1 everywhere if there is none."""
        labels = sampling.sample_labels(self.chart, count, seed)
        if isinstance(self.fallback, GpuFactoredChainPasses):
            labels[:, self.bad] = self.fallback.sample(count, seed)
        elif self.fallback is not None:
            passes = CpuFactoredChainPasses(*(x.cpu() for x in self._of(self.bad)))
            labels[:, self.bad] = passes.sample(count, seed).to(labels.device)
        return labels
