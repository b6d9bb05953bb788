"""Log-softmax of the blank and of a label in rows of logits, and its gradient, block by block.

Torch operations on some rows at a time; `gpu/joiner.py` has the same functions for GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.limits import JOINER_BLOCK

Planes = tuple[Float[Tensor, "b t w"], Float[Tensor, "b t w"]]
# The largest logit of each row, and the log of the sum of exponentials relative to it: added up
# they would lose digits where logits are large. Both are 0 where nothing is possible.
Scales = tuple[Float[Tensor, "b t w"], Float[Tensor, "b t w"]]


def planes(
    logits: Float[Tensor, "b t w v"], labels: Int[Tensor, "b t w"], blank: int
) -> tuple[Planes, Scales]:
    """Log-probabilities of the blank and of the labels, 0 where these are -1; scales of rows."""
    own = wide(logits.gather(-1, labels.clamp(min=0)[..., None])[..., 0])
    tops, logs = torch.empty_like(own), torch.empty_like(own)
    flat = logits.flatten(0, -2)
    for rows in _blocks(flat):
        block = wide(flat[rows])
        top = finite(block.amax(-1))
        tops.view(-1)[rows] = top
        logs.view(-1)[rows] = finite((block - top[:, None]).exp_().sum(-1).log())
    found = [(x - tops - logs).masked_fill_(labels < 0, 0.0) for x in (logits[..., blank], own)]
    return (found[0], found[1]), (tops, logs)


def gradient(
    logits: Float[Tensor, "b t w v"],
    labels: Int[Tensor, "b t w"],
    scales: Scales,
    of_planes: Planes,
    blank: int,
) -> Float[Tensor, "b t w v"]:
    """The gradient of logits, given that of the planes."""
    of_blank, of_own = (x.masked_fill(labels < 0, 0.0) for x in of_planes)
    both, result = (of_blank + of_own).flatten(), torch.empty_like(logits)
    flat, out = logits.flatten(0, -2), result.flatten(0, -2)
    tops, logs = (x.flatten() for x in scales)
    weights = both * logs.neg().exp()
    half = out.dtype != tops.dtype
    for rows in _blocks(flat):
        block = torch.empty_like(out[rows], dtype=tops.dtype) if half else out[rows]
        torch.sub(flat[rows], tops[rows, None], out=block)
        block.exp_().mul_(-weights[rows, None])
        block.masked_fill_(both[rows, None] == 0, 0.0)  # padding may be NaN
        if half:
            out[rows] = block
    result[..., blank] += of_blank
    places = labels.clamp(min=0)[..., None]
    return result.scatter_add_(-1, places, of_own[..., None].to(result))


def tangent(
    logits: Float[Tensor, "b t w v"],
    labels: Int[Tensor, "b t w"],
    scales: Scales,
    of_planes: Planes,
    direction: Float[Tensor, "b t w v"],
    blank: int,
) -> tuple[Float[Tensor, "b t w v"], Float[Tensor, "b t w"], Float[Tensor, "b t w"]]:
    """Gradients of (gradient . direction): by the logits, and by the gradients of both planes."""
    both = (of_planes[0] + of_planes[1]).masked_fill(labels < 0, 0.0).flatten()
    result, means = torch.empty_like(logits), torch.empty_like(scales[0])
    flat, out, along = (x.flatten(0, -2) for x in (logits, result, direction))
    tops, logs = (x.flatten() for x in scales)
    for rows in _blocks(flat):
        weight, padding = both[rows, None], labels.view(-1)[rows, None] < 0
        shares = wide(flat[rows]) - tops[rows, None]
        shares.sub_(logs[rows, None]).exp_().masked_fill_(padding, 0.0)
        moved = wide(along[rows]).masked_fill(padding, 0.0)
        mean = (shares * moved).sum(-1, keepdim=True)
        means.view(-1)[rows] = mean[:, 0]
        out[rows] = (moved - mean).mul_(shares).mul_(-weight)
    places = labels.clamp(min=0)[..., None]
    at = direction[..., blank], direction.gather(-1, places)[..., 0]
    of_blank, of_own = ((x - means).masked_fill(labels < 0, 0.0) for x in at)
    return result, of_blank, of_own


def finite(log_z: Tensor) -> Tensor:
    """0 where nothing is possible: what is there is -inf already."""
    return torch.where(log_z == -torch.inf, 0.0, log_z)


def wide(x: Tensor) -> Tensor:
    """At least in single precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _blocks(flat: Tensor) -> Iterator[slice]:
    """Slices of [rows v] of about JOINER_BLOCK numbers."""
    rows = max(1, JOINER_BLOCK // max(flat.shape[-1], 1))
    for first in range(0, len(flat), rows):
        yield slice(first, first + rows)
