"""Factored grammars on a GPU: log Z, derivatives, posteriors of spans, samples."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.limits import GRAMMAR_MULTIPLE, GRAMMAR_SLACK, LOWRANK_GPU_TINY
from inout.kernels.lowrank.cpu.grammar_passes import CpuFactoredGrammarPasses, torch_span_marginals
from inout.kernels.lowrank.gpu import sampling
from inout.kernels.lowrank.gpu.grammar import Chart, Potentials, Weights
from inout.kernels.lowrank.gpu.passes import Functions, ScaledPasses
from inout.kernels.lowrank.reference import reference_factored_grammar
from inout.kernels.math.precision import exact_products


def inside(*given: Tensor) -> Chart:
    """The chart of root, head, left, right and words, given with the lengths."""
    *potentials, lengths = given
    with exact_products(lengths):
        chart = Chart(Weights(Potentials(*potentials)), lengths)
        chart.log_z  # noqa: B018  # made with the rest of a recording
        return chart


def gradients(chart: Chart, weights: Tensor) -> tuple[Tensor, ...]:
    """Gradients of weights . log Z by root, head, left, right and words."""
    with exact_products(weights):
        return chart.gradients(chart.shares(weights))


class GpuFactoredGrammarPasses(ScaledPasses):
    """Elements at one setting of root, head, left, right and words; see `Potentials`."""

    reference = staticmethod(reference_factored_grammar)

    def __init__(
        self,
        root: Tensor,
        head: Tensor,
        left: Tensor,
        right: Tensor,
        words: Tensor,
        lengths: Tensor,
        *,
        record: bool = True,
    ) -> None:
        real = torch.arange(words.shape[1], device=lengths.device) < lengths[:, None]
        kept = words.where(real[..., None], 0.0)
        given = (x.detach() for x in (root, head, left, right, kept))
        super().__init__(tuple(given), lengths, record=record)

    @property
    def functions(self) -> Functions:
        return inside, gradients

    def _wider(self, *given: Tensor) -> GpuFactoredGrammarPasses:
        return GpuFactoredGrammarPasses(*given, record=False)

    @cached_property
    def bad(self) -> Int[Tensor, " bad"]:
        """The elements in which something possible that may matter became 0.

        As on the CPU, see `ScaledPasses` in `math/underflow.py`; asks the device once if nothing
        was low.
        """
        chart: Chart = self.chart
        tiny = LOWRANK_GPU_TINY.of(chart.total.dtype)
        low = (chart.low | ~(chart.total >= tiny)) & (self.lengths > 1)
        if not bool(low.any()):
            return low.nonzero()[:, 0]
        with exact_products(self.lengths):
            floor = GRAMMAR_MULTIPLE.of(chart.total.dtype) * tiny
            upper = Chart(chart.weights, self.lengths, floor).log_z
            fits = upper <= chart.log_z + GRAMMAR_SLACK.of(chart.total.dtype)
            unsure = low & (chart.weights.doubtful | ~fits)
            if not bool(unsure.any()):
                return unsure.nonzero()[:, 0]
            weights = Weights(Potentials(*self.potentials), possible=True)
            possible = Chart(weights, self.lengths)
            lost = ((possible.sums > 0) & (chart.sums == 0)).flatten(1).any(1)
            lost |= chart.weights.doubtful | ~(chart.total >= tiny)
            return (unsure & lost & (possible.total > 0)).nonzero()[:, 0]

    def span_marginals(self) -> Float[Tensor, "b n n nt"]:
        """Posteriors of nonterminals over spans, in float64."""
        ones = torch.ones_like(self.chart.total).index_fill(0, self.bad, 0.0)
        with exact_products(ones):
            result: Tensor = self.chart.span_marginals(self.chart.shares(ones))
        if isinstance(self.fallback, GpuFactoredGrammarPasses):
            result[self.bad] = self.fallback.span_marginals()
        elif self.fallback is not None:
            *potentials, words, lengths = self._of(self.bad)
            real = torch.arange(words.shape[1], device=words.device) < lengths[:, None]
            words = words.where(real[..., None], -torch.inf)
            result[self.bad] = torch_span_marginals(*potentials, words, lengths)
        return result

    def sample(self, count: int, seed: int) -> Int[Tensor, "m b n n"]:
        """`count` independent trees of each element; -1 everywhere if there is none."""
        with exact_products(self.lengths):
            events = sampling.sample_trees(self.chart, count, seed)
        if isinstance(self.fallback, GpuFactoredGrammarPasses):
            events[:, self.bad] = self.fallback.sample(count, seed)
        elif self.fallback is not None:
            passes = CpuFactoredGrammarPasses(*(x.cpu() for x in self._of(self.bad)))
            events[:, self.bad] = passes.sample(count, seed).to(events.device)
        return events
