"""Batches in little memory: what a group of elements keeps is discarded, and computed again.

Every span of a chart needs all spans within it, so charts cannot be kept in part, as the alphas
of a chain can (Eisner 2016, footnote 11). But each element of a batch has a chart of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from math import isqrt

import torch
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.kernels.autograd import differentiable_log_partition, tangents_by

Memory = int | str | None  # bytes, or "sqrt"


def refuse_less(memory: Memory, least: int) -> None:
    """Raise if `memory` is fewer bytes than the least that is needed."""
    if isinstance(memory, int) and memory < least:
        raise ArgumentError("memory", f"must be at least {least} bytes. Got {memory}")


def group_size(memory: Memory, size: int, each: int, fixed: int = 0) -> int:
    """How many of `size` elements to do at a time: "sqrt", or as many as fit in `memory`.

    An element takes `each` bytes, and all together `fixed`.
    """
    if memory is None or size == 0:
        return size
    refuse_less(memory, fixed + each)
    return min(size, (memory - fixed) // each) if isinstance(memory, int) else isqrt(size - 1) + 1


# (lo, hi, potentials of these elements) -> their log Z
OfGroup = Callable[..., Tensor]


class _GroupedPasses:
    """Nothing but log Z is kept; every other pass begins with that of log Z, group by group."""

    def __init__(
        self,
        function: OfGroup,
        bounds: list[int],
        potentials: Sequence[Tensor],
        batched: list[bool],
    ) -> None:
        self.function, self.batched = function, batched
        self.ranges = list(pairwise(bounds))
        self.potentials = [x.detach() for x in potentials]

    def _of(self, lo: int, hi: int, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [x[lo:hi] if own else x for x, own in zip(tensors, self.batched, strict=True)]

    @cached_property
    def log_z(self) -> Tensor:
        with torch.no_grad():
            logs = [self.function(*r, *self._of(*r, self.potentials)) for r in self.ranges]
        return torch.cat(logs).double()

    def _collected(self, results: Callable[[int, int], Sequence[Tensor]]) -> tuple[Tensor, ...]:
        """Results of the groups for each potential, side by side, or added up if it is shared."""
        whole = [
            torch.zeros_like(x, memory_format=torch.contiguous_format) for x in self.potentials
        ]
        for lo, hi in self.ranges:
            for part, found in zip(self._of(lo, hi, whole), results(lo, hi), strict=True):
                part += found
        return tuple(whole)

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        def of_group(lo: int, hi: int) -> Sequence[Tensor]:
            with torch.enable_grad():
                own = [
                    x.requires_grad_() for x in map(torch.detach, self._of(lo, hi, self.potentials))
                ]
                return torch.autograd.grad(self.function(lo, hi, *own), own, weights[lo:hi])

        return self._collected(of_group)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        expected = torch.zeros_like(weights)

        def of_group(lo: int, hi: int) -> Sequence[Tensor]:
            *second, expected[lo:hi] = tangents_by(
                lambda *own: self.function(lo, hi, *own),
                weights[lo:hi],
                self._of(lo, hi, self.potentials),
                self._of(lo, hi, directions),
            )
            return second

        return *self._collected(of_group), expected


def log_partition_by_groups(
    function: OfGroup, size: int, count: int, potentials: Sequence[Tensor], batched: list[bool]
) -> Tensor:
    """log Z [b] of so many elements, `size` at a time, differentiable to any order.

    `function` (lo, hi, *potentials) gives that of elements lo:hi; `batched` says which potentials
    have a row for each element: the others are shared. Nothing but log Z stays until the backward
    pass. Sums over a batch are rounded differently, all else is the same.
    """
    bounds = [*range(0, count, size), count]
    return differentiable_log_partition(
        lambda *own: _GroupedPasses(function, bounds, own, batched),
        lambda *own: function(0, count, *own),
        *potentials,
    )
