"""The inside pass over a lattice in plain torch code, differentiable to any order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from inout.kernels.alignment.lattice import Lattice
from inout.kernels.alignment.recursion import at_ends, by_step, sweep
from inout.kernels.math.reweighting import log_sum


def reference_log_partition(
    lattice: Lattice, planes: Sequence[Float[Tensor, "b _ _"]], sizes: Int[Tensor, "b 2"]
) -> Float[Tensor, " b"]:
    """log Z by autograd-recorded torch code: the slow twin of `op.py`. O(b n m) in n + m steps."""
    nothing = sum((x[:, :0].sum((1, 2)) for x in planes), torch.zeros(()))  # some may be unused
    if not len(sizes):
        return nothing
    rows, columns = (int(x) for x in sizes.amax(0))
    found = sweep(lattice, rows, columns, _Logs(lattice, planes, sizes, columns))
    last = [at_ends(lattice, [items[layer] for items in found], sizes) for layer in lattice.last]
    total = log_sum(torch.stack(last), 0) + nothing
    return torch.where(total == -torch.inf, -torch.inf, total)  # without a gradient


class _Logs:
    """Items are logarithms [b lanes]."""

    def __init__(
        self, lattice: Lattice, planes: Sequence[Tensor], sizes: Tensor, columns: int
    ) -> None:
        self.like, self.lanes = planes[0], columns + 1
        read = [
            by_step(lattice, x, plane, sizes, columns)
            for x, plane in zip(planes, lattice.planes, strict=True)
        ]
        weights = [torch.where(real, x, -torch.inf).unbind(1) for x, real in read]
        self.weights = [[weights[p] for p in move.planes] for move in lattice.moves]

    def dead(self) -> Tensor:
        return self.like.new_full((len(self.like), self.lanes), -torch.inf)

    def start(self) -> Tensor:
        return self.dead().where(torch.arange(self.lanes, device=self.like.device) > 0, 0.0)

    def moved(self, item: Tensor) -> Tensor:
        return pad(item[:, :-1], (1, 0), value=-torch.inf)

    def sum(self, step: int, terms: Sequence[tuple[int, Tensor]]) -> Tensor:
        logs = []
        for number, item in terms:
            for plane in self.weights[number]:
                item = item + plane[step]
            logs.append(item)
        return log_sum(torch.stack(logs), 0)
