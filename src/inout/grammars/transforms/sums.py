"""Sums of many terms into places, for any number of settings of weights side by side."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.semirings import Log, Max


def summed(
    semiring: Log | Max, terms: Float[Tensor, "*c t"], places: Int[Tensor, " t"], size: int
) -> Float[Tensor, "*c {size}"]:
    """⊕ of the terms of each place, 0 (a log-weight of −inf) where there is none.

    >>> summed(Max(), torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0, 0, 2]), 3)
    tensor([[2., -inf, 3.]])
    """
    settings = terms.shape[:-1]
    flat = terms.reshape(settings.numel(), terms.shape[-1])
    index = torch.arange(len(flat))[:, None] * size + places
    result = semiring.sum(flat.reshape(-1), index.reshape(-1), len(flat) * size)
    return result.reshape(*settings, size)
