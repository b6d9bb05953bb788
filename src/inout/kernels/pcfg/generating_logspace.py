"""Generating functions of grammars in log space, about a mean for each symbol over each span.

Slower than the scaled form, for elements that do not fit it: no weight is too small here, and
functions may vary much less than their values do.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Inexact
from torch import Tensor

from inout.kernels.math.reweighting import reweighted, shares
from inout.kernels.pcfg.generating_values import ValuedGrammar
from inout.kernels.shapes import Generated, Lengths
from inout.series.lanes import Lanes


def log_space_generating_function(
    lanes: Lanes, grammar: ValuedGrammar, lengths: Lengths, shift: float
) -> Generated:
    """E[exp(z · (F − centres))] of each element, and the centres; 0 where there is no tree.

    The lanes of a symbol over a span are an expectation given that it is there, so every weight
    is a probability given what is above it: that of a split given both symbols below, that of a
    rule given its head. O(b n³ nt² l + b n² nt s² l), or l² for power series; as much memory if
    derivatives are wanted.
    """
    chart = _Chart(lanes, grammar, shift)
    for width in range(2, 1 + grammar.words.shape[1]):
        chart.add(width)
    places = (lengths - 2).clamp(min=0), torch.arange(len(lengths), device=lengths.device)
    x, means, logs = (
        torch.stack([y[..., 0, :].movedim(-2, 0) for y in found[1:]])[places]
        for found in (chart.lanes, chart.means, chart.logs)
    )  # [b l nt], [b k nt], [b nt]
    with torch.no_grad():
        chances, _ = shares(grammar.root + logs)
        chances = chances.where(lengths[:, None] > 1, 0.0)
        below = means.movedim(1, 0)
        centres = (chances * (grammar.root_values + below)).sum(-1)
    off = grammar.root_values + (below - centres[..., None])
    weights = reweighted(chances, grammar.root) * lanes.exponential(off)
    return lanes.times(weights, x.movedim(1, 0)).sum(-1), centres


class _Chart:
    """By width: `lanes` [l b count symbols] about `means` [k …], and log inside values `logs`."""

    def __init__(self, lanes: Lanes, grammar: ValuedGrammar, shift: float) -> None:
        self.algebra, self.grammar, self.shift = lanes, grammar, shift
        means = self._moved(grammar.word_values.detach())
        words = lanes.exponential(grammar.word_values - means)
        self.lanes = [reweighted(words, grammar.words)]
        self.means = [means]
        self.logs = [grammar.words.detach()]

    def _moved(self, means: Inexact[Tensor, "k b count symbols"]) -> Tensor:
        """Means moved by the shift and irregularly."""
        place = torch.arange(means[0, 0].numel(), dtype=torch.float64, device=means.device)
        return means + self.shift * torch.cos(1 + 7 * place).reshape(means.shape[2:])

    def add(self, width: int) -> None:
        """The symbols of the spans of the next width."""
        nt, values = self.grammar.num_nonterminals, self.grammar.rule_values
        if values is None:
            zero = torch.zeros_like(self.means[0][:, :1, :1, :1, None])
            values = zero.expand(-1, *self.grammar.rules.shape)
        symbols = slice(nt, None), slice(nt)  # over a word, over more
        blocks = []
        for first, last in _blocks(width):
            of = (..., symbols[first > 1], symbols[width - last > 1])
            pairs = self._pairs(width, range(first, last + 1))
            blocks.append((self.grammar.rules[of], values[of], *pairs))
        rules, values, x, means, logs = (
            torch.cat([y.flatten(-2) for y in column], -1) for column in zip(*blocks, strict=True)
        )
        rules, values = rules[:, None], values[:, :, None]  # [m 1 A BC], [k m 1 A BC]
        with torch.no_grad():
            chances, total = shares(rules.detach() + logs[:, :, None])
            below = means[:, :, :, None]
            centre = self._moved((chances * (values + below)).sum(-1))
            below = below - centre[..., None]
        weights = reweighted(chances, rules) * self.algebra.exponential(values + below)
        self.lanes.append(self.algebra.matmul(weights, x[..., None])[..., 0])
        self.means.append(centre)
        self.logs.append(total)

    def _pairs(self, width: int, lefts: range) -> tuple[Tensor, Tensor, Tensor]:
        """Two symbols next to each other in a span: lanes, means and log-weights [… count B C]."""
        count = self.logs[0].shape[1] - width + 1
        places = [(w - 1, width - w - 1, slice(w, w + count)) for w in lefts]

        def sides(found: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
            for left, right, after in places:
                before = found[left][..., :count, :, None]
                yield before, found[right][..., after, None, :]

        with torch.no_grad():
            logs = torch.stack([left + right for left, right in sides(self.logs)], -1)
            below = torch.stack([left + right for left, right in sides(self.means)], -1)
            chances, total = shares(logs)
            means = (chances * below).sum(-1)
            below = below - means[..., None]
        terms = []
        for k, factors in enumerate(sides(self.lanes)):
            shift = chances[..., k] * self.algebra.exponential(below[..., k])
            terms.append(self.algebra.times(shift, self.algebra.times(*factors)))
        return torch.stack(terms).sum(0), means, total


def _blocks(width: int) -> Iterator[tuple[int, int]]:
    """Left widths, from and to, of the splits with words on the same sides."""
    yield 1, 1
    if width > 3:
        yield 2, width - 2
    if width > 2:
        yield width - 1, width - 1
