"""The forward algorithm of semi-Markov chains in plain torch code, differentiable to any order."""

from __future__ import annotations

import torch

from inout.kernels.math.reweighting import log_sum
from inout.kernels.shapes import Lengths, PerElement, Segments


def reference_log_partition(potentials: Segments, lengths: Lengths) -> PerElement:
    """log Z of each element by autograd-recorded torch code: the slow twin of `op.py`.

    alpha[t] is the sum over widths d and previous labels of alpha[t - d] * segment; a first segment
    has previous label 0. O(b n w s²) in n w vectorised steps. Computed in float64: in log space,
    large potentials would leave few digits of float32.
    """
    n, w = potentials.shape[1:3]
    # NaN in the padding would reach the gradient as 0 * NaN.
    real = torch.arange(n, device=lengths.device) < lengths[:, None]
    segments = potentials.double().where(real[..., None, None, None], 0.0)
    # A sum of nothing: elements too short to use a potential still have a gradient, 0.
    total = segments[:, :0].sum((1, 2, 3, 4))
    alphas = [total]  # of the beginning, never used
    for t in range(1, n + 1):
        ways = [
            log_sum(alphas[t - d][..., None] + segments[:, t - 1, d - 1], 1)
            for d in range(1, min(w, t - 1) + 1)
        ]
        if t <= w:
            ways.append(segments[:, t - 1, t - 1, 0])
        alphas.append(log_sum(torch.stack(ways), 0))
        total = torch.where(lengths == t, log_sum(alphas[t], 1), total)
    return total.to(potentials.dtype)
