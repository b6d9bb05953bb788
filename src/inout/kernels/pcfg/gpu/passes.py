"""Weighted grammars on a GPU: log Z, derivatives and single trees, by the kernels of `chart.py`.

Elements whose range does not fit scaled arithmetic are few: they are done on the CPU.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING
from weakref import finalize

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.limits import GRAMMAR_TINY
from inout.kernels.math.precision import exact_products
from inout.kernels.pcfg.cpu.passes import CpuGrammarPasses
from inout.kernels.recording import SHELF, Recording, signature
from inout.kernels.shapes import PerElement, Root, Trees

if TYPE_CHECKING:
    from inout.kernels.pcfg.gpu.chart import Chart


def inside(
    root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor
) -> tuple[Chart, Tensor, Tensor]:
    """(chart, total in the chart's scale, log Z in float64)."""
    from inout.kernels.pcfg.gpu import chart as charts  # here: triton is only where GPUs are

    with exact_products(words):
        weights = charts.weigh(root, rules, words, lengths)
        chart = charts.Chart(weights, GRAMMAR_TINY.of(words.dtype))
        return chart, *chart.totals()


def _root_gradient(chart: Chart, total: Tensor, weights: Tensor) -> Root:
    """Gradient of weights . log Z by the betas of whole elements; 0 for those without trees."""
    some = total > 0
    factors = torch.where(some, weights.to(total.dtype) / torch.where(some, total, 1.0), 0.0)
    return chart.weights.root * factors[:, None]


def gradients(chart: Chart, total: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of weights . log Z by root, rules and words."""
    at_root = _root_gradient(chart, total, weights)
    with exact_products(weights):
        return (at_root * chart.at_root(), *chart.gradients(at_root))


class _Recorded:
    """Inside and gradients for one shape of potentials; the second is of the first one's chart."""

    def __init__(self, *given: Tensor) -> None:
        self.inside = Recording(inside, *given)
        chart, total, _ = self.inside(*given)
        self.gradients = Recording(
            lambda w: gradients(chart, total, w), torch.ones_like(total), after=self.inside
        )

    @property
    def num_bytes(self) -> int:
        """What both keep."""
        return self.gradients.num_bytes + self.inside.input_bytes


class GpuGrammarPasses:
    """Elements [b ...] at one setting of root [b nt], rules [1|b nt s s] and words [b n pt]."""

    def __init__(self, root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> None:
        from inout.kernels.pcfg.gpu import chart as charts  # here: triton is only where GPUs are

        self.charts = charts
        self.root, self.rules, self.words = (x.detach().contiguous() for x in (root, rules, words))
        self.lengths = lengths.contiguous()

    @property
    def _given(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.root, self.rules, self.words, self.lengths

    @cached_property
    def _recorded(self) -> _Recorded | None:
        """Both passes for potentials of this shape, if it has come before: ours alone for now."""
        if not self.words.is_cuda:  # but run by Triton's interpreter
            return None
        key = inside, signature(*self._given)
        recorded: _Recorded | None = SHELF.take(key, lambda: _Recorded(*self._given))
        if recorded is not None:
            finalize(self, SHELF.give_back, recorded).atexit = False
        return recorded

    @cached_property
    def _inside(self) -> tuple[Chart, Tensor, Tensor]:
        """(chart, total in the chart's scale, log Z as far as it fits)."""
        return (self._recorded.inside if self._recorded else inside)(*self._given)

    @cached_property
    def _bad(self) -> Int[Tensor, " bad"]:
        """The elements in which something possible came out as 0.

        Asks the device once, and again only if a total was small: that may be no more than a
        symbol that is impossible, which the same chart with 1 for everything possible shows.
        """
        chart, total, _ = self._inside
        none = torch.empty(0, dtype=torch.long, device=total.device)
        if not bool(chart.low.any()):
            return none
        with exact_products(self.words):
            possible = self.charts.Chart(self.charts.possibilities(*self._given), 0.0)
            some, _ = possible.totals()
        lost = ((possible.betas > 0) & (chart.betas == 0)).flatten(1).any(1)
        unfit = (chart.low > 0) & (lost | ((some > 0) & ~(total >= chart.tiny)))
        return unfit.nonzero()[:, 0]

    @cached_property
    def _fallback(self) -> CpuGrammarPasses:
        """The elements that do not fit, on the CPU."""
        return CpuGrammarPasses(*(x.cpu() for x in self._of(self._bad, *self._given)))

    def _of(self, elements: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The part of tensors [b ..] that belongs to some elements; one set of rules is for all."""
        shared = len(self.rules) < len(self.words)
        return tuple(x if x.ndim == 4 and shared else x[elements] for x in tensors)

    @cached_property
    def log_z(self) -> PerElement:
        """log Z in float64."""
        log_z = self._inside[2].clone()
        if len(self._bad):
            log_z[self._bad] = self._fallback.log_z.to(log_z)
        return log_z

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradients by root, rules and words."""
        chart, total, _ = self._inside
        weights = weights.detach()
        given = weights.index_fill(0, self._bad, 0.0) if len(self._bad) else weights
        if self._recorded:
            results = tuple(x.clone() for x in self._recorded.gradients(given))
        else:
            results = gradients(chart, total, given)
        if len(self._bad):
            exact = self._fallback.gradients(weights[self._bad].cpu())
            for result, other in zip(results, exact, strict=True):
                own = other.to(result)
                if result.ndim == 4 and len(result) < len(self.words):
                    result += own
                else:
                    result[self._bad] = own
        return results

    def span_marginals(self) -> Float[Tensor, "b n n nt"]:
        """Posteriors of nonterminals over spans."""
        chart, total, _ = self._inside
        at_root = _root_gradient(chart, total, torch.ones_like(total).index_fill(0, self._bad, 0.0))
        with exact_products(self.words):
            result = chart.by_span(chart.outside(at_root)[0]).mul_(chart.betas).double()
        if len(self._bad):
            result[self._bad] = self._fallback.span_marginals().to(result)
        return result

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian times the directions for root, rules and words, and E[U]; on the CPU."""
        passes = CpuGrammarPasses(*(x.cpu() for x in self._given))
        own = tuple(x.detach().cpu() for x in directions)
        results = passes.tangents(weights.detach().cpu(), own)
        return tuple(x.to(self.words.device) for x in results)

    def best(self) -> Trees:
        """Symbols of the spans of the best tree, -1 elsewhere (everywhere if there is none).

        Ties go to a word on the left, then two nonterminals, then a word on the right; within
        these to the smaller symbols, then the first split.
        """
        with exact_products(self.words):
            chart = self.charts.Chart(self.charts.logarithms(*self._given), 0.0)
            return chart.descend(1, chart.betas)[0]

    def sample(self, count: int, seed: int) -> Int[Tensor, "m b n n"]:
        """`count` independent trees of each element; -1 throughout where there is none."""
        chart = self._inside[0]
        device, (b, n, _) = self.words.device, self.words.shape
        generator = torch.Generator(device=device).manual_seed(seed % 2**63)
        uniform = torch.rand(
            (count, b, n, 4), generator=generator, device=device, dtype=self.words.dtype
        )
        with exact_products(self.words):
            events = chart.descend(count, uniform)
        if len(self._bad):
            events[:, self._bad] = self._fallback.sample(count, seed).to(device)
        return events
