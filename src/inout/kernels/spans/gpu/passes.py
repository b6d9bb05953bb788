"""Trees over scored spans on a GPU, at one setting of the scores; kernels in `kernels.py`."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from inout.kernels.autograd import tangents_by
from inout.kernels.shapes import LabelledSpans, PerElement
from inout.kernels.spans.reference import reference_tree_log_partition


class GpuTreePasses:
    """Triton kernels, one program for each element; see `kernels.py`. Computes in float64."""

    def __init__(self, scores: Tensor, lengths: Tensor) -> None:
        from inout.kernels.spans.gpu import kernels  # here, because triton is only where GPUs are

        self.kernels = kernels
        self.dtype = scores.dtype
        self.scores = scores.detach().double().contiguous()  # [b n n]
        self.lengths = lengths.contiguous()

    @cached_property
    def _inside(self) -> tuple[Tensor, Tensor]:
        """(log Z, chart)."""
        return self.kernels.inside(self.scores, self.lengths)

    @property
    def log_z(self) -> PerElement:
        """log Z in float64."""
        return self._inside[0]

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * P(span) [b n n]."""
        roots = weights.detach().double().contiguous()
        out = self.kernels.marginals(self.scores, self.lengths, self._inside[1], roots)
        return (out.to(self.dtype),)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[span, U] [b n n], and E[U] [b]: through the reference."""
        results = tangents_by(
            lambda x: reference_tree_log_partition(x, self.lengths),
            weights.double(),
            (self.scores,),
            tuple(x.double() for x in directions),
        )
        return tuple(x.to(self.dtype) for x in results)

    def best(self) -> Bool[Tensor, "b n n"]:
        """The spans of the tree with the highest score (none where no tree is possible)."""
        return self.kernels.best_tree(self.scores, self.lengths)

    def sample(self, potentials: LabelledSpans, count: int, seed: int) -> Int[Tensor, "m b n n"]:
        """`count` labelled trees for each element: labels of spans, -1 elsewhere.

        The scores are the potentials summed over the labels in log space.
        """
        b, n, _ = self.scores.shape
        device = self.scores.device
        generator = torch.Generator(device=device).manual_seed(seed % 2**63)
        uniform = torch.rand(
            (count, b, 2 * n, 2), generator=generator, device=device, dtype=torch.float64
        )
        given = potentials.detach().contiguous()
        return self.kernels.sample_trees(self.scores, given, self.lengths, self._inside[1], uniform)
