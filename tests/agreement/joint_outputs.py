"""Random joint outputs of transducers, and parts whose sums are such."""

from __future__ import annotations

import torch
from torch import Tensor

F64 = torch.float64
KINDS = ["plain", "masked", "large", "dead"]


def joint_outputs(
    b: int, t: int, w: int, v: int, kind: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Logits [b t w v], labels [b t w], weights of both planes; -1 and NaN in the padding."""
    g = torch.Generator().manual_seed(v + w)
    logits = torch.randn(b, t, w, v, generator=g, dtype=F64)
    if kind == "masked":
        logits = logits.masked_fill(torch.rand(logits.shape, generator=g) < 0.3, -torch.inf)
    if kind == "large":
        logits = logits * (1e3 if dtype == torch.float16 else 1e4)
    if kind == "dead":
        logits[0, 0] = -torch.inf
    labels = torch.randint(0, v, (b, t, w), generator=g)
    labels = labels.masked_fill(torch.rand(labels.shape, generator=g) < 0.3, -1)
    logits = logits.masked_fill((labels < 0)[..., None], torch.nan)
    weights = [torch.rand(labels.shape, generator=g, dtype=F64) for _ in range(2)]
    # Cells that no path visits have weight 0.
    some = torch.rand(labels.shape, generator=g) < 0.8
    return logits.to(dtype), labels, (weights[0] * some, weights[1] * some)


def sums(
    b: int, t: int, w: int, v: int, scale: float, dead: bool
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """An encoder [b t v], a predictor [b w v], labels [b w], weights of both planes."""
    g = torch.Generator().manual_seed(v + w)
    encoder, predictor = (scale * torch.randn(b, n, v, generator=g, dtype=F64) for n in (t, w))
    if dead:
        encoder[0, 0] = -torch.inf
        encoder[:, 1, ::2] = -torch.inf
        predictor[:, 0, 1::2] = -torch.inf
    labels = torch.randint(0, max(1, w // 2), (b, w), generator=g)
    weights = [torch.rand(b, t, w, generator=g, dtype=F64) for _ in range(2)]
    return encoder, predictor, labels, (weights[0], weights[1])
