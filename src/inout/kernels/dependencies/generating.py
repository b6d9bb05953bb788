"""Generating functions of additive functions of projective dependency trees, over any lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Inexact
from torch import Tensor
from torch.nn.functional import pad

from inout.kernels.dependencies.recursion import Item, eisner, of_lengths, placed, placed_siblings
from inout.kernels.dependencies.reference import dead_first, real_arcs, real_siblings
from inout.kernels.math.lanes import label_lanes
from inout.kernels.math.reweighting import shares
from inout.kernels.shapes import Generated, Lengths
from inout.series.lanes import Lanes


class Parts(NamedTuple):
    """Potentials or values of K functions: of arcs, by label, and of siblings."""

    arcs: Inexact[Tensor, " ..."]
    siblings: Inexact[Tensor, " ..."] | None = None


def generating_function(
    lanes: Lanes,
    potentials: Parts,
    lengths: Lengths,
    single_root: bool,
    values: Parts,
    shift: float = 0.0,
) -> Generated:
    """E[exp(z · (F − centres))] of each element, and the centres: E[F], if not moved by `shift`.

    The lanes of an item are the expectation of exp(z · (what is below it − its mean)), given that
    the tree has the item. Elements without a tree have lanes 0. Padding may be anything.
    O(b n² s l + b n³ l), or l² instead of l for power series.
    """
    n = potentials.arcs.shape[2]
    if n == 0:
        centres = values.arcs.detach().sum((2, 3, 4))
        return 0 * lanes.exponential(centres) + potentials.arcs.sum(), centres  # no trees
    trees = _Trees(lanes, potentials, lengths, values, shift)
    found = eisner(trees, n, single_root, potentials.siblings is not None)
    x, means, _ = (of_lengths(several, lengths) for several in zip(*found, strict=True))
    return x, means


class _Trees:
    """Items are lanes [l b count] about means [k b count], and logs of inside values [b count].

    The logs are without the largest weight of each word's heads: every tree has one of these.
    """

    def __init__(
        self, lanes: Lanes, potentials: Parts, lengths: Lengths, values: Parts, shift: float
    ) -> None:
        self.algebra, self.shift, self.sums = lanes, shift, 0
        n = potentials.arcs.shape[2]
        real, column = real_arcs(n, lengths)[..., None], (0, 0, 1, 0)
        arcs = pad(potentials.arcs.double().where(real, -torch.inf), column, value=-torch.inf)
        own = pad(values.arcs.where(real, 0.0), column)
        x, means, logs = label_lanes(lanes, arcs, own, self._moved)
        top = logs.amax(1, keepdim=True)
        self.links: Item = x, means, logs - torch.where(top == -torch.inf, 0.0, top)
        self.siblings: Item = ()
        if potentials.siblings is not None and values.siblings is not None:
            between, corner = real_siblings(n, lengths), (1, 0) * 3
            pairs = pad(potentials.siblings.double().where(between, 0.0), corner)[..., None]
            own = pad(values.siblings.where(between, 0.0), corner)[..., None]
            self.siblings = label_lanes(lanes, pairs, own, self._moved)

    def _moved(self, means: Inexact[Tensor, " ..."]) -> Tensor:
        """Means, moved by the shift and irregularly."""
        place = torch.arange(means[0].numel(), dtype=torch.float64, device=means.device)
        self.sums += 1
        return means + self.shift * torch.cos(1 + 3 * self.sums + 7 * place).reshape(means[0].shape)

    def one(self, count: int) -> Item:
        _, means, logs = (y[..., 0, :count] for y in self.links)
        none = torch.zeros_like(means)
        return self.algebra.exponential(none), none, torch.zeros_like(logs)

    def sum(self, terms: Sequence[Sequence[Item]]) -> Item:
        with torch.no_grad():
            below = torch.stack([_total([x[1] for x in factors]) for factors in terms], -1)
            inside = torch.stack([_total([x[2] for x in factors]) for factors in terms], -1)
            chances, logs = shares(inside)
            means = self._moved((chances * below).sum(-1))
            off = torch.where(chances > 0, below - means[..., None], 0.0)
        products = []
        for first, *others in terms:
            product = first[0]
            for other in others:
                product = self.algebra.times(product, other[0])
            products.append(product)
        weights = chances * self.algebra.exponential(off)
        return self.algebra.times(weights, torch.stack(products, -1)).sum(-1), means, logs

    def link(self, offset: int) -> Item:
        return tuple(placed(x, offset) for x in self.links)

    def sibling(self, offset: int, inner: int) -> Item:
        return tuple(placed_siblings(x, offset, inner) for x in self.siblings)

    def without_first(self, item: Item) -> Item:
        x, means, logs = item
        return x, means, dead_first(logs)


def _total(several: Sequence[Tensor]) -> Inexact[Tensor, " ..."]:
    """The sum of some tensors."""
    return torch.stack(torch.broadcast_tensors(*several)).sum(0)  # type: ignore[no-untyped-call]
