"""log Z, inside and outside values under a sparse grammar in plain torch code, to be read."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays

Cells = dict[tuple[int, int], Tensor]  # by first and last word: [symbols]


class LogWeights(NamedTuple):
    """Log-weights of rules, for all cells or with a row for each, and of the chart's entries."""

    binary: Float[Tensor, " r"] | Float[Tensor, "cells r"]
    unary: Float[Tensor, " u"] | Float[Tensor, "cells u"]
    words: Float[Tensor, " entries"]


def reference_log_partition(
    rules: RuleArrays, sentences: SentenceArrays, logs: LogWeights, beam: float = 0.0
) -> Float[Tensor, " b"]:
    """log Z [b], in log space, span by span: O(n³ rules) for a sentence."""
    weights = _Weights(rules, sentences, logs)
    results = []
    for b, n in enumerate(sentences.lengths.tolist()):
        nothing = logs.words.new_full((), -torch.inf)
        above, _ = weights.inside(b, beam)
        results.append(above[0, n - 1][rules.grammar.root] if n else nothing)
    return torch.stack(results) if results else logs.words.new_empty(0)


def inside_log_values(
    rules: RuleArrays, sentences: SentenceArrays, logs: LogWeights, beam: float = 0.0
) -> Float[Tensor, "n n s"]:
    """log of above(A, i, j) of the only sentence, span by span; differentiable."""
    weights = _Weights(rules, sentences, logs)
    return weights.square(weights.inside(0, beam)[0])


def outside_log_values(
    rules: RuleArrays, sentences: SentenceArrays, logs: LogWeights, beam: float = 0.0
) -> Float[Tensor, "n n s"]:
    """log ∂Z/∂below(A, i, j) of the only sentence: of a node A, also in the midst of a chain.

    Nothing is divided by, so symbols of value 0 have one too. Differentiable. O(n³ rules).
    """
    weights = _Weights(rules, sentences, logs)
    return weights.square(weights.outside(0, beam))


class _Weights:
    """The arguments of the functions above, and their recursions.

    below(A, i, j) = sum over A -> B C and k of weight * above(B, i, k) above(C, k + 1, j), and of
    the entries of A over i..j; above(A, i, j) = below(A, i, j) + sum over A -> B of
    weight * below(B, i, j). Both are 0 where A is not allowed over i..j, above(A, i, j) also where
    it is less than beam times the largest.
    """

    def __init__(self, rules: RuleArrays, sentences: SentenceArrays, logs: LogWeights) -> None:
        grammar, ways = rules.grammar, rules.ways
        self.size, self.root, self.sentences, self.words = (
            rules.num_symbols, grammar.root, sentences, logs.words,
        )  # fmt: skip
        self.binary, self.unary = (x if x.ndim == 2 else x[None] for x in logs[:2])
        self.binary = self.binary[:, torch.from_numpy(ways.order).long()]
        self.head, self.left, self.right, self.unary_head, self.unary_child = (
            torch.from_numpy(x).long()
            for x in (
                grammar.rule_head, ways.rule_left, ways.rule_right,
                grammar.unary_head, grammar.unary_child,
            )
        )  # fmt: skip

    def cell(self, b: int, i: int, j: int) -> int:
        n = int(self.sentences.lengths[b])
        return int(self.sentences.cell_starts[b]) + i * n + j

    def rows(self, rows: Tensor, cells: list[int]) -> Tensor:
        """The weights over these cells, a row for each or one for all."""
        return rows[cells] if len(rows) > 1 else rows

    def square(self, values: Cells) -> Float[Tensor, "n n s"]:
        n = int(self.sentences.lengths[0])
        nothing = self.words.new_full((self.size,), -torch.inf)
        chart = [values.get((i, j), nothing) for i in range(n) for j in range(n)]
        return torch.stack(chart).reshape(n, n, -1) if n else nothing.new_empty(0, 0, self.size)

    def inside(self, b: int, beam: float) -> tuple[Cells, Cells]:
        """above over the spans of a sentence, and where it is neither barred nor dropped."""
        n, first, s = int(self.sentences.lengths[b]), int(self.sentences.starts[b]), self.size
        lowest = math.log(beam) if beam > 0 else -math.inf
        above: Cells = {}
        usable: Cells = {}
        for width in range(1, n + 1):
            for i in range(n - width + 1):
                j = i + width - 1
                cell = self.cell(b, i, j)
                own, symbols = _entries(self.sentences, first + i if width == 1 else None, cell)
                logs = self.rows(self.binary, [cell])[0]
                splits = [above[i, k][self.left] + above[k + 1, j][self.right] for k in range(i, j)]
                values = torch.cat([self.words[own], *(logs + x for x in splits)])
                allowed = _allowed(self.sentences, cell)
                below = log_sums(values, torch.cat([symbols, self.head.repeat(width - 1)]), s)
                below = torch.where(allowed, below, -torch.inf)
                logs = self.rows(self.unary, [cell])[0]
                values = torch.cat([below, logs + below[self.unary_child]])
                here = log_sums(values, torch.cat([torch.arange(s), self.unary_head]), s)
                usable[i, j] = allowed & (here >= here.max() + lowest)
                above[i, j] = torch.where(usable[i, j], here, -torch.inf)
        return above, usable

    def outside(self, b: int, beam: float) -> Cells:
        """∂Z/∂below over the spans of a sentence, where neither barred nor dropped."""
        above, usable = self.inside(b, beam)
        n, s = int(self.sentences.lengths[b]), self.size
        back: Cells = {}
        found: Cells = {}
        for width in range(n, 0, -1):
            for i in range(n - width + 1):
                j = i + width - 1
                # Of each parent: its span, and that of the other child, which is on the right
                # or on the left.
                later = [((i, k), (j + 1, k), self.right) for k in range(j + 1, n)]
                earlier = [((k, j), (k, i - 1), self.left) for k in range(i)]
                values = [
                    self.rows(self.binary, [self.cell(b, *whole)])[0]
                    + (back[whole][self.head] + above[other][side])
                    for whole, other, side in later + earlier
                ]
                places = [self.left] * len(later) + [self.right] * len(earlier)
                if width == n:
                    values, places = [self.words.new_zeros(1)], [torch.tensor([self.root])]
                alphas = log_sums(torch.cat(values), torch.cat(places), s)
                alphas = torch.where(usable[i, j], alphas, -torch.inf)
                logs = self.rows(self.unary, [self.cell(b, i, j)])[0]
                values = [alphas, logs + alphas[self.unary_head]]
                places = [torch.arange(s), self.unary_child]
                total = log_sums(torch.cat(values), torch.cat(places), s)
                allowed = _allowed(self.sentences, self.cell(b, i, j))
                back[i, j] = torch.where(allowed, total, -torch.inf)
                found[i, j] = torch.where(usable[i, j], total, -torch.inf)
        return found


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


def log_sums(values: Tensor, places: Tensor, size: int) -> Tensor:
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
