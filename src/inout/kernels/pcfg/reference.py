"""The inside algorithm of weighted grammars in plain torch code; any derivative."""

from __future__ import annotations

from collections import defaultdict

import torch
from jaxtyping import Float
from torch import Tensor

from inout.kernels.math.reweighting import log_sum
from inout.kernels.shapes import Lengths, PerElement, Rules, Words


def reference_grammar_log_partition(
    root: Float[Tensor, "br nt"], rules: Rules, preterminals: Words, lengths: Lengths
) -> PerElement:
    """log Z of a grammar's trees by autograd-recorded torch code: the slow twin of `op.py`.

    beta(A, i, j) = sum over B, C of rule(A, B, C) * sum over k of beta(B, i, k) beta(C, k + 1, j).
    Always in float64: large float32 logarithms would lose the differences between trees.
    O(b n² nt s² + b n³ s²).
    """
    b, n, _ = preterminals.shape
    nt = root.shape[-1]
    real = torch.arange(n, device=lengths.device) < lengths[:, None]
    root, rules = root.double(), rules.double()
    # By width - 1: [b, count, symbols of that width], which are the preterminals at width 1.
    chart = [preterminals.double().where(real[..., None], -torch.inf)]
    symbols = slice(nt, None), slice(nt)  # over a word, over more
    total = root.new_full((b,), -torch.inf)
    for width in range(2, n + 1):
        count = n - width + 1
        pairs: dict[tuple[bool, bool], list[Tensor]] = defaultdict(list)
        for left in range(1, width):
            right = width - left
            before, after = chart[left - 1][:, :count], chart[right - 1][:, left : left + count]
            pairs[left > 1, right > 1].append(before[..., None] + after[..., None, :])
        heads = []
        for (wide_left, wide_right), splits in pairs.items():
            own = rules[:, None, :, symbols[wide_left], symbols[wide_right]]
            heads.append(log_sum(own + log_sum(torch.stack(splits), 0)[:, :, None], (3, 4)))
        chart.append(log_sum(torch.stack(heads), 0))
        total = torch.where(lengths == width, log_sum(root + chart[-1][:, 0], 1), total)
    return total.to(preterminals.dtype)
