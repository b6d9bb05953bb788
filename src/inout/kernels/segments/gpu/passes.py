"""Semi-Markov chains on a GPU at one setting of their potentials; kernels in `kernels.py`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.kernels.autograd import tangents_by
from inout.kernels.limits import SEGMENTS_GPU_LABELS
from inout.kernels.segments.reference import reference_log_partition
from inout.kernels.shapes import Labels, PerElement

if TYPE_CHECKING:
    from inout.kernels.segments.gpu.kernels import Sweeps


class GpuPasses:
    """Triton kernels, one program for each element and direction; see `kernels.py`."""

    def __init__(self, potentials: Tensor, lengths: Tensor, *, keep: bool = True) -> None:
        if potentials.shape[3] > SEGMENTS_GPU_LABELS:
            raise ArgumentError(
                "log_potentials",
                f": on a GPU segments have at most {SEGMENTS_GPU_LABELS} labels. "
                f'Got {potentials.shape[3]}; use tier="reference" or the CPU',
            )
        # Here, because triton is only where GPUs are.
        from inout.kernels.segments.gpu import kernels

        # Who keeps the passes wants derivatives: the backward sweep runs beside the forward one.
        self.kernels, self.both = kernels, keep
        self.potentials = potentials.detach().contiguous()  # [b n w s s]
        self.lengths = lengths.contiguous()

    @cached_property
    def _forward(self) -> Sweeps:
        """log Z and the alphas; with derivatives in sight also the betas."""
        return self.kernels.forward(self.potentials, self.lengths, self.both)

    @cached_property
    def _both(self) -> Sweeps:
        """Alphas and betas."""
        if not self.both:
            self.kernels.backward(self.potentials, self.lengths, self._forward)
        return self._forward

    @property
    def log_z(self) -> PerElement:
        """log Z in float64."""
        return self._forward.log_z

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradient [b n w s s] of weights . log Z."""
        scales = weights.detach().to(self.potentials.dtype).contiguous()
        return (self.kernels.gradients(self.potentials, self.lengths, self._both, scales),)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian of weights . log Z times u [b n w s s], and E[U] [b]: through the reference."""
        return tangents_by(
            lambda x: reference_log_partition(x, self.lengths),
            weights,
            (self.potentials,),
            directions,
        )

    def best(self) -> Labels:
        """The segmentation with the highest score (Viterbi)."""
        return self.kernels.best_segments(self.potentials, self.lengths)

    def sample(self, count: int, seed: int) -> tuple[Int[Tensor, "m b n"], Bool[Tensor, " b"]]:
        """`count` independent segmentations of each element, and which elements have any."""
        b, n = self.potentials.shape[:2]
        device = self.potentials.device
        generator = torch.Generator(device=device).manual_seed(seed % 2**63)
        uniform = torch.rand(
            (count, b, n + 1), generator=generator, device=device, dtype=torch.float64
        )
        labels = self.kernels.sample_segments(self.potentials, self.lengths, self._forward, uniform)
        return labels, self.log_z > -torch.inf
