"""`SoftDTW`: a loss between time series of any lengths."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inout._core.checks import expect, expect_one_of
from inout.distributions.alignment import soft_dtw
from inout.distributions.arguments import Lengths, checked_lengths, refuse_non_tensors
from inout.nn.reductions import LOSS_REDUCTIONS, reduced

Distances = Callable[[Tensor, Tensor], Tensor]


def squared_distances(
    x: Float[Tensor, "b n d"], y: Float[Tensor, "b m d"]
) -> Float[Tensor, "b n m"]:
    """Squared Euclidean distances of all pairs, by differences: near pairs lose no digits.

    >>> import torch
    >>> squared_distances(torch.tensor([[[0.0], [2.0]]]), torch.tensor([[[1.0]]]))
    tensor([[[1.],
             [1.]]])
    """
    return (x[..., :, None, :] - y[..., None, :, :]).square().sum(-1)


class SoftDTW(nn.Module):
    """Soft-DTW between x [b n d] and y [b m d]: [b], as the modules of pysdtw and tslearn.

    `gamma` is the temperature; with 0 it is the cost of the best path, exactly. `dist_func` (x, y)
    makes the costs [b n m] of matching their rows, by default squared Euclidean distances.
    `normalize` takes half of the losses of x with x and of y with y away: it is 0 then for x = y.
    Any length that memory holds: O(b n m), besides the costs.

    >>> import torch
    >>> x = torch.tensor([[[0.0], [1.0], [3.0]]])
    >>> SoftDTW(gamma=0.0)(x, x[:, [0, 0, 1, 2]]), SoftDTW(normalize=True)(x, x)
    (tensor([0.]), tensor([0.]))

    Cuturi & Blondel (ICML 2017); Blondel, Mensch & Vert (AISTATS 2021) for `normalize`.
    """

    def __init__(
        self,
        gamma: float = 1.0,
        normalize: bool = False,
        dist_func: Distances | None = None,
        reduction: str = "none",
    ) -> None:
        super().__init__()
        good = isinstance(gamma, int | float) and 0 <= gamma < float("inf")
        expect(good, "gamma", "must be a number that is not negative", gamma)
        expect_one_of("reduction", reduction, LOSS_REDUCTIONS)
        self.gamma, self.normalize, self.reduction = gamma, normalize, reduction
        self.dist_func: Distances = dist_func or squared_distances

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        y: Float[Tensor, "b m d"],
        lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Float[Tensor, " ..."]:
        """The loss; the lengths say how many rows of x and y are real."""
        refuse_non_tensors(x=x, y=y)
        good = x.ndim == 3
        expect(good, "x", "must be [b n d]", list(x.shape))
        good = y.ndim == 3 and (y.shape[0], y.shape[2]) == (x.shape[0], x.shape[2])
        expect(good, "y", f"must be [{x.shape[0]} m {x.shape[2]}] for this x", list(y.shape))
        # What stands in the padding must not reach the gradients of the distances.
        x, y = _rows(x, lengths, "lengths"), _rows(y, target_lengths, "target_lengths")
        loss = self._loss(x, y, lengths, target_lengths)
        if self.normalize:
            own = self._loss(x, x, lengths, lengths)
            its = self._loss(y, y, target_lengths, target_lengths)
            loss = loss - (own + its) / 2
        return reduced(loss, self.reduction)

    def _loss(self, x: Tensor, y: Tensor, lengths: object, target_lengths: object) -> Tensor:
        return soft_dtw(self.dist_func(x, y), self.gamma, lengths, target_lengths)  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        """The settings, for `print`."""
        return f"gamma={self.gamma}, normalize={self.normalize}, reduction={self.reduction!r}"


def _rows(x: Float[Tensor, "b n d"], lengths: Lengths | None, name: str) -> Float[Tensor, "b n d"]:
    """The rows that are real, and zeros."""
    if lengths is None:
        return x
    sizes = checked_lengths(lengths, x.shape[:1], x.shape[1], x.device, name)
    real = torch.arange(x.shape[1], device=x.device) < sizes[:, None]
    return x.where(real[..., None], 0.0)
