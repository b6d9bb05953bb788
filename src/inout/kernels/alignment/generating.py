"""Generating functions of additive functions of paths, over any lanes, in torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor
from torch.nn.functional import pad

from inout.kernels.alignment import op
from inout.kernels.alignment.lattice import Lattice, Plane
from inout.kernels.alignment.recursion import at_ends, by_step, sweep
from inout.kernels.math.reweighting import reweighted
from inout.kernels.shapes import Generated
from inout.series.lanes import Lanes

# Functions of what comes before the nodes of a step, and their means: [l b lanes], [k b lanes].
Item = tuple[Inexact[Tensor, "l b j"], Inexact[Tensor, "k b j"]]
NODES = Plane(0, 0, 1, 1)


def generating_function(
    lanes: Lanes,
    lattice: Lattice,
    planes: Sequence[Float[Tensor, "b _ _"]],
    sizes: Int[Tensor, "b 2"],
    values: Sequence[Inexact[Tensor, "k b _ _"]],
    shift: float = 0.0,
) -> Generated:
    """Sum of weight * exp(z . (F - centres)) over paths in units of Z, and the centres.

    A node's lanes are the expectation of exp(z . (F so far - its mean)) given the node: the chances
    of moves given their targets are a Markov chain that runs backwards. O(b n m l), or l² instead
    of l for power series. Padding may be anything.
    """
    wide = [x.double() for x in planes]
    with torch.no_grad():
        shares, ends = op.shares(lattice, wide, sizes)
    rows, columns = (int(x) for x in sizes.amax(0)) if len(sizes) else (0, 0)
    algebra = _Functions(lanes, lattice, columns, shift, values[0])
    algebra.read(wide, values, shares, sizes)
    found = sweep(lattice, rows, columns, algebra)
    last = [
        [at_ends(lattice, [items[layer][part] for items in found], sizes) for part in (0, 1)]
        for layer in lattice.last
    ]
    chances = [ends[:, layer] for layer in lattice.last]
    centres = torch.stack([p * means for p, (_, means) in zip(chances, last, strict=True)]).sum(0)
    # As below: what is never used must not be far from the rest.
    off = [torch.where(p > 0, x[1] - centres, 0.0) for p, x in zip(chances, last, strict=True)]
    total = [
        lanes.times(p * lanes.exponential(y), torch.where(p > 0, x, 0.0))
        for p, y, (x, _) in zip(chances, off, last, strict=True)
    ]
    return torch.stack(total).sum(0), centres


class _Functions:
    """The algebra of `Item`s."""

    def __init__(
        self, lanes: Lanes, lattice: Lattice, columns: int, shift: float, like: Tensor
    ) -> None:
        self.lanes, self.lattice, self.columns, self.shift = lanes, lattice, columns, shift
        self.like, self.shape = like, (like.shape[1], columns + 1)

    def read(
        self, planes: Sequence[Tensor], values: Sequence[Tensor], shares: Tensor, sizes: Tensor
    ) -> None:
        """Arrange all tables by steps, which autograd can take apart at once."""
        lattice, columns = self.lattice, self.columns
        own = by_step(lattice, shares.movedim(1, 0), NODES, sizes, columns)[0]
        self.shares = own.movedim(0, 2).unbind(1)  # [b m lanes] of each step
        self.weights, self.values = [], []
        for table, value, plane in zip(planes, values, lattice.planes, strict=True):
            self.weights.append(by_step(lattice, table, plane, sizes, columns)[0].unbind(1))
            read, real = by_step(lattice, value, plane, sizes, columns)
            self.values.append(torch.where(real, read, 0.0).unbind(2))

    def dead(self) -> Item:
        none = self.like.new_zeros(self.like.shape[0], *self.shape)
        return 0 * self.lanes.exponential(none), none

    def start(self) -> Item:
        x, means = self.dead()
        one = self.lanes.exponential(means)
        return one.where(torch.arange(self.shape[1], device=x.device) == 0, x), means

    def moved(self, item: Item) -> Item:
        x, means = (pad(part[..., :-1], (1, 0)) for part in item)
        return x, means

    def sum(self, step: int, terms: Sequence[tuple[int, Item]]) -> Item:
        before = [item[1] + self._value(step, number) for number, item in terms]
        chances = [self.shares[step][:, number] for number, _ in terms]
        with torch.no_grad():
            means = torch.zeros_like(before[0])
            for p, x in zip(chances, before, strict=True):
                means = means + p * torch.where(p > 0, x, 0.0)
            place = torch.arange(means[0].numel(), dtype=torch.float64, device=means.device)
            means = means + self.shift * torch.cos(1 + 3 * step + 7 * place).reshape(self.shape)
        products = []
        for (number, (x, _)), p, value in zip(terms, chances, before, strict=True):
            weight = p
            for plane in self.lattice.moves[number].planes:
                weight = reweighted(weight, self.weights[plane][step])
            # What is never used must not be far from the rest, where exponentials overflow, nor
            # what leads to no end.
            own = self.lanes.exponential(torch.where(p > 0, value - means, 0.0))
            products.append(self.lanes.times(weight * own, torch.where(p > 0, x, 0.0)))
        return torch.stack(products).sum(0), means

    def _value(self, step: int, number: int) -> Inexact[Tensor, "k b j"]:
        """The values of a move's planes."""
        value = self.like.new_zeros(self.like.shape[0], *self.shape)
        for plane in self.lattice.moves[number].planes:
            value = value + self.values[plane][step]
        return value
