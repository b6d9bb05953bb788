"""The inside algorithm of binary trees over scored spans in plain torch code; any derivative."""

from __future__ import annotations

import torch
from torch import Tensor

from inout.kernels.math.reweighting import log_sum
from inout.kernels.shapes import Lengths, PerElement, Spans


def reference_tree_log_partition(scores: Spans, lengths: Lengths) -> PerElement:
    """log Z of unlabelled trees by autograd-recorded torch code: the slow twin of `op.py`.

    beta(i, j) = span(i, j) * sum over k of beta(i, k) beta(k + 1, j), and beta(i, i) = span(i, i).
    O(b n³) in n steps.
    """
    b, n, _ = scores.shape
    chart: list[Tensor] = []  # by width - 1: [b n-width+1]
    total = scores.new_full((b,), -torch.inf)
    for width in range(1, n + 1):
        betas = scores.diagonal(width - 1, 1, 2)
        if width > 1:
            count = n - width + 1
            splits = [
                chart[left - 1][:, :count] + chart[width - left - 1][:, left : left + count]
                for left in range(1, width)
            ]
            betas = betas + log_sum(torch.stack(splits), 0)
        chart.append(betas)
        total = torch.where(lengths == width, betas[:, 0], total)
    return total
