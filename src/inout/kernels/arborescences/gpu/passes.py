"""Arborescences on a GPU, at one setting of the scores; kernels in `kernels.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inout.kernels.arborescences.reference import reference_log_partition
from inout.kernels.autograd import tangents_by


class GpuArborescences:
    """Triton kernels, one program for each element. Computes in float64.

    Elements that are out of the range of plain floating point are left to the reference, which is
    in log space.
    """

    def __init__(self, scores: Tensor, lengths: Tensor, single_root: bool) -> None:
        from inout.kernels.arborescences.gpu import kernels  # triton is only where GPUs are

        self.kernels = kernels
        self.dtype, self.single = scores.dtype, single_root
        self.scores = scores.detach().double().contiguous()  # [b n+1 n]
        self.lengths = lengths.contiguous()
        b, m, n = self.scores.shape
        self.rows = torch.empty_like(self.scores)
        self.pivots, self.shifts = self.scores.new_empty(b, n), self.scores.new_empty(b, m)
        self.log_z = self.scores.new_empty(b)
        self.good = torch.empty(b, dtype=torch.int32, device=scores.device)
        kernels.eliminate_kernel[(b,)](
            self.scores, self.lengths, self.rows, self.pivots, self.shifts, self.log_z, self.good,
            **self._options,
        )  # fmt: skip
        self.odd = (self.good == 0).nonzero()[:, 0]
        if len(self.odd):
            self.log_z[self.odd] = self._twin(self.scores[self.odd])

    @property
    def _options(self) -> dict[str, Any]:
        """The number of words, and tiles [H N] of heads and words."""
        n = self.scores.shape[2]
        wide = max(16, 1 << n.bit_length())
        tall = max(4, min(16, 4096 // wide))
        return {"n": n, "SINGLE": self.single, "H": tall, "N": wide, "num_warps": 8}

    def _twin(self, scores: Tensor) -> Tensor:
        """log Z of the odd elements."""
        return reference_log_partition(scores, self.lengths[self.odd], self.single)

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * P(arc) [b n+1 n]."""
        roots = weights.detach().double().contiguous()
        out, slopes = torch.zeros_like(self.scores), torch.zeros_like(self.scores)
        self.kernels.marginals_kernel[(len(roots),)](
            self.scores, self.lengths, self.rows, self.pivots, self.shifts, self.good, roots,
            slopes, torch.empty_like(self.shifts), out, **self._options,
        )  # fmt: skip
        if len(self.odd):
            out[self.odd] = self._odd_gradients(roots)
        return (out.to(self.dtype),)

    def _odd_gradients(self, weights: Tensor) -> Tensor:
        with torch.enable_grad():
            own = self.scores[self.odd].requires_grad_()
            log_z = self._twin(own)
            some = torch.where(log_z == -torch.inf, 0.0, log_z)
            (found,) = torch.autograd.grad(some.sum(), own)
        return weights[self.odd, None, None].where(found != 0, 0.0) * found.clamp(0, 1)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[arc, U] [b n+1 n], and E[U] [b]: through the reference."""
        results = tangents_by(
            lambda x: reference_log_partition(x, self.lengths, self.single),
            weights.double(),
            (self.scores,),
            tuple(x.double() for x in directions),
        )
        return tuple(x.to(self.dtype) for x in results)
