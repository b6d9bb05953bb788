"""What the generating functions of several families of trees share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout.kernels.math.reweighting import reweighted, shares
from inout.series.lanes import Lanes


def label_lanes(
    lanes: Lanes,
    potentials: Float[Tensor, "*p s"],
    values: Inexact[Tensor, " ..."],
    moved: Callable[[Tensor], Tensor],
) -> tuple[Inexact[Tensor, " ..."], Inexact[Tensor, " ..."], Float[Tensor, "*p"]]:
    """E[exp(z · (f − centre))] over the labels of each part, the centres, and logs of sums.

    The centres are the means, moved.
    """
    with torch.no_grad():
        chances, logs = shares(potentials)
        centre = moved((chances * values).sum(-1))
    weights = reweighted(chances, potentials)
    if values.shape[-1] == 1:
        weights = weights.sum(-1, keepdim=True)
    # What is never used must not be far from the rest, where exponentials overflow.
    seen = chances > 0
    seen = seen if values.shape[-1] > 1 else seen.any(-1, keepdim=True)
    off = torch.where(seen, values - centre[..., None], 0.0)
    return (weights * lanes.exponential(off)).sum(-1), centre, logs
