"""Generating functions of additive functions of labelled binary trees, over any lanes, in torch."""

from __future__ import annotations

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout.kernels.math.lanes import label_lanes
from inout.kernels.math.reweighting import shares
from inout.kernels.shapes import Generated, LabelledSpans, Lengths, PerElement
from inout.series.lanes import Lanes

Values = Inexact[Tensor, "k b n n #s"]


def generating_function(
    lanes: Lanes, potentials: LabelledSpans, lengths: Lengths, values: Values, shift: float = 0.0
) -> Generated:
    """E[exp(z · (F − centres))] of each element, and the centres: E[F], if not moved by `shift`.

    The lanes of a span are the expectation of exp(z · (what is below it − its mean)), given that
    the tree has the span: those of its label, times the sum over splits of a share and the lanes
    of both sides. Elements without a tree have lanes 0. Padding may be anything.
    O(b n² s l + b n³ l), or l² instead of l for power series.
    """
    n = potentials.shape[1]
    if n == 0:
        centres = values.detach().sum((2, 3, 4))
        return 0 * lanes.exponential(centres) + potentials.sum(), centres  # no trees
    place = torch.arange(n, device=lengths.device)
    wide = place[:, None] < place
    real = ((place[:, None] <= place) & (place < lengths[:, None, None]))[..., None]  # [b n n 1]
    potentials = potentials.double().where(real, -torch.inf)
    values = values.where(real, 0.0)
    highest = potentials.detach().amax(-1).where(wide, -torch.inf).amax((1, 2))
    trees = _Trees(lanes, torch.where(highest == -torch.inf, 0.0, highest), shift)
    for width in range(1, n + 1):
        trees.add(potentials.diagonal(width - 1, 1, 2).mT, values.diagonal(width - 1, 2, 3).mT)
    return trees.whole(lengths)


class _Trees:
    """The spans of every width so far, by width: `lanes` [l b count] about `means` [k b count].

    `logs` [b count] are logarithms of inside values, without the weights of the words, which all
    trees have, and without `highest` for each wider span, of which all trees have as many.
    """

    def __init__(self, lanes: Lanes, highest: PerElement, shift: float) -> None:
        self.algebra, self.highest, self.shift = lanes, highest, shift
        self.lanes: list[Tensor] = []
        self.means: list[Tensor] = []
        self.logs: list[Tensor] = []

    def add(
        self, potentials: Float[Tensor, "b count s"], values: Inexact[Tensor, "k b count #s"]
    ) -> None:
        """The spans of the next width, by the potentials and the values of their labels."""
        x, centre, logs = label_lanes(
            self.algebra, potentials, values, lambda means: self._moved(means, 0.0)
        )
        if not self.lanes:
            self._append(x, centre, torch.where(logs == -torch.inf, logs, 0.0))
            return
        with torch.no_grad():
            inside, below = (
                left + right for left, right in map(self._sides, (self.logs, self.means))
            )
            chances, total = shares(inside)
            mean = self._moved(centre + (chances * below).sum(-1), 0.5)
            off = torch.where(chances > 0, below + (centre - mean)[..., None], 0.0)
            logs = logs - self.highest[:, None] + total
        splits = self.algebra.times(*self._sides(self.lanes))
        splits = self.algebra.times(chances * self.algebra.exponential(off), splits)
        self._append(self.algebra.times(x, splits.sum(-1)), mean, logs)

    def _append(self, lanes: Tensor, means: Tensor, logs: Tensor) -> None:
        self.lanes.append(lanes)
        self.means.append(means)
        self.logs.append(logs)

    def _moved(self, means: Inexact[Tensor, "k b count"], phase: float) -> Tensor:
        """The means of the next width, moved by the shift and irregularly."""
        place = torch.arange(means.shape[-1], dtype=torch.float64, device=means.device)
        return means + self.shift * torch.cos(1 + phase + 7 * place + 3 * len(self.lanes))

    def _sides(self, found: list[Tensor]) -> tuple[Tensor, Tensor]:
        """What is left and right of the splits of the next spans: [… count splits] each."""
        width = 1 + len(found)
        count = found[0].shape[-1] - width + 1
        left = [found[w - 1][..., :count] for w in range(1, width)]
        right = [found[width - w - 1][..., w : w + count] for w in range(1, width)]
        return torch.stack(left, -1), torch.stack(right, -1)

    def whole(self, lengths: Lengths) -> Generated:
        """Lanes and means of the spans over whole elements."""
        width = (lengths - 1).clamp(min=0)
        element = torch.arange(len(lengths), device=lengths.device)
        x, means = (
            torch.stack([y[..., 0] for y in found])[width, :, element].mT
            for found in (self.lanes, self.means)
        )
        return x, means
