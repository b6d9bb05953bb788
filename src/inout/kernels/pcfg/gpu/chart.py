"""Charts of weighted grammars on a GPU: all elements and all spans of one width at a time.

Method and scaling: see `cpu/scaled.py`. A launch of `step_kernel` settles the spans of one width
and, because two nonterminals side by side are at least two words narrower than what they make,
gathers the pairs of the next width as well; one product by cuBLAS then brings in the rules: two
launches for a width. Backward, every span pulls its gradient from the spans above it, so nothing
is added atomically and results are the same every time: again two launches for a width.

With MAX the same kernels work in max-plus algebra on logarithms, without scales: the best trees.

The words' matrices are `meets` [b n nt s+nt]: words(p, B) rule(A, B, C) summed over B in the first
s columns, rule(A, B, C) words(p, C) summed over C in the others. Pairs and gradients have a row
for each span, in order of width, so that one width is one block: [.. u*spans x], where .. is g, the
sets of rules, or nothing if there is one, and u elements share each set.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.pcfg.gpu.decode import descend_kernel
from inout.kernels.pcfg.gpu.inside import (
    best_product_kernel,
    root_kernel,
    step_kernel,
    weigh_kernel,
)
from inout.kernels.pcfg.gpu.outside import meets_gradient_kernel, pull_kernel, words_gradient_kernel
from inout.kernels.shapes import PerElement, Root, Words


@dataclass(frozen=True)
class Weights:
    """Weights relative to the largest of each block and the logarithms of these (float64).

    root [b nt], rules [g nt s s], words [b n pt]; root_tops [b], tops [g], word_tops [b n], -inf
    for words and roots without anything possible. In max-plus algebra they are logarithms (MAX).
    """

    root: Tensor
    rules: Tensor
    words: Tensor
    lengths: Tensor
    root_tops: Tensor
    tops: Tensor
    word_tops: Tensor
    maximal: bool = False


def _power(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


def _warps(power: int) -> int:
    return 4 if power < 128 else 8


def _columns(power: int, values: Tensor) -> int:
    """Columns of a block [power, columns] that leaves 64 bytes to a thread: more would spill."""
    return max(16, 64 * 32 * _warps(power) // (power * values.element_size()))


def weigh(root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> Weights:
    """Scaled weights of potentials root [b nt], rules [g nt s s], words [b n pt]."""
    made = []
    for values in (root, words):
        rows = values.shape[:-1]
        weights, tops = torch.empty_like(values), values.new_empty(rows, dtype=torch.float64)
        size, per = values.shape[-1], values[0].numel() // values.shape[-1]
        weigh_kernel[(rows.numel(),)](values, lengths, weights, tops, per, size, S=_power(size))
        made.append((weights, tops))
    tops = rules.amax((1, 2, 3), keepdim=True)
    tops = torch.where(tops == -torch.inf, 0.0, tops)
    (root, root_tops), (words, word_tops) = made
    flat_tops = tops.reshape(-1).double()
    return Weights(root, (rules - tops).exp_(), words, lengths, root_tops, flat_tops, word_tops)


def possibilities(root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> Weights:
    """1 for all that is possible, with scales of 1: nothing can be lost."""
    real = torch.arange(words.shape[1], device=words.device) < lengths[:, None]
    some = [root > -torch.inf, rules > -torch.inf, (words > -torch.inf) & real[..., None]]
    root, rules, words = (x.to(words.dtype) for x in some)
    word_tops = torch.where(some[2].any(-1), 0.0, -torch.inf).double()
    tops = word_tops.new_zeros(max(len(root), len(rules)))
    return Weights(root, rules, words, lengths, tops, tops, word_tops)


def logarithms(root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> Weights:
    """The potentials themselves, in float64, for max-plus algebra."""
    root, rules, words = (x.double() for x in (root, rules, words))
    real = torch.arange(words.shape[1], device=words.device) < lengths[:, None]
    words = torch.where(real[..., None], words, -torch.inf)
    unused = root.new_zeros(1)
    return Weights(root, rules, words, lengths, unused, unused, unused, maximal=True)


def multiply(x: Tensor, y: Tensor, out: Tensor) -> None:
    """out [.. m a] = x [.. m k] y [.. k a], where .. is g or nothing."""
    # Unlike bmm, mm splits long sums among the processors.
    (torch.mm if x.ndim == 2 else torch.bmm)(x, y, out=out)


def multiply_best(x: Tensor, y: Tensor, out: Tensor) -> None:
    """The same in max-plus algebra, for y with contiguous columns."""
    rows, size, columns = *x.shape[-2:], y.shape[-1]
    g, stride = (1, 0) if x.ndim == 2 else (len(x), x.stride(0))
    block = 16
    grid = (triton.cdiv(columns, block), triton.cdiv(rows, block), g)
    best_product_kernel[grid](x, y, out, stride, rows, size, columns, M=block, A=block, K=block)


class Chart:
    """Betas [b n n nt] and sigmas [b n n] of all spans; `tiny` = 0: possibility only.

    In max-plus algebra betas are logarithms and there are no sigmas. O(b n² nt²) memory for the
    pairs, which gradients and samples need.
    """

    def __init__(self, weights: Weights, tiny: float) -> None:
        self.weights, self.tiny = weights, tiny
        (b, n, pt), nt = weights.words.shape, weights.root.shape[1]
        g, new = len(weights.rules), weights.words.new_empty
        self.size = b, n, nt, pt
        self.sharing = b // g
        # One set of rules has no dimension of its own, so that products are of matrices.
        self.sets = () if g == 1 else (g,)
        spans = n * (n - 1) // 2
        self.betas = new((b, n, n, nt)).zero_()
        self.sigmas = new((b, n, n) if not weights.maximal else 1, dtype=torch.float64)
        self.pairs = new((*self.sets, self.sharing * spans, nt * nt))
        self.shifts = new(b * spans, dtype=torch.float64)
        self.meets = new((b, n, nt, 2 * nt + pt))
        self.low = new(b, dtype=torch.int32).zero_()
        rules = weights.rules
        # [.. nt nt*nt] and, for the words' matrices, [.. nt*(s+nt) pt]
        self.both = rules[:, :, :nt, :nt].reshape(*self.sets, nt, nt * nt)
        with_words = torch.cat([rules[:, :, nt:].transpose(2, 3), rules[:, :, :nt, nt:]], 2)
        self.with_words = with_words.view(*self.sets, -1, pt)
        self._inside()

    def _by_set(self, values: Tensor) -> Tensor:
        """Values [b n ...] as matrices [.. u*n x]."""
        return values.view(*self.sets, self.sharing * self.size[1], -1)

    def _width(self, rows: Tensor, width: int) -> Tensor:
        """The part of [.. u*spans x] that is of one width."""
        n, u = self.size[1], self.sharing
        first = (width - 2) * n - (width - 2) * (width - 1) // 2
        return rows.narrow(-2, u * first, u * (n - width + 1))

    def _inside(self) -> None:
        weights, (b, n, nt, pt) = self.weights, self.size
        times = multiply_best if weights.maximal else multiply
        times(self._by_set(weights.words), self.with_words.mT, self._by_set(self.meets))
        products, rules = weights.words.new_empty(b * n * nt), self.both.mT
        power = _power(nt)
        columns = _columns(power, products)
        tile_b, tile_c = min(power, 32), min(power, 2 * columns)
        tiles = triton.cdiv(nt, tile_b) * triton.cdiv(nt, tile_c)
        options = {
            "MAX": weights.maximal, "TINY": self.tiny, "A": power,
            "AC": min(columns, _power(max(nt, pt))), "B": tile_b, "C": tile_c, "N": _power(n),
            "num_warps": _warps(power),
        }  # fmt: skip
        for width in range(2, n + 1):
            count = n - width + 1
            gathers = b * (count - 1) * tiles if width > 2 else 0
            step_kernel[(b * count + gathers,)](
                self.meets, weights.words, weights.word_tops, weights.tops, weights.lengths,
                products, self.betas, self.sigmas, self.pairs, self.shifts, self.low,
                width, b, n, self.sharing, nt, pt, **options,
            )  # fmt: skip
            if gathers:
                out = products[: b * (count - 1) * nt].view(*self.sets, -1, nt)
                times(self._width(self.pairs, width + 1), rules, out)

    def totals(self) -> tuple[PerElement, PerElement]:
        """(Z in the scale of the whole span, log Z in float64)."""
        weights, (b, n, nt, _) = self.weights, self.size
        total = weights.root.new_empty(b)
        log_z = weights.root.new_empty(b, dtype=torch.float64)
        root_kernel[(b,)](
            weights.root, weights.root_tops, weights.lengths, self.betas, self.sigmas,
            total, log_z, self.low, n, nt, TINY=self.tiny, A=_power(nt),
        )  # fmt: skip
        return total, log_z

    def at_root(self) -> Root:
        """Betas of the whole elements."""
        last = self.weights.lengths.long() - 1
        return self.betas[:, 0].gather(1, last[:, None, None].expand(-1, 1, self.size[2]))[:, 0]

    def outside(self, root_gradient: Root) -> tuple[Tensor, Tensor]:
        """Gradients [.. u*spans nt] of the sum of root_gradient . betas of whole elements.

        By all betas; and the same in the scales of the pairs.
        """
        weights, (b, n, nt, pt) = self.weights, self.size
        gradients = self.pairs.new_empty((*self.pairs.shape[:-1], nt))
        grad_pairs, scaled = torch.empty_like(self.pairs), torch.empty_like(gradients)
        power = _power(nt)
        tile = min(power, max(16, _columns(power, gradients) // 2))
        for width in range(n, 1, -1):
            pull_kernel[(b * (n - width + 1) * triton.cdiv(nt, tile),)](
                self.meets, weights.word_tops, weights.tops, weights.lengths, self.betas,
                self.sigmas, self.shifts, root_gradient, grad_pairs, gradients, scaled,
                width, b, n, self.sharing, nt, pt, A=power, T=tile, num_warps=_warps(power),
            )  # fmt: skip
            if width > 3:
                multiply(self._width(gradients, width), self.both, self._width(grad_pairs, width))
        return gradients, scaled

    def gradients(self, root_gradient: Root) -> tuple[Float[Tensor, "g nt s s"], Words]:
        """Gradients of the sum of root_gradient . betas by log rules and log words."""
        weights, (_, n, nt, pt) = self.weights, self.size
        s = nt + pt
        gradients, scaled = self.outside(root_gradient)
        by_both = torch.zeros_like(self.both)
        if n > 3:
            narrow = self.sharing * (2 * n - 3)  # rows of widths 2 and 3, which have no pairs
            multiply(scaled[..., narrow:, :].mT, self.pairs[..., narrow:, :], by_both)
        by_with_words, words = self._through_words(gradients)
        rules = torch.empty_like(weights.rules)
        rules[:, :, :nt, :nt] = by_both.view(-1, nt, nt, nt)
        rules[:, :, nt:] = by_with_words[:, :, :s].transpose(2, 3)
        rules[:, :, :nt, nt:] = by_with_words[:, :, s:]
        return rules.mul_(weights.rules), words

    def _through_words(self, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients by the rules with words [g nt s+nt pt] and by log words [b n pt]."""
        weights, (b, n, nt, pt) = self.weights, self.size
        scales = weights.word_tops, weights.tops, weights.lengths
        grad_meets = torch.empty_like(self.meets)
        tile = min(32, _power(nt))
        columns = 2 * triton.cdiv(nt, tile) + triton.cdiv(pt, tile)
        meets_gradient_kernel[(b * n, triton.cdiv(nt, tile), columns)](
            weights.words, *scales, self.betas, self.sigmas, gradients, grad_meets,
            n, self.sharing, nt, pt, B=tile, C=tile,
        )  # fmt: skip
        by_meets, own = self._by_set(grad_meets), self._by_set(weights.words)
        words, rules = torch.empty_like(weights.words), torch.empty_like(self.with_words)
        multiply(by_meets, self.with_words, self._by_set(words))
        power = _power(pt)
        words_gradient_kernel[(b * n,)](
            self.meets, weights.words, *scales, self.sigmas, gradients, words,
            n, self.sharing, nt, pt, P=power, C=min(_power(nt), _columns(power, words)),
            num_warps=_warps(power),
        )  # fmt: skip
        multiply(by_meets.mT, own, rules)
        return rules.view(-1, nt, 2 * nt + pt, pt), words

    def by_span(self, rows: Tensor) -> Float[Tensor, "b n n x"]:
        """Rows [.. u*spans x] as a chart, 0 where there is no span."""
        b, n, _, _ = self.size
        chart = rows.new_zeros((b, n, n, rows.shape[-1]))
        for width in range(2, n + 1):
            own = self._width(rows, width).reshape(b, n - width + 1, -1)
            chart.diagonal(width - 1, 1, 2).copy_(own.mT)
        return chart

    def descend(self, count: int, uniform: Tensor) -> Int[Tensor, "m b n n"]:
        """Trees drawn with uniform numbers [m b n 4], or (max-plus) the best, once."""
        weights, (b, n, nt, pt) = self.weights, self.size
        events = torch.full((count, b, n, n), -1, device=self.betas.device)
        power = _power(max(nt, pt))
        descend_kernel[(count * b,)](
            weights.root, weights.rules, weights.words, self.meets, weights.word_tops,
            weights.lengths, self.betas, self.sigmas, self.pairs, uniform, events,
            b, n, self.sharing, nt, pt, MAX=weights.maximal, S=power,
            C=min(_power(nt), _columns(power, self.betas)), N=_power(n), num_warps=_warps(power),
        )  # fmt: skip
        return events
