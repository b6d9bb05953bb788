"""The forward algorithm of semi-Markov chains in any semiring, differentiable to any order."""

from __future__ import annotations

from typing import TypeVar

import torch

from inout.kernels.shapes import Lengths, PerElement, Segments
from inout.semirings import Log, Semiring

Elements = TypeVar("Elements")


def reference_forward(
    semiring: Semiring[Elements],
    segments: Elements,
    size: tuple[int, int, int, int],
    lengths: Lengths,
) -> Elements:
    """Total weight of all segmentations of each element, [b] elements.

    `segments` are the lifted potentials [b n w s s] (last position, width - 1, previous label,
    label), flattened to one leading dimension; `size` is (b, n, w, s). alpha[t] is the sum over
    widths d and previous labels of alpha[t - d] * segment; a first segment has previous label 0.
    O(b n w s²) semiring operations in n w vectorised steps. Padding is never touched.
    """
    b, n, w, s = size
    label = torch.arange(s, device=lengths.device)
    empty = (lengths == 0).nonzero()[:, 0]
    total = semiring.sum(semiring.one(len(empty)), empty, b)
    alphas: list[Elements] = [semiring.zero(b * s)]
    for t in range(1, n + 1):
        active = (lengths >= t).nonzero()[:, 0]
        alpha = semiring.zero(b * s)
        for d in range(1, min(w, t) + 1):
            previous = label[:1] if d == t else label
            block = ((active * n + t - 1) * w + d - 1)[:, None, None]
            rows = ((block * s + previous[:, None]) * s + label).reshape(-1)
            heads = (active[:, None, None] * s + label).expand(-1, len(previous), s).reshape(-1)
            terms = semiring.take(segments, rows)
            if d < t:
                tails = (active[:, None, None] * s + previous[:, None]).expand(-1, s, s).reshape(-1)
                terms = semiring.times(semiring.take(alphas[t - d], tails), terms)
            alpha = semiring.plus(alpha, semiring.sum(terms, heads, b * s))
        alphas.append(alpha)
        # Elements that end here contribute; each ends once.
        ends = (lengths == t).nonzero()[:, 0]
        rows = (ends[:, None] * s + label).reshape(-1)
        total = semiring.plus(
            total, semiring.sum(semiring.take(alpha, rows), ends.repeat_interleave(s), b)
        )
    return total


def reference_log_partition(potentials: Segments, lengths: Lengths) -> PerElement:
    """log Z of each element by autograd-recorded torch code: the slow twin of `op.py`.

    Computed in float64: in log space, large potentials would leave few digits of float32.
    """
    b, n, w, s, _ = potentials.shape
    segments = potentials.double().reshape(-1)
    semiring = Log(dtype=torch.float64, device=potentials.device)
    total = reference_forward(semiring, segments, (b, n, w, s), lengths)
    # A sum of nothing: elements too short to use a potential still have a gradient, 0.
    return (total + segments[:0].sum()).to(potentials.dtype)
