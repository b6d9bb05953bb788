"""Log-probabilities of a transducer's blanks and labels by the log-softmax of all joint outputs."""

from __future__ import annotations

import torch
from torch import Tensor


def planes(logits: Tensor, labels: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """log softmax of the blank and of the labels, in float64; 0 where these are -1."""
    real = labels >= 0
    logits = torch.where(real[..., None], logits.double(), 0.0)
    none = (logits == -torch.inf).all(-1, keepdim=True)
    scores = torch.where(none, -torch.inf, torch.where(none, 0.0, logits).log_softmax(-1))
    own = scores.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return torch.where(real, scores[..., blank], 0.0), torch.where(real, own, 0.0)


def weighted(found: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor]) -> Tensor:
    """The sum of both planes, weighted; what is impossible counts as 0."""
    terms = [
        (torch.where(x == -torch.inf, 0.0, x) * weight.to(x)).sum()
        for x, weight in zip(found, weights, strict=True)
    ]
    return terms[0] + terms[1]
