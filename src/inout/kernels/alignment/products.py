"""An additive joiner's sums over symbols, and their gradients, as matrix products, in torch.

Sums below JOINER_TINY may have lost digits: they are given as inf, and add nothing to gradients.
`gpu/additive.py` has the same functions for GPUs.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.alignment.blocks import Planes, finite
from inout.kernels.limits import JOINER_TINY

Scales = tuple[Tensor, ...]  # what the gradients need besides the sums


def planes(
    encoder: Float[Tensor, "b t v"],
    predictor: Float[Tensor, "b w v"],
    labels: Int[Tensor, "b w"],
    blank: int,
) -> tuple[Planes, Float[Tensor, "b t w"], Scales]:
    """Log-probabilities of the blank and of the labels, and sums relative to the largest."""
    given = (encoder, predictor)
    tops = [finite(x.amax(-1, keepdim=True)) for x in given]
    factors = [(x - top).exp_() for x, top in zip(given, tops, strict=True)]
    sums = factors[0] @ factors[1].mT
    logs = sums.masked_fill_(sums < JOINER_TINY.of(sums.dtype), torch.inf).log()
    blanks = (encoder[..., blank, None] - tops[0]) + (predictor[..., blank, None] - tops[1]).mT
    at_labels = encoder.gather(-1, labels[:, None].expand(-1, encoder.shape[1], -1)) - tops[0]
    own = (predictor.gather(-1, labels[..., None]) - tops[1]).mT
    return (blanks.sub_(logs), at_labels.add_(own).sub_(logs)), sums, (*factors,)


def gradients(
    encoder: Float[Tensor, "b t v"],
    predictor: Float[Tensor, "b w v"],
    labels: Int[Tensor, "b w"],
    sums: Float[Tensor, "b t w"],
    factors: Scales,
    of_planes: Planes,
    blank: int,
) -> tuple[Float[Tensor, "b t v"], Float[Tensor, "b w v"]]:
    """Those of encoder and predictor, given those of the planes."""
    of_blank, of_own = of_planes
    ratio = (of_blank + of_own) / sums
    of_encoder = (ratio @ factors[1]).mul_(factors[0]).neg_()
    of_predictor = (ratio.mT @ factors[0]).mul_(factors[1]).neg_()
    of_encoder[..., blank] += of_blank.sum(-1)
    of_predictor[..., blank] += of_blank.sum(-2)
    _add_by_label(of_encoder, labels, of_own)
    of_predictor.scatter_add_(-1, labels[..., None], of_own.sum(-2)[..., None])
    return of_encoder, of_predictor


def _add_by_label(
    totals: Float[Tensor, "b t v"], labels: Int[Tensor, "b w"], values: Float[Tensor, "b t w"]
) -> None:
    """Add values to the totals of their labels, those of equal labels in a fixed order."""
    w = labels.shape[1]
    place = torch.arange(w, device=labels.device)
    same = labels[:, :, None] == labels[:, None]
    first = place.where(same, w).amin(-1)  # where each label occurs first
    sums = values @ (first[..., None] == place).to(values)
    each = (-1, totals.shape[1], -1)
    at = labels[:, None].expand(*each)
    # Equal labels write the same numbers.
    totals.scatter_(-1, at, totals.gather(-1, at) + sums.gather(-1, first[:, None].expand(*each)))
