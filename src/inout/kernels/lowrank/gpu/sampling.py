"""Samples from the charts of factored models, all of them side by side, in torch code.

The latent value of a rule or a transition is drawn with the rest and dropped.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.limits import LOWRANK_DRAWS
from inout.kernels.lowrank.gpu.chain import Messages
from inout.kernels.lowrank.gpu.grammar import Chart
from inout.kernels.lowrank.gpu.scaling import draw


def sample_trees(chart: Chart, count: int, seed: int) -> Int[Tensor, "m b n n"]:
    """`count` trees of each element: symbols of spans, -1 elsewhere; O(n² r + n nt r) for each."""
    b, n, _, rank = chart.weights.size
    device, s = chart.sums.device, chart.weights.plain.left.shape[-1]
    generator = torch.Generator(device=device).manual_seed(seed % 2**63)
    uniform = torch.rand((count, b, n, 3), generator=generator, device=device, dtype=torch.float64)
    each = b * max(n * rank, 2 * s)
    parts = torch.split(uniform, max(LOWRANK_DRAWS // each, 1))
    return torch.cat([_Descent(chart, part).events for part in parts])


class _Spans(NamedTuple):
    """One span of each sample [m b]: first word, last word, symbol."""

    first: Tensor
    last: Tensor
    symbol: Tensor


class _Descent:
    """Trees drawn from the top, left children first; spans still to be split are on a stack."""

    def __init__(self, chart: Chart, uniform: Float[Tensor, "m b n 3"]) -> None:
        self.chart, self.weights = chart, chart.weights
        self.sample, self.element = torch.meshgrid(
            *(torch.arange(x, device=uniform.device) for x in uniform.shape[:2]), indexing="ij"
        )
        m, b, n, _ = uniform.shape
        self.events = torch.full((m, b, n, n), -1, device=uniform.device)
        self.stack = torch.zeros((m, b, n + 1, 3), dtype=torch.long, device=uniform.device)
        self.depth = torch.zeros_like(self.sample)
        last = (chart.lengths - 1).expand(m, b)
        symbols = self.weights.symbols(chart.whole[:, None])[:, 0] * self.weights.plain.root
        top = draw(symbols.expand(m, b, -1), uniform[..., 0, 0])
        some = (chart.total > 0) & (chart.lengths > 1)
        self._add(_Spans(torch.zeros_like(last), last, top), some.expand(m, b))
        for step in range(1, n):
            self._split(uniform[:, :, step])

    def _add(self, spans: _Spans, wanted: Tensor) -> None:
        """Writes spans into the events; those of several words go on the stack."""
        where = self.sample, self.element, spans.first, spans.last
        self.events[where] = torch.where(wanted, spans.symbol, self.events[where])
        pushed = wanted & (spans.first < spans.last)
        place = self.sample, self.element, self.depth
        above = torch.where(pushed[..., None], torch.stack(spans, -1), self.stack[place])
        self.stack[place] = above
        self.depth += pushed

    def _split(self, uniform: Float[Tensor, "m b 3"]) -> None:
        """Takes a span off the stack, and draws its split and its children."""
        active = self.depth > 0
        self.depth -= active.long()
        popped = self.stack[self.sample, self.element, self.depth]
        first, last, symbol = popped.unbind(-1)
        # What is drawn where nothing is left is not used, but must be a span.
        first, last = torch.where(active, first, 0), torch.where(active, last, 1)
        choices = self._choices(first, last, torch.where(active, symbol, 0))
        chosen = draw(choices.flatten(2), uniform[..., 0])
        rank = self.weights.rank
        split, latent = first + chosen // rank, chosen % rank
        plain = self.weights.plain
        for factor, i, j, u in (
            (plain.right, split + 1, last, uniform[..., 1]),
            (plain.left, first, split, uniform[..., 2]),
        ):
            own = self.element if len(factor) > 1 else torch.zeros_like(self.element)
            symbols = factor[own, latent] * self._symbols(i, j)
            self._add(_Spans(i, j, draw(symbols, u)), active)

    def _choices(self, first: Tensor, last: Tensor, symbol: Tensor) -> Float[Tensor, "m b n-1 r"]:
        """Weights of the splits and latent values of spans, given their symbols."""
        chart, plain, rank = self.chart, self.weights.plain, self.weights.rank
        n = self.events.shape[-1]
        width = torch.arange(n - 1, device=first.device)  # of the left part, less one
        inner = first[..., None] + width < last[..., None]
        element = self.element[..., None].expand(inner.shape)
        start = first[..., None].expand(inner.shape)
        after = torch.where(inner, start + width + 1, 0)
        rest = torch.where(inner, last[..., None] - after, 0)
        exponents = chart.exponents[element, 0, start, width.expand(inner.shape)]
        exponents = exponents + chart.exponents[element, 1, after, rest]
        exponents = torch.where(inner, exponents, -torch.inf)
        top = exponents.amax(-1, keepdim=True)
        shares = (exponents - torch.where(top == -torch.inf, 0.0, top)).exp2()
        left = chart.children[..., :rank][element, start, width.expand(inner.shape)]
        right = chart.children[..., rank:][element, after, rest]
        weights = left * right * shares[..., None].to(left.dtype)
        if not plain.head.shape[1]:
            values = torch.arange(rank, device=first.device)
            return weights * (values == symbol[..., None, None])
        own = self.element if len(plain.head) > 1 else torch.zeros_like(self.element)
        return weights * plain.head[own, symbol][..., None, :]

    def _symbols(self, first: Tensor, last: Tensor) -> Float[Tensor, "m b s"]:
        """What each symbol over spans adds up to."""
        sums = self.chart.sums[self.element, first, last - first]
        symbols = self.weights.symbols(sums.transpose(0, 1)).transpose(0, 1)
        words = self.weights.plain.words[self.element, first]
        word = (first == last)[..., None]
        return torch.cat([symbols * ~word, words * word], -1)


def sample_labels(chart: Messages, count: int, seed: int) -> Int[Tensor, "m b n"]:
    """`count` labellings of each element, drawn from the end; O(n (s + r)) for each."""
    b, n, s = chart.alphas.shape
    device = chart.alphas.device
    generator = torch.Generator(device=device).manual_seed(seed % 2**63)
    uniform = torch.rand((count, b, n, 2), generator=generator, device=device, dtype=torch.float64)
    parts = torch.split(uniform, max(LOWRANK_DRAWS // max(b * s, 1), 1))
    return torch.cat([_labels(chart, part) for part in parts])


def _labels(chart: Messages, uniform: Float[Tensor, "m b n 2"]) -> Int[Tensor, "m b n"]:
    m, b, n, _ = uniform.shape
    labels = torch.zeros((m, b, n), dtype=torch.long, device=uniform.device)
    element = torch.arange(b, device=uniform.device).expand(m, b)
    after = torch.zeros_like(element)
    for t in range(n - 1, -1, -1):
        weights = chart.alphas[:, t].expand(m, b, -1)
        if t + 1 < n:
            source, target = chart.weights.source_at(t + 1), chart.weights.target_at(t + 1)
            own = element if len(target) > 1 else torch.zeros_like(element)
            values = chart.latents[:, t + 1] * target.mT[own, after]
            latent = draw(values, uniform[:, :, t + 1, 0])
            own = element if len(source) > 1 else torch.zeros_like(element)
            bound = chart.real[:, t + 1, None]  # where a label comes after
            weights = weights * source.mT[own, latent].where(bound, 1.0)
        drawn = draw(weights, uniform[:, :, t, 1])
        after = torch.where(chart.real[:, t], drawn, after)
        labels[..., t] = torch.where(chart.real[:, t], drawn, 0)
    some = chart.log_z > -torch.inf
    return torch.where(some[:, None], labels, -1)
