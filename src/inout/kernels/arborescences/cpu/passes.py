"""Arborescences on the CPU: the compiled passes, divided among threads."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from inout.kernels.arborescences.cpu import elimination
from inout.kernels.arborescences.cpu.elimination import Array, Factors
from inout.kernels.arborescences.reference import reference_log_partition
from inout.kernels.autograd import tangents_by
from inout.kernels.threads import over_batch


class CpuArborescences:
    """A batch of graphs at one setting of their scores [b n+1 n]; see `cpu` for the method.

    Elements that are out of the range of plain floating point are left to the reference, which is
    in log space.
    """

    def __init__(self, scores: Tensor, lengths: Tensor, single_root: bool) -> None:
        self.tensor, self.single = scores.detach(), single_root
        self.scores: Array = self.tensor.contiguous().numpy()
        self.lengths: Array = lengths.contiguous().numpy()
        b, rows, n = self.scores.shape
        self.factors = Factors(np.empty(self.scores.shape), np.empty((b, n)), np.empty((b, rows)))
        self.size, self.work = b, b * n**3
        log_z, self.good = np.empty(b), np.empty(b, np.bool_)
        self._run(elimination.eliminate, self.work // 3, self.factors, log_z, self.good)
        self.log_z = torch.from_numpy(log_z)
        self.odd = torch.from_numpy(~self.good).nonzero()[:, 0]
        if len(self.odd):
            self.log_z[self.odd] = self._twin(self.tensor[self.odd])

    def _run(self, kernel: elimination.Kernel, work: int, *arrays: Array | Factors) -> None:
        over_batch(
            lambda lo, hi: kernel(self.scores, self.lengths, self.single, lo, hi, *arrays),
            self.size,
            work,
        )

    def _twin(self, scores: Tensor) -> Tensor:
        """log Z of the odd elements."""
        lengths = torch.from_numpy(self.lengths)[self.odd]
        return reference_log_partition(scores, lengths, self.single)

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * P(arc) [b n+1 n]."""
        roots, out = weights.detach().double().contiguous().numpy(), np.empty(self.scores.shape)
        self._run(elimination.marginals, self.work, self.factors, self.good, roots, out)
        result = torch.from_numpy(out)
        if len(self.odd):
            with torch.enable_grad():
                own = self.tensor[self.odd].requires_grad_()
                log_z = self._twin(own)
                some = torch.where(log_z == -torch.inf, 0.0, log_z)
                (found,) = torch.autograd.grad(some.sum(), own)
            scale = weights[self.odd, None, None].double().where(found != 0, 0.0)
            result[self.odd] = scale * found.clamp(0, 1)
        return (result,)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[arc, U] [b n+1 n], and E[U] [b]."""
        roots, out = weights.detach().double().contiguous().numpy(), np.empty(self.scores.shape)
        u, expected = directions[0].detach().contiguous().numpy(), np.empty(self.size)
        arrays = self.factors, self.good, roots, u, expected, out
        self._run(elimination.tangents, 3 * self.work, *arrays)
        second, first = torch.from_numpy(out), torch.from_numpy(expected)
        if len(self.odd):
            given = weights[self.odd], [self.tensor[self.odd]], [directions[0][self.odd]]
            second[self.odd], first[self.odd] = tangents_by(self._twin, *given)
        return second, first
