"""Charts of factored grammars in torch code that never waits for the device.

The nonterminals over a span are summed out at once: a span's latent values X(i, j, r), the sums
over its splits, become those of the rules above it by one matrix [r 2r], the head's factor times
those of both children. It is made once for a batch. So spans cost O(r²), whatever the number of
nonterminals; where they matter, they follow from X by one product.

Every span has an exponent of two of its own, and so has each product of factors: scales are exact.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inout.kernels.limits import LOWRANK_GPU_FAR, LOWRANK_GPU_TINY
from inout.kernels.lowrank.gpu.scaling import relative, settle


class Potentials(NamedTuple):
    """Log-weights, or weights relative to the largest of each; a head [1 0 0] if there is none."""

    root: Tensor  # [b nt]
    head: Tensor  # [1|b nt r]
    left: Tensor  # [1|b r s]
    right: Tensor  # [1|b r s]
    words: Tensor  # [b n pt]


class Gradients(NamedTuple):
    """Of the sum of weights . totals, by what a chart starts from."""

    both: Tensor  # [1|b r 2r]
    children: Tensor  # [b n n 2r], by the chart
    words: Tensor  # [b n 2r]
    root: Tensor  # [b r]


class Weights:
    """Weights of a batch as its chart needs them."""

    def __init__(self, given: Potentials, *, possible: bool = False) -> None:
        """From log-weights; with `possible`, 1 for everything possible."""
        if possible:
            given = Potentials._make((x > -torch.inf).to(x.dtype).log() for x in given)
        parts = [
            relative(x, tuple(range(1, x.ndim))) if x.numel() else (x, x.new_zeros(1).double())
            for x in given[:-1]
        ]
        words, tops = relative(given.words, (2,))
        self.plain = Potentials._make([*(x for x, _ in parts), words])
        self.root_tops, *others = (top for _, top in parts)
        self.rule_tops = torch.stack(torch.broadcast_tensors(*others)).sum(0)  # [1|b]
        self.word_tops = tops  # [b n]
        self.possible = possible
        root, head, left, right, _ = self.plain
        nt, dtype = root.shape[-1], words.dtype
        b, n, _ = words.shape
        self.size = b, n, nt, left.shape[1]  # and latent values
        # What follows is [.. symbols 2r].
        elements = max(len(left), len(right))
        children = torch.cat([x.mT.expand(elements, -1, -1) for x in (left, right)], -1)
        self.by_symbol, self.by_word = children[:, :nt], children[:, nt:]
        both = product(head.mT, self.by_symbol) if head.shape[1] else self.by_symbol
        flat = torch.stack(both.chunk(2, -1), 1).flatten(2)  # [1|b 2 r*r]
        flat, self.both_exponents, factors = settle(self._or_possible(flat))
        # Numbers by which products were multiplied, for each latent value of both children.
        self.both_factors = factors.expand(-1, -1, self.rank).flatten(1)[:, None]
        rows = flat.unflatten(2, (self.rank, self.rank)).transpose(1, 2)
        self.both = rows.flatten(2)  # [1|b r 2r]
        met = torch.stack(product(words, self.by_word).chunk(2, -1), 2)  # [b n 2 r]
        met, self.leaf_exponents, factors = settle(self._or_possible(met))
        self.leaves = met.flatten(2)
        self.leaf_factors = factors.expand_as(met).flatten(2)
        at_root = product(root[:, None], head)[:, 0] if head.shape[1] else root
        self.at_root, self.root_exponents, self.root_factors = settle(self._or_possible(at_root))
        # Where everything is far below the largest, what has underflowed may matter.
        far = math.log2(LOWRANK_GPU_FAR.of(dtype))
        leaves_far = ((self.leaf_exponents < far) & (words.amax(2) > 0)[..., None]).flatten(1)
        self.doubtful = leaves_far.any(1) | (self.both_exponents < far).any(1)
        self.doubtful |= self.root_exponents < far  # [b]

    @property
    def rank(self) -> int:
        return self.size[3]

    def _or_possible(self, values: Tensor) -> Tensor:
        return (values > 0).to(values.dtype) if self.possible else values

    def symbols(self, spans: Float[Tensor, "b m r"]) -> Float[Tensor, "b m nt"]:
        """What nonterminals over spans add up to, given the sums of latent values."""
        head = self.plain.head
        return product(spans, head.mT) if head.shape[1] else spans


def product(x: Float[Tensor, "b m k"], y: Float[Tensor, "c k l"]) -> Float[Tensor, "b m l"]:
    """x @ y, where y may be shared."""
    if len(y) == 1:
        rows = x.reshape(-1, x.shape[-1]) @ y[0]
        return rows.reshape(*x.shape[:2], -1)
    return x @ y


def outer(x: Float[Tensor, "b m k"], y: Float[Tensor, "b m l"], like: Tensor) -> Tensor:
    """Sums over m of x y, [c k l], over the batch as well if `like` is shared."""
    if len(like) == 1:
        return (x.reshape(-1, x.shape[-1]).mT @ y.reshape(-1, y.shape[-1]))[None]
    return x.mT @ y


class Chart:
    """Latent values of all spans; totals below `tiny` are 0, and all have `floor` added to them.

    Tables have a row for each first word and each width less one.
    """

    def __init__(self, weights: Weights, lengths: Tensor, floor: float = 0.0) -> None:
        self.weights, self.lengths, self.floor = weights, lengths, floor
        b, n, _, rank = weights.size
        dtype = weights.leaves.dtype
        self.tiny = 0.0 if weights.possible else LOWRANK_GPU_TINY.of(dtype)
        new = weights.leaves.new_zeros
        # Left and right sums of each span's symbols, with the rule above it.
        self.children: Float[Tensor, "b n n 2r"] = new(b, n, n, 2 * rank)
        self.exponents: Float[Tensor, "b 2 n n"] = new(b, 2, n, n, dtype=torch.float64)
        self.exponents.fill_(-torch.inf)
        self.sums: Float[Tensor, "b n n r"] = new(b, n, n, rank)
        self.factors: list[Tensor] = []  # by width - 2: [b count 1]
        self.low: Tensor = weights.doubtful.clone()
        self.whole_exponents: Float[Tensor, " b"] = new(b, dtype=torch.float64)
        real = torch.arange(n, device=lengths.device) < lengths[:, None]
        self.children[:, :, 0] = weights.leaves.where(real[..., None], 0.0)
        own = weights.leaf_exponents.where(real[..., None], -torch.inf)
        self.exponents[..., 0] = own.mT
        for width in range(2, n + 1):
            self._fill(width)

    def _parts(self, table: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Views [b count width-1 r] of a table like `children`: left and right parts of spans."""
        b, n, _, twice = table.shape
        rank, count = twice // 2, n - width + 1
        one, first, further, _ = table.stride()
        left = table[:, :count, : width - 1, :rank]
        shape = b, count, width - 1, rank
        # One word more in the left part is one less in the right.
        start = table.storage_offset() + first + further * (width - 2) + rank
        return left, table.as_strided(shape, (one, first, first - further, 1), start)

    def _of_splits(self, width: int) -> tuple[Tensor, Tensor]:
        """Factors [b count width-1] of the splits of spans, the largest 1, and their exponents."""
        b, _, n, _ = self.exponents.shape
        count = n - width + 1
        shape, stride = (b, count, width - 1), (2 * n * n, n, n - 1)
        left = self.exponents[:, 0, :count, : width - 1]
        right = self.exponents.as_strided(shape, stride, n * n + n + width - 2)
        both = left + right
        top = both.amax(-1, keepdim=True)
        finite = torch.where(top == -torch.inf, 0.0, top)
        return (both - finite).exp2().to(self.children.dtype), top[..., 0]

    def _fill(self, width: int) -> None:
        weights, (b, n, _, _) = self.weights, self.weights.size
        count = n - width + 1
        shares, top = self._of_splits(width)
        left, right = self._parts(self.children, width)
        pairs = (left * right).flatten(0, 1)
        total = (shares.flatten(0, 1)[:, None] @ pairs).unflatten(0, (b, count))[:, :, 0]
        if weights.possible:
            total = (total > 0).to(total.dtype)
        if self.floor:
            total += self.floor
        # Not `total < tiny`: NaN, too, must count as low.
        kept = total >= self.tiny
        self.low |= (~kept & (top > -torch.inf)[..., None]).flatten(1).any(1)
        sums, exponents, factors = settle(torch.where(kept, total, 0.0))
        self.factors.append(factors)
        self.sums[:, :count, width - 1] = sums
        if width < n:
            self.children[:, :count, width - 1] = product(sums, weights.both)
            above = (top + exponents)[:, None] + weights.both_exponents[:, :, None]
            self.exponents[:, :, :count, width - 1] = above
        own = (top + exponents)[:, 0]
        self.whole_exponents = torch.where(self.lengths == width, own, self.whole_exponents)

    @cached_property
    def whole(self) -> Float[Tensor, "b r"]:
        """Sums of the whole elements, 0 of single words."""
        element = torch.arange(len(self.lengths), device=self.lengths.device)
        return self.sums[element, 0, self.lengths - 1]

    @cached_property
    def total(self) -> Float[Tensor, " b"]:
        """Of all trees, in the chart's scale."""
        return (self.weights.at_root * self.whole).sum(-1) + self.floor

    @cached_property
    def log_z(self) -> Float[Tensor, " b"]:
        """In float64; -inf if there is no tree."""
        w, steps = self.weights, self.lengths - 1
        some = (self.total > 0) & (self.lengths > 1)
        exponents = self.whole_exponents + w.root_exponents
        logs = torch.where(some, self.total, 1.0).double().log()
        logs = logs + torch.where(some, exponents, 0.0) * math.log(2.0)
        real = torch.arange(w.size[1], device=steps.device) < self.lengths[:, None]
        logs = logs + w.root_tops + w.rule_tops * steps + w.word_tops.where(real, 0.0).sum(1)
        return torch.where(some, logs, -torch.inf)

    def shares(self, weights: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
        """weights / total, 0 where there is no tree."""
        some = (self.total > 0) & (self.lengths > 1)
        return torch.where(some, weights / torch.where(some, self.total, 1.0), 0.0)

    def outside(self, factors: Float[Tensor, " b"]) -> Gradients:
        """Gradients of the sum of factors . totals."""
        weights, n = self.weights, self.weights.size[1]
        by = torch.zeros_like(self.children)
        at_root = weights.at_root * factors[:, None]
        for width in range(n, 1, -1):
            count = n - width + 1
            gradient = product(by[:, :count, width - 1], weights.both.mT)
            whole = (self.lengths == width)[:, None]
            gradient[:, 0] += at_root.where(whole, 0.0)
            # Those of zeros would be finite, but what they are passed on to might not.
            gradient = gradient.where(self.sums[:, :count, width - 1] > 0, 0.0)
            gradient *= self.factors[width - 2]
            shares, _ = self._of_splits(width)
            passed = shares[..., None] * gradient[:, :, None]
            left, right = self._parts(self.children, width)
            by_left, by_right = self._parts(by, width)
            by_left.addcmul_(passed, right)
            by_right.addcmul_(passed, left)
        both = self._by_both(by)
        return Gradients(both, by, by[:, :, 0], factors[:, None] * self.whole)

    def _by_both(self, by: Tensor) -> Float[Tensor, "c r 2r"]:
        """Gradient by the product of factors, given that by the chart."""
        n, both = self.weights.size[1], self.weights.both
        rows = [(self.sums[:, : n - w, w], by[:, : n - w, w]) for w in range(1, n - 1)]
        if not rows:
            return torch.zeros_like(both)
        sums, above = (torch.cat(x, 1) for x in zip(*rows, strict=True))
        return outer(sums, above, both)

    def gradients(self, factors: Float[Tensor, " b"]) -> tuple[Tensor, ...]:
        """Derivatives of the sum of factors . totals by the log-weights, as they were given."""
        weights, plain, found = self.weights, self.weights.plain, self.outside(factors)
        rank, head = weights.rank, plain.head
        both = found.both * weights.both_factors
        leaves = found.words * weights.leaf_factors
        root = (found.root * weights.root_factors)[:, None]
        by_symbol = product(head, both) if head.shape[1] else both
        by_word = outer(plain.words, leaves, weights.by_word)
        by_head = head
        if head.shape[1]:
            by_root = product(root, head.mT)[:, 0]
            by_head = _added_up(product(weights.by_symbol, both.mT), head)
            by_head = (by_head + outer(plain.root[:, None], root, head)) * head
        else:
            by_root = root[:, 0]
        children = []
        for factor, half in ((plain.left, slice(rank)), (plain.right, slice(rank, None))):
            parts = (_added_up(x[..., half], factor).mT for x in (by_symbol, by_word))
            children.append(torch.cat(list(parts), -1) * factor)
        by_words = product(leaves, weights.by_word.mT)
        return by_root * plain.root, by_head, *children, by_words * plain.words

    def span_marginals(self, factors: Float[Tensor, " b"]) -> Float[Tensor, "b n n nt"]:
        """Factors . totals' derivatives by scores of nonterminals over spans, in float64."""
        weights, found = self.weights, self.outside(factors)
        b, n, nt, _ = weights.size
        result = self.sums.new_zeros(b, n, n, nt, dtype=torch.float64)
        above = weights.by_symbol * weights.both_factors  # [1|b nt 2r]
        at_root = weights.plain.root * (factors[:, None] * weights.root_factors)
        for width in range(2, n + 1):
            count = n - width + 1
            gradient = product(found.children[:, :count, width - 1], above.mT)
            gradient[:, 0] += at_root.where((self.lengths == width)[:, None], 0.0)
            symbols = weights.symbols(self.sums[:, :count, width - 1])
            result.diagonal(width - 1, 1, 2).copy_((gradient * symbols).mT)
        return result


def _added_up(gradient: Float[Tensor, "c k l"], like: Tensor) -> Float[Tensor, "d k l"]:
    """A gradient for each element, added up if what it belongs to is shared."""
    return gradient.sum(0, keepdim=True) if len(like) < len(gradient) else gradient
