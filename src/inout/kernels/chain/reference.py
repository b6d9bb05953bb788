"""The forward algorithm of linear chains in any semiring, readable, differentiable to any order."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from inout.kernels.autograd import tangents_by
from inout.kernels.shapes import Emissions, Lengths, PerElement, Transitions
from inout.semirings import Log, Semiring

Elements = TypeVar("Elements")


def reference_forward(
    semiring: Semiring[Elements],
    nodes: Elements,
    pairs: Elements,
    size: tuple[int, int, int],
    lengths: Lengths,
    stationary: bool,
) -> Elements:
    """Total weight of all labellings of each chain, [b] elements.

    `nodes` are the lifted emissions [b n s] and `pairs` the lifted transitions [b n-1 s s] (or
    [b 1 s s]), each flattened to one leading dimension; `size` is (b, n, s). The alphas of step t
    are the sums over previous labels of alpha * pair, times node; the empty chain weighs one.
    O(b n s²) semiring operations in n vectorised steps. Padding is used in steps that do not
    affect the totals: it may be anything that does not make them fail, unlike NaN.
    """
    b, n, s = size
    device = lengths.device
    element = torch.arange(b, device=device)
    label = torch.arange(s, device=device)
    # Row numbers: (b, s) for nodes and alphas, (b, s, s) for pairs, in row-major order.
    alpha_rows = (element[:, None] * s + label).reshape(-1)
    empty = (lengths == 0).nonzero()[:, 0]
    total = semiring.sum(semiring.one(len(empty)), empty, b)
    alphas = semiring.one(b * s)
    steps = 1 if stationary else n - 1
    for t in range(n):
        node_rows = ((element[:, None] * n + t) * s + label).reshape(-1)
        if t == 0:
            alphas = semiring.take(nodes, node_rows)
        else:
            block = element * steps + (0 if stationary else t - 1)
            pair_rows = ((block[:, None, None] * s + label[:, None]) * s + label).reshape(-1)
            previous = alpha_rows.repeat_interleave(s)
            head = (element[:, None, None] * s + label).expand(b, s, s).reshape(-1)
            products = semiring.times(
                semiring.take(alphas, previous), semiring.take(pairs, pair_rows)
            )
            alphas = semiring.times(
                semiring.sum(products, head, b * s), semiring.take(nodes, node_rows)
            )
        # Chains that end here contribute; each element ends once.
        ends = (lengths == t + 1).nonzero()[:, 0]
        rows = (ends[:, None] * s + label).reshape(-1)
        total = semiring.plus(
            total, semiring.sum(semiring.take(alphas, rows), ends.repeat_interleave(s), b)
        )
    return total


def reference_log_partition(
    emissions: Emissions, transitions: Transitions, lengths: Lengths
) -> PerElement:
    """log Z of each chain by autograd-recorded torch code: the slow twin of `op.py`."""
    b, n, s = emissions.shape
    semiring = Log(dtype=emissions.dtype, device=emissions.device)
    stationary = transitions.shape[1] == 1
    # NaN in the padding would reach the gradient as 0 * NaN.
    real = (torch.arange(n, device=lengths.device) < lengths[:, None])[..., None]
    emissions = emissions.where(real, 0.0)
    transitions = transitions.expand(b, *transitions.shape[1:])
    if transitions.shape[1] == n - 1:
        transitions = transitions.where(real[:, 1:, None], 0.0)
    nodes, pairs = emissions.reshape(-1), transitions.reshape(-1)
    total = reference_forward(semiring, nodes, pairs, (b, n, s), lengths, stationary)
    # Sums of nothing: chains too short to use a potential still depend on it, with gradient 0.
    return total + nodes[:0].sum() + pairs[:0].sum()


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
