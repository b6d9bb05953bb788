"""Projective dependency trees on a GPU, at one setting of the scores."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from inout.kernels.autograd import tangents_by
from inout.kernels.dependencies.reference import reference_log_partition
from inout.kernels.shapes import PerElement


class Inside(NamedTuple):
    """What the inside pass leaves."""

    log_z: Tensor  # [b]
    chart: Tensor  # [b 4 n+1 n+1], in log space where there is a flag
    scales: Tensor  # [b n], of the arcs into each word
    flags: Tensor  # [b]


class GpuDependencyPasses:
    """Triton kernels, one program for each sentence; see `logspace.py`. Computes in float64."""

    def __init__(self, scores: Tensor, lengths: Tensor, single_root: bool) -> None:
        # Here, because triton is only where GPUs are.
        from inout.kernels.dependencies.gpu import decode, logspace, scaled

        self.decode, self.logspace, self.scaled = decode, logspace, scaled
        self.dtype = scores.dtype
        self.scores = scores.detach().double().contiguous()  # [b n+1 n]
        self.lengths = lengths.contiguous()
        self.single_root = single_root

    @property
    def _options(self) -> dict[str, Any]:
        """The number of words, and tiles [K N] of splits and starts."""
        n = self.scores.shape[-1]
        splits = 32 if n > 64 else 16
        return {"n": n, "ONE_ROOT": self.single_root, "K": splits, "N": 64, "num_warps": 8}

    def _chart(self) -> tuple[Tensor, Tensor]:
        """Room for a chart, and for log Z."""
        b, m, _ = self.scores.shape
        return self.scores.new_empty(b, 4, m, m), self.scores.new_empty(b)

    @cached_property
    def _inside(self) -> Inside:
        b, _, n = self.scores.shape
        chart, log_z = self._chart()
        scales = self.scores.new_empty(b, n)
        flags = torch.empty(b, dtype=torch.int32, device=log_z.device)
        given = self.scores, self.lengths
        self.scaled.inside_kernel[(b,)](*given, scales, chart, flags, log_z, **self._options)
        self.logspace.inside_kernel[(b,)](*given, chart, flags, log_z, wanted=1, **self._options)
        return Inside(log_z, chart, scales, flags)

    @property
    def log_z(self) -> PerElement:
        """log Z in float64."""
        return self._inside.log_z

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * P(arc) [b n+1 n]."""
        b, m, _ = self.scores.shape
        log_z, chart, scales, flags = self._inside
        outer, out = self.scores.new_empty(b, 3, m, m), torch.zeros_like(self.scores)
        given, how = (self.scores, self.lengths), self._options
        last = outer, flags, weights.detach().double().contiguous(), out
        self.scaled.outside_kernel[(b,)](*given, scales, chart, *last, **how)
        # Sentences that went out of range only now have no chart in log space yet.
        self.logspace.inside_kernel[(b,)](*given, chart, flags, log_z, wanted=2, **how)
        self.logspace.outside_kernel[(b,)](*given, chart, *last, **how)
        flags.clamp_(max=1)
        return (out.to(self.dtype),)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[arc, U] [b n+1 n], and E[U] [b]: through the reference."""
        results = tangents_by(
            lambda x: reference_log_partition(x, self.lengths, self.single_root),
            weights.double(),
            (self.scores,),
            tuple(x.double() for x in directions),
        )
        return tuple(x.to(self.dtype) for x in results)

    def best(self) -> Int[Tensor, "b n"]:
        """Heads of the best trees, -1 where there is none and in the padding."""
        b, m, n = self.scores.shape
        best, _ = self._chart()
        splits = best.new_empty((b, 3, m, m), dtype=torch.int32)
        chosen = torch.zeros_like(best, dtype=torch.int8)
        heads = torch.full((b, n), -1, device=best.device)
        self.decode.viterbi_kernel[(b,)](
            self.scores, self.lengths, best, splits, chosen, heads, **self._options
        )
        return heads

    def sample(self, count: int, seed: int) -> Int[Tensor, "m b n"]:
        """Heads of `count` trees for each sentence, -1 where there is none and in the padding."""
        b, _, n = self.scores.shape
        device = self.scores.device
        chart, log_z = self._chart()
        flags = torch.ones(b, dtype=torch.int32, device=device)
        given = self.scores, self.lengths
        self.logspace.inside_kernel[(b,)](*given, chart, flags, log_z, wanted=1, **self._options)
        generator = torch.Generator(device=device).manual_seed(seed % 2**63)
        uniform = torch.rand(
            (count, b, 2 * n), generator=generator, device=device, dtype=torch.float64
        )
        stack = torch.empty((count, b, n + 2), dtype=torch.int32, device=device)
        heads = torch.full((count, b, n), -1, device=device)
        self.decode.sample_kernel[(count * b,)](
            *given, chart, uniform, stack, heads, b, n,
            ONE_ROOT=self.single_root, K=128, num_warps=1,
        )  # fmt: skip
        return heads
