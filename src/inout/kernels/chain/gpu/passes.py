"""Chains on a GPU: Triton kernels for as many labels as one program can hold; see `inside.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from inout.kernels.chain.reference import reference_tangents


class GpuPasses:
    """Real arithmetic, and in the same kernels log space where the range asks for it.

    Gradients of transitions come as these were given: [1 nt s s] if all elements share them.
    """

    def __init__(
        self, emissions: Tensor, transitions: Tensor, lengths: Tensor, *, keep: bool = True
    ) -> None:
        # Here, because triton is only where GPUs are.
        from inout.kernels.chain.gpu import decode as decoding
        from inout.kernels.chain.gpu import inside, outside

        self.inside, self.outside, self.decoding, self.keep = inside, outside, decoding, keep
        self.shared = len(transitions) == 1 and len(emissions) != 1
        if len(transitions) > 1 and transitions.stride(0) == 0:
            transitions = transitions[:1]
        self.emissions = emissions.detach().contiguous()
        self.transitions = transitions.detach().contiguous()
        self.lengths = lengths.contiguous()

    @property
    def _potentials(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.emissions, self.transitions, self.lengths

    @cached_property
    def _halves(self) -> tuple[Tensor, ...]:
        """log Z, and the messages that the gradients need."""
        results: tuple[Tensor, ...] = self.inside.meet_in_the_middle(*self._potentials, self.keep)
        return results

    @property
    def log_z(self) -> Tensor:
        """log Z [b]; NaN where a potential is NaN or +inf."""
        if not self.emissions.shape[1]:
            return self.lengths.double()  # all 0
        return self._halves[0]

    def gradients(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of weights . log Z: nodes [b n s] and pairs [bt nt s s]."""
        if not self.emissions.numel():
            return torch.zeros_like(self.emissions), torch.zeros_like(self.transitions)
        scales = weights.detach().to(self.emissions.dtype).contiguous()
        kernel: Callable[..., tuple[Tensor, Tensor]] = self.outside.gradients
        nodes, pairs = kernel(*self._potentials, *self._halves[1:], scales)
        return nodes, pairs.sum(0, keepdim=True) if self.shared else pairs

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian products by autograd through the reference; and E[U] [b]."""
        transitions = self.transitions
        if not self.shared:
            transitions = transitions.expand(len(self.emissions), *transitions.shape[1:])
        return reference_tangents(self.emissions, transitions, self.lengths, weights, directions)

    def best(self) -> Tensor:
        """The labels [b n] with the highest score (Viterbi); 0 beyond the lengths."""
        labels: Tensor = self.decoding.best_labels(*self._potentials)
        return labels

    def sample(self, count: int, seed: int) -> Tensor:
        """Labels [m b n], drawn backwards; -1 throughout an element that has none."""
        device = self.emissions.device
        generator = torch.Generator(device=device).manual_seed(seed % 2**63)
        shape = (count, *self.emissions.shape[:2])
        dtype = self.emissions.dtype
        uniform = torch.rand(shape, generator=generator, device=device, dtype=dtype)
        labels: Tensor = self.decoding.sample_labels(*self._potentials, uniform)
        return labels
