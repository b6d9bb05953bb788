"""Weighted grammars on a GPU: log Z, derivatives and single trees, by the kernels of `gpu.py`.

Elements whose range does not fit scaled arithmetic are few: they are done on the CPU.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

if TYPE_CHECKING:
    from inout.kernels.cky.gpu import Chart
    from inout.kernels.cky.op import GrammarPasses


class GpuGrammarPasses:
    """Elements [b ...] at one setting of root [b nt], rules [1|b nt s s] and words [b n pt]."""

    def __init__(self, root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> None:
        from inout.kernels.cky import gpu  # here, because triton is only where GPUs are

        self.kernels = gpu
        self.root, self.rules, self.words = (x.detach().contiguous() for x in (root, rules, words))
        self.lengths = lengths.contiguous()

    @property
    def _given(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.root, self.rules, self.words, self.lengths

    @cached_property
    def _inside(self) -> tuple[Chart, Tensor, Tensor]:
        """(chart, total in the chart's scale, log Z as far as it fits)."""
        with self.kernels.exact_products(self.words):
            weights = self.kernels.weigh(*self._given)
            chart = self.kernels.Chart(weights, self.kernels.TINY[self.words.dtype])
            return chart, *chart.totals()

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
        with self.kernels.exact_products(self.words):
            possible = self.kernels.Chart(self.kernels.possibilities(*self._given), 0.0)
            some, _ = possible.totals()
        lost = ((possible.betas > 0) & (chart.betas == 0)).flatten(1).any(1)
        unfit = (chart.low > 0) & (lost | ((some > 0) & ~(total >= chart.tiny)))
        return unfit.nonzero()[:, 0]

    @cached_property
    def _fallback(self) -> GrammarPasses:
        """The elements that do not fit, on the CPU."""
        from inout.kernels.cky.op import GrammarPasses  # which chooses between its tiers and this

        return GrammarPasses(*(x.cpu() for x in self._of(self._bad, *self._given)))

    def _of(self, elements: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The part of tensors [b ..] that belongs to some elements; one set of rules is for all."""
        shared = len(self.rules) < len(self.words)
        return tuple(x if x.ndim == 4 and shared else x[elements] for x in tensors)

    @cached_property
    def log_z(self) -> Float[Tensor, " b"]:
        """log Z in float64."""
        log_z = self._inside[2]
        if len(self._bad):
            log_z[self._bad] = self._fallback.log_z.to(log_z)
        return log_z

    def _root_gradient(self, weights: Tensor) -> Float[Tensor, "b nt"]:
        """Gradient by the betas of whole elements; 0 without trees and for those done elsewhere."""
        chart, total, _ = self._inside
        some = total > 0
        factors = torch.where(some, weights.to(total.dtype) / torch.where(some, total, 1.0), 0.0)
        if len(self._bad):
            factors[self._bad] = 0
        return chart.weights.root * factors[:, None]

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradients by root, rules and words."""
        chart = self._inside[0]
        weights = weights.detach()
        at_root = self._root_gradient(weights)
        with self.kernels.exact_products(self.words):
            results = (at_root * chart.at_root(), *chart.gradients(at_root))
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
        chart = self._inside[0]
        at_root = self._root_gradient(torch.ones_like(self.log_z))
        with self.kernels.exact_products(self.words):
            result = chart.by_span(chart.outside(at_root)[0]).mul_(chart.betas).double()
        if len(self._bad):
            exact = torch.as_tensor(self._fallback.span_marginals())
            result[self._bad] = exact.to(result)
        return result

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian times the directions for root, rules and words, and E[U]; on the CPU."""
        from inout.kernels.cky.op import GrammarPasses

        passes = GrammarPasses(*(x.cpu() for x in self._given))
        own = tuple(x.detach().cpu() for x in directions)
        results = passes.tangents(weights.detach().cpu(), own)
        return tuple(x.to(self.words.device) for x in results)

    def best(self) -> Int[Tensor, "b n n"]:
        """Symbols of the spans of the best tree, -1 elsewhere (everywhere if there is none).

        Ties go to a word on the left, then two nonterminals, then a word on the right; within
        these to the smaller symbols, then the first split.
        """
        with self.kernels.exact_products(self.words):
            chart = self.kernels.Chart(self.kernels.logarithms(*self._given), 0.0)
            return chart.descend(1, chart.betas)[0]

    def sample(self, count: int, seed: int) -> Int[Tensor, "m b n n"]:
        """`count` independent trees of each element; -1 throughout where there is none."""
        chart = self._inside[0]
        device, (b, n, _) = self.words.device, self.words.shape
        generator = torch.Generator(device=device).manual_seed(seed % 2**63)
        uniform = torch.rand(
            (count, b, n, 4), generator=generator, device=device, dtype=self.words.dtype
        )
        with self.kernels.exact_products(self.words):
            events = chart.descend(count, uniform)
        if len(self._bad):
            from inout.kernels.cky.op import sample_trees

            root, rules, words, lengths = (x.cpu() for x in self._of(self._bad, *self._given))
            exact = sample_trees(root, rules, words, lengths, count, seed)
            events[:, self._bad] = exact.to(device)
        return events
