"""Blocks of the tables that factors define, as logarithms in float64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from torch import Tensor

from inout.kernels.limits import LOWRANK_BLOCK
from inout.kernels.lowrank.reference import log_product


def rules(
    head: Float[Tensor, "*b heads values"],
    left: Float[Tensor, "*c r s"],
    right: Float[Tensor, "*d r s"],
) -> Float[Tensor, "*e rows s s"]:
    """log of the sum over r of head(A, r) left(r, B) right(r, C); differentiable.

    A head of size 0 means that the latent value is the head.
    """
    if not head.shape[-1]:
        return left[..., :, None] + right[..., None, :]
    pairs = head[..., :, None, :] + left.mT[..., None, :, :]
    return log_product(*_broadcast(pairs, right[..., None, :, :]))


def transitions(
    source: Float[Tensor, "*b rows r"], target: Float[Tensor, "*c r s"]
) -> Float[Tensor, "*d rows s"]:
    """log of the sum over r of source(i, r) target(r, j); differentiable."""
    return log_product(*_broadcast(source, target))


def _broadcast(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of a product with the same dimensions before the last two."""
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return x.expand(*batch, *x.shape[-2:]), y.expand(*batch, *y.shape[-2:])


class RuleBlocks:
    """(first head, rules [1|b heads s s]) again and again; kept if one block has all of them."""

    def __init__(self, head: Tensor, left: Tensor, right: Tensor) -> None:
        self.factors = head.double(), left.double(), right.double()
        rank, self.size = left.shape[1:]
        self.nt = head.shape[1] or rank
        elements = max(len(x) for x in (head, left, right))
        self.own = elements > 1  # each element has rules of its own
        self.step = max(LOWRANK_BLOCK // (elements * self.size**2), 1)
        self.whole = self._block(0) if self.step >= self.nt else None

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        if self.whole is not None:
            yield 0, self.whole
            return
        for first in range(0, self.nt, self.step):
            yield first, self._block(first)

    def _block(self, first: int) -> Tensor:
        head, left, right = self.factors
        heads = slice(first, first + self.step)
        if head.shape[2]:
            return rules(head[:, heads], left, right).contiguous()
        return rules(head, left[:, heads], right[:, heads]).contiguous()


class TransitionBlocks:
    """Transitions in blocks of previous labels; kept if one block has all, for all positions."""

    def __init__(self, source: Tensor, target: Tensor) -> None:
        self.factors = source.double(), target.double()
        self.labels = source.shape[2]
        elements = max(len(source), len(target), 1)
        self.step = max(LOWRANK_BLOCK // (elements * self.labels), 1)
        stationary = source.shape[1] == target.shape[1] == 1
        self.whole = self._block(1, 0) if stationary and self.step >= self.labels else None

    def at(self, t: int) -> Iterator[tuple[int, Tensor]]:
        """(first label, transitions [1|b labels s]) for the step from position t - 1 to t."""
        if self.whole is not None:
            yield 0, self.whole
            return
        for first in range(0, self.labels, self.step):
            yield first, self._block(t, first)

    def _block(self, t: int, first: int) -> Tensor:
        source, target = (x[:, min(t, x.shape[1]) - 1] for x in self.factors)
        return transitions(source[:, first : first + self.step], target).contiguous()
