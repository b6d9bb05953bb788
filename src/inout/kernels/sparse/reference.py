"""log Z of sentences under a sparse grammar in plain torch code: slow, and to be read."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays


def reference_log_partition(
    rules: RuleArrays,
    sentences: SentenceArrays,
    binary_log_weights: Float[Tensor, " r"] | Float[Tensor, "cells r"],
    unary_log_weights: Float[Tensor, " u"] | Float[Tensor, "cells u"],
    word_log_weights: Float[Tensor, " entries"],
    beam: float = 0.0,
) -> Float[Tensor, " b"]:
    """log Z [b], in log space, span by span.

    below(A, i, j) = sum over A -> B C and k of weight * above(B, i, k) above(C, k + 1, j), and of
    the entries of A over i..j; above(A, i, j) = below(A, i, j) + sum over A -> B of
    weight * below(B, i, j). Both are 0 where A is not allowed over i..j, above(A, i, j) also where
    it is less than beam times the largest. O(n³ rules) for a sentence.
    """
    s = rules.num_symbols
    order, head, left, right, unary_head, unary_child = (
        torch.from_numpy(x).long()
        for x in (
            rules.ways.order, rules.grammar.rule_head, rules.ways.rule_left, rules.ways.rule_right,
            rules.grammar.unary_head, rules.grammar.unary_child,
        )
    )  # fmt: skip
    binary, unary = (x if x.ndim == 2 else x[None] for x in (binary_log_weights, unary_log_weights))
    binary = binary[:, order]
    lowest = math.log(beam) if beam > 0 else -math.inf
    results = []
    for b in range(len(sentences)):
        first, last = int(sentences.starts[b]), int(sentences.starts[b + 1])
        above: dict[tuple[int, int], Tensor] = {}
        for width in range(1, last - first + 1):
            for i in range(first, last - width + 1):
                j = i + width - 1
                cell = int(sentences.cell_starts[b]) + (i - first) * (last - first) + j - first
                own, symbols = _entries(sentences, i if width == 1 else None, cell)
                rule_logs = binary[cell if binary_log_weights.ndim == 2 else 0]
                splits = [above[i, k][left] + above[k + 1, j][right] for k in range(i, j)]
                values = torch.cat([word_log_weights[own], *(rule_logs + x for x in splits)])
                allowed = _allowed(sentences, cell)
                below = _sums(values, torch.cat([symbols, head.repeat(width - 1)]), s)
                below = torch.where(allowed, below, -torch.inf)
                rule_logs = unary[cell if unary_log_weights.ndim == 2 else 0]
                values = torch.cat([below, rule_logs + below[unary_child]])
                here = _sums(values, torch.cat([torch.arange(s), unary_head]), s)
                kept = allowed & (here >= here.max() + lowest)
                above[i, j] = torch.where(kept, here, -torch.inf)
        nothing = word_log_weights.new_full((), -torch.inf)
        results.append(above[first, last - 1][rules.grammar.root] if last > first else nothing)
    return torch.stack(results) if results else word_log_weights.new_empty(0)


def _entries(
    sentences: SentenceArrays, position: int | None, cell: int
) -> tuple[Int64[Tensor, " e"], Int64[Tensor, " e"]]:
    """(numbers, symbols) of the entries of a cell; position is that of a single word."""
    numbers: list[int] = []
    if position is not None:
        numbers += range(*sentences.offsets[position : position + 2].tolist())
    if len(sentences.arc_offsets):
        first, last = sentences.arc_offsets[cell : cell + 2].tolist()
        numbers += range(len(sentences.symbols) + first, len(sentences.symbols) + last)
    symbols = np.append(sentences.symbols, sentences.arc_symbols)
    chosen = torch.tensor(numbers, dtype=torch.long)
    return chosen, torch.from_numpy(symbols).long()[chosen]


def _allowed(sentences: SentenceArrays, cell: int) -> Bool[Tensor, " s"]:
    """Which symbols a cell may have; one number for all of them."""
    if not len(sentences.allowed):
        return torch.ones(1, dtype=torch.bool)
    return torch.from_numpy(sentences.allowed[cell])


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
