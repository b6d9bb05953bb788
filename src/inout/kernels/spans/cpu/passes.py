"""Trees with one score per span, on the CPU: the compiled passes, divided among threads."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from inout.kernels.shapes import LabelledSpans, Lengths, Spans
from inout.kernels.spans.cpu import scaled
from inout.kernels.spans.cpu.scaled import Array, Chart
from inout.kernels.threads import over_batch


class CpuTreePasses:
    """Trees at one setting of their scores [b n n]; see `cpu` for the method."""

    def __init__(self, scores: Tensor, lengths: Tensor) -> None:
        self.scores: Array = scores.detach().contiguous().numpy()
        self.lengths: Array = lengths.contiguous().numpy()
        shape = self.scores.shape
        self.chart = Chart(np.empty(shape), np.empty(shape, np.int64))
        b, n, _ = self.scores.shape
        self.size, self.work = b, b * n**3
        log_z = np.empty(b)
        over_batch(
            lambda lo, hi: scaled.inside(self.scores, self.lengths, lo, hi, self.chart, log_z),
            self.size,
            self.work,
        )
        self.log_z = torch.from_numpy(log_z)

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * P(span) [b n n]."""
        roots, out = weights.detach().double().contiguous().numpy(), np.empty(self.scores.shape)
        over_batch(
            lambda lo, hi: scaled.marginals(self.lengths, lo, hi, self.chart, roots, out),
            self.size,
            self.work,
        )
        return (torch.from_numpy(out.astype(self.scores.dtype)),)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[span, U] [b n n], and E[U] [b]."""
        roots, out = weights.detach().double().contiguous().numpy(), np.empty(self.scores.shape)
        u, expected = directions[0].detach().contiguous().numpy(), np.empty(self.size)
        over_batch(
            lambda lo, hi: scaled.tangents(
                self.lengths, lo, hi, self.chart, roots, u, expected, out
            ),
            self.size,
            3 * self.work,
        )
        return torch.from_numpy(out.astype(self.scores.dtype)), torch.from_numpy(expected)

    def sample(self, potentials: LabelledSpans, count: int, seed: int) -> Int[Tensor, "m b n n"]:
        """`count` labelled trees for each element: labels of spans, -1 elsewhere.

        The scores are the potentials summed over the labels in log space.
        """
        given = potentials.detach().double().contiguous().numpy()
        b, n, _ = self.scores.shape
        labels = np.empty((b, count, n, n), np.int64)

        def part(lo: int, hi: int) -> None:
            for e in range(lo, hi):
                chart = Chart(*(x[e] for x in self.chart))
                first = e * count
                scaled.sample(given[e], self.lengths[e], chart, np.uint64(seed), first, labels[e])

        over_batch(part, b, b * count * n * n)
        return torch.from_numpy(labels.swapaxes(0, 1).copy())


def best_tree(scores: Spans, lengths: Lengths) -> Bool[Tensor, "b n n"]:
    """The spans of the tree with the highest score (none if no tree is possible); O(b n³)."""
    given = scores.detach().double().contiguous().numpy()
    chosen, best = np.empty(given.shape, np.bool_), np.empty(len(given))
    sizes = lengths.contiguous().numpy()
    over_batch(
        lambda lo, hi: scaled.viterbi(given, sizes, lo, hi, chosen, best), len(given), given.size
    )
    return torch.from_numpy(chosen)
