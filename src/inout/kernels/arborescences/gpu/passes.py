"""Arborescences on a GPU, at one setting of the scores; kernels in `inverse.py`, `kernels.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inout.kernels.arborescences.reference import reference_log_partition
from inout.kernels.autograd import tangents_by
from inout.kernels.limits import ARBORESCENCE_GPU_WORDS


class GpuArborescences:
    """Triton kernels, one program for each element. Computes in float64.

    Most elements have their probabilities with log Z. The `odd` ones, whose arcs are too far apart
    for that or which have too many words, are eliminated word by word.
    """

    def __init__(self, scores: Tensor, lengths: Tensor, single_root: bool) -> None:
        self.dtype, self.single = scores.dtype, single_root
        self.scores = scores.detach().double().contiguous()  # [b n+1 n]
        self.lengths = lengths.contiguous()
        if scores.shape[2] <= ARBORESCENCE_GPU_WORDS:
            self.log_z, self.chances, good = self._inverted()
            self.odd = (good.cpu() == 0).nonzero()[:, 0].to(scores.device)
            if len(self.odd):
                self.rest = _Eliminated(self.scores[self.odd], self.lengths[self.odd], single_root)
                self.log_z[self.odd] = self.rest.log_z
        else:
            self.rest = _Eliminated(self.scores, self.lengths, single_root)
            self.odd, self.log_z = torch.arange(len(scores), device=scores.device), self.rest.log_z
            self.chances = torch.empty_like(self.scores)

    def _inverted(self) -> tuple[Tensor, Tensor, Tensor]:
        """log Z [b], P(arc) [b n+1 n], and which elements these are right for [b]."""
        from inout.kernels.arborescences.gpu import inverse  # triton is only where GPUs are

        b, _, n = self.scores.shape
        log_z, chances = self.scores.new_empty(b), torch.empty_like(self.scores)
        good = torch.empty(b, dtype=torch.int32, device=self.scores.device)
        wide = max(16, 1 << (n - 1).bit_length())
        scratch = self.scores.new_empty(b, 2, wide, wide)
        inverse.invert_kernel[(b,)](
            self.scores, self.lengths, scratch, chances, log_z, good,
            n=n, SINGLE=self.single, H=16, N=wide, num_warps=8 if wide > 64 else 4,
        )  # fmt: skip
        return log_z, chances, good

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * P(arc) [b n+1 n]."""
        weights = weights.detach().double()
        out = self.chances * weights[:, None, None]
        if len(self.odd):
            out[self.odd] = self.rest.gradients(weights[self.odd])
        return (out.to(self.dtype),)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[arc, U] [b n+1 n], and E[U] [b]: through the reference."""
        results = tangents_by(
            lambda x: reference_log_partition(x, self.lengths, self.single),
            weights.double(),
            (self.scores,),
            tuple(x.double() for x in directions),
        )
        return tuple(x.to(self.dtype) for x in results)


class _Eliminated:
    """Elimination word by word, of scores [b n+1 n] in float64, and its adjoint.

    Elements that are out of the range of plain floating point are left to the reference, which is
    in log space.
    """

    def __init__(self, scores: Tensor, lengths: Tensor, single_root: bool) -> None:
        from inout.kernels.arborescences.gpu import kernels  # triton is only where GPUs are

        self.kernels = kernels
        self.scores, self.lengths, self.single = scores, lengths, single_root
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

    def gradients(self, weights: Tensor) -> Tensor:
        """weights[b] * P(arc) [b n+1 n]."""
        roots = weights.contiguous()
        out, slopes = torch.zeros_like(self.scores), torch.zeros_like(self.scores)
        self.kernels.marginals_kernel[(len(roots),)](
            self.scores, self.lengths, self.rows, self.pivots, self.shifts, self.good, roots,
            slopes, torch.empty_like(self.shifts), out, **self._options,
        )  # fmt: skip
        if len(self.odd):
            out[self.odd] = self._odd_gradients(roots)
        return out

    def _odd_gradients(self, weights: Tensor) -> Tensor:
        with torch.enable_grad():
            own = self.scores[self.odd].requires_grad_()
            log_z = self._twin(own)
            some = torch.where(log_z == -torch.inf, 0.0, log_z)
            (found,) = torch.autograd.grad(some.sum(), own)
        return weights[self.odd, None, None].where(found != 0, 0.0) * found.clamp(0, 1)
