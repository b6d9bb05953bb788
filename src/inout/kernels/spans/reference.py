"""The inside algorithm of binary trees over scored spans in any semiring; any derivative."""

from __future__ import annotations

from typing import TypeVar

import torch

from inout.kernels.shapes import Lengths, PerElement, Spans
from inout.semirings import Log, Semiring

Elements = TypeVar("Elements")


def reference_tree_inside(
    semiring: Semiring[Elements], spans: Elements, size: tuple[int, int], lengths: Lengths
) -> Elements:
    """Total weight of the binary trees over each element, [b] elements.

    beta(i, j) = span(i, j) * sum over k of beta(i, k) beta(k + 1, j), and beta(i, i) = span(i, i).
    `spans` are the lifted weights [b n n] flattened, `size` is (b, n). O(b n³) in n steps.
    """
    b, n = size
    element = torch.arange(b, device=lengths.device)
    chart: dict[int, Elements] = {}  # by width: [b, n - width + 1] flattened
    total = semiring.zero(b)
    for width in range(1, n + 1):
        count = n - width + 1
        start = torch.arange(count, device=lengths.device)
        rows = (element[:, None] * n + start) * n + start + width - 1
        values = semiring.take(spans, rows.reshape(-1))
        if width > 1:
            head = (element[:, None] * count + start).reshape(-1)
            products = []
            for left in range(1, width):
                right = width - left
                l_rows = element[:, None] * (n - left + 1) + start
                r_rows = element[:, None] * (n - right + 1) + start + left
                products.append(
                    semiring.times(
                        semiring.take(chart[left], l_rows.reshape(-1)),
                        semiring.take(chart[right], r_rows.reshape(-1)),
                    )
                )
            inner = semiring.sum(semiring.cat(products), head.repeat(width - 1), b * count)
            values = semiring.times(inner, values)
        chart[width] = values
        ends = (lengths == width).nonzero()[:, 0]
        total = semiring.plus(total, semiring.sum(semiring.take(values, ends * count), ends, b))
    return total


def reference_tree_log_partition(scores: Spans, lengths: Lengths) -> PerElement:
    """log Z of unlabelled trees by autograd-recorded torch code."""
    b, n, _ = scores.shape
    semiring = Log(dtype=scores.dtype, device=scores.device)
    return reference_tree_inside(semiring, semiring.lift(scores.reshape(-1)), (b, n), lengths)
