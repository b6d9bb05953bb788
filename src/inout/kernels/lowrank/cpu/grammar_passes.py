"""Factored grammars on the CPU: see `FactoredPasses`; posteriors of spans, and samples."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.lowrank.cpu import sampling
from inout.kernels.lowrank.cpu.grammar_chart import GrammarChart, LogChart, Potentials
from inout.kernels.lowrank.cpu.passes import FactoredPasses
from inout.kernels.lowrank.cpu.weights import per_element
from inout.kernels.lowrank.reference import factored_chart, reference_factored_grammar
from inout.kernels.math.underflow import Array
from inout.kernels.threads import over_batch


class CpuFactoredGrammarPasses(FactoredPasses):
    """Elements at one setting of root, head, left, right and words; see `Potentials`."""

    shortest = 2
    reference = staticmethod(reference_factored_grammar)
    chart_of = GrammarChart

    def __init__(self, *potentials_and_lengths: Tensor) -> None:
        *potentials, lengths = potentials_and_lengths
        given = Potentials(*(x.detach().contiguous().numpy() for x in potentials))
        self.lengths = lengths.contiguous().numpy()
        self.dtype = given.words.dtype
        real = np.arange(given.words.shape[1]) < self.lengths[:, None]
        words_given = np.where(real[..., None], given.words, self.dtype.type(-np.inf))
        self.potentials = given._replace(words=words_given)

    def span_marginals(self) -> Float[Tensor, "b n n nt"]:
        """Posteriors of nonterminals over spans, in float64."""
        ones = torch.ones(len(self.lengths))
        gradients, *_ = self.chart.outside(self.chart.weights.root * self._root_factors(ones))
        result: Array = (gradients * self.chart.betas).astype(np.float64)
        if isinstance(self.fallback, CpuFactoredGrammarPasses):
            result[self.bad] = self.fallback.span_marginals().numpy()
        elif self.fallback is not None:
            given = map(torch.from_numpy, [*self._of(self.bad), self.lengths[self.bad]])
            result[self.bad] = torch_span_marginals(*given).numpy()
        return torch.from_numpy(result)

    def log_chart(self) -> LogChart:
        """Logs of the chart."""
        chart, place = self.chart, np.arange(self.chart.size[1])
        scales = chart.log_scales()
        scales[:, place, place] = chart.scales.words  # a word is made by no rule
        # Children have met a factor of the rule above them.
        factors = (per_element(x)[1] for x in (self.potentials.left, self.potentials.right))
        tops = 0.0, *(x[:, None, None] for x in factors)
        given = chart.betas, chart.arrays.lefts, chart.arrays.rights
        with np.errstate(divide="ignore"):
            tables = [
                np.log(x.astype(np.float64)) + (scales + top)[..., None]
                for x, top in zip(given, tops, strict=True)
            ]
        return self._with_exact(LogChart(*tables), self._exact_log_chart)

    def _exact_log_chart(self) -> LogChart:
        return torch_log_chart(*map(torch.from_numpy, self._of(self.bad)[1:]))

    def sample(self, count: int, seed: int) -> Int[Tensor, "m b n n"]:
        """`count` independent trees of each element; -1 everywhere if there is none."""
        chart, log_z = self.log_chart(), self.log_z.numpy()
        given = Potentials(*(x.astype(np.float64, copy=False) for x in self.potentials))
        b, n, _ = given.words.shape
        events = np.empty((b, count, n, n), np.int64)

        def part(lo: int, hi: int) -> None:
            sampling.sample_trees(
                given, chart, self.lengths, log_z, lo, hi, np.uint64(seed), events
            )

        over_batch(part, b, b * count * n * (n * given.left.shape[1] + given.left.shape[2]))
        return torch.from_numpy(events.swapaxes(0, 1).copy())


def torch_span_marginals(*given: Tensor) -> Float[Tensor, "b n n nt"]:
    """Posteriors of nonterminals over spans: the gradient by scores of spans."""
    root, words = given[0], given[4]
    b, n, _ = words.shape
    with torch.inference_mode(False), torch.enable_grad():
        spans = torch.zeros(b, n, n, root.shape[-1], dtype=torch.float64, device=root.device)
        tensors = [*(x.detach().clone() for x in given), spans.requires_grad_()]
        log_z = reference_factored_grammar(*tensors)
        alive = torch.where(log_z == -torch.inf, 0.0, log_z)
        return torch.autograd.grad(alive.sum(), spans)[0]


def torch_log_chart(head: Tensor, left: Tensor, right: Tensor, words: Tensor) -> LogChart:
    """The chart of `factored_chart` as arrays [b n n ...]; the words' padding must be -inf."""
    b, n, pt = words.shape
    with torch.no_grad():
        found = factored_chart(head, left, right, words)
    nt, rank = left.shape[-1] - pt, left.shape[1]
    tables = LogChart(*(np.full((b, n, n, size), -np.inf) for size in (nt, rank, rank)))
    for table, rows in zip(tables, found, strict=True):
        for width, row in enumerate(rows, 1):
            if width > 1 or table is not tables.betas:
                place = np.arange(n - width + 1)
                table[:, place, place + width - 1] = row.cpu().numpy()
    return tables
