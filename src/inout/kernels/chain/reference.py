"""The forward algorithm of linear chains in plain torch code, differentiable to any order."""

from __future__ import annotations

import torch
from torch import Tensor

from inout.kernels.autograd import tangents_by
from inout.kernels.math.reweighting import log_sum
from inout.kernels.shapes import Emissions, Lengths, PerElement, Transitions


def reference_log_partition(
    emissions: Emissions, transitions: Transitions, lengths: Lengths
) -> PerElement:
    """log Z of each chain by autograd-recorded torch code: the slow twin of `op.py`.

    The alphas of step t are the sums over previous labels of alpha * transition, times emission;
    the empty chain weighs one. O(b n s²) in n vectorised steps.
    """
    n = emissions.shape[1]
    stationary = transitions.shape[1] == 1
    # NaN in the padding would reach the gradient as 0 * NaN.
    real = (torch.arange(n, device=lengths.device) < lengths[:, None])[..., None]
    emissions = emissions.where(real, 0.0)
    if transitions.shape[1] == n - 1:
        transitions = transitions.where(real[:, 1:, None], 0.0)
    # Sums of nothing: chains too short to use a potential still depend on it, with gradient 0.
    total = emissions[:, :0].sum((1, 2)) + transitions[:, :0].sum((1, 2, 3))
    for t in range(n):
        if t == 0:
            alphas = emissions[:, 0]
        else:
            block = transitions[:, 0 if stationary else t - 1]
            alphas = log_sum(alphas[..., None] + block, 1) + emissions[:, t]
        total = torch.where(lengths == t + 1, log_sum(alphas, 1), total)
    return total


def reference_tangents(
    emissions: Emissions,
    transitions: Transitions,
    lengths: Lengths,
    weights: PerElement,
    directions: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """Hessian of weights . log Z times the directions, and E[U] [b], by autograd."""

    def log_z(nodes: Tensor, pairs: Tensor) -> Tensor:
        return reference_log_partition(nodes, pairs, lengths)

    return tangents_by(log_z, weights, (emissions, transitions), directions)
