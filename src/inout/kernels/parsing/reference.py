"""log Z of sentences under a sparse grammar in plain torch code: slow, and to be read."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from inout.kernels.parsing.arrays import RuleArrays, SentenceArrays


def reference_log_partition(
    rules: RuleArrays,
    sentences: SentenceArrays,
    binary_log_weights: Float[Tensor, " r"],
    unary_log_weights: Float[Tensor, " u"],
    word_log_weights: Float[Tensor, " entries"],
) -> Float[Tensor, " b"]:
    """log Z [b], in log space, span by span.

    below(A, i, j) = sum over A -> B C and k of weight * above(B, i, k) above(C, k + 1, j), or of
    the entries of word i if i = j; above(A, i, j) = below(A, i, j) + sum over A -> B of
    weight * below(B, i, j). O(n³ rules) for a sentence.
    """
    s = rules.num_symbols
    order, head, left, right, unary_head, unary_child = (
        torch.from_numpy(x).long()
        for x in (
            rules.order, rules.rule_head, rules.rule_left, rules.rule_right,
            rules.unary_head, rules.unary_child,
        )
    )  # fmt: skip
    binary = binary_log_weights[order]
    symbols = torch.from_numpy(sentences.symbols).long()
    results = []
    for b in range(len(sentences)):
        first, last = int(sentences.starts[b]), int(sentences.starts[b + 1])
        above: dict[tuple[int, int], Tensor] = {}
        for width in range(1, last - first + 1):
            for i in range(first, last - width + 1):
                j = i + width - 1
                if width == 1:
                    own = slice(int(sentences.offsets[i]), int(sentences.offsets[i + 1]))
                    below = _sums(word_log_weights[own], symbols[own], s)
                else:
                    splits = [above[i, k][left] + above[k + 1, j][right] for k in range(i, j)]
                    values = torch.cat([binary + x for x in splits])
                    below = _sums(values, head.repeat(width - 1), s)
                values = torch.cat([below, unary_log_weights + below[unary_child]])
                above[i, j] = _sums(values, torch.cat([torch.arange(s), unary_head]), s)
        nothing = word_log_weights.new_full((), -torch.inf)
        results.append(above[first, last - 1][rules.root] if last > first else nothing)
    return torch.stack(results) if results else word_log_weights.new_empty(0)


def _sums(values: Tensor, places: Tensor, size: int) -> Tensor:
    """log of the sum of exp(values) at each place, -inf where there is none, its gradient 0."""
    tops = values.new_full((size,), -torch.inf)
    tops = tops.scatter_reduce(0, places, values.detach(), "amax")
    tops = torch.where(tops > -torch.inf, tops, 0.0)
    possible = values > -torch.inf
    shifted = torch.where(possible, values, 0.0) - torch.where(possible, tops[places], 0.0)
    totals = values.new_zeros(size).scatter_add(
        0, places, torch.where(possible, shifted.exp(), 0.0)
    )
    found = totals > 0
    return torch.where(found, torch.where(found, totals, 1.0).log() + tops, -torch.inf)
