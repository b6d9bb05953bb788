"""Log-probabilities of the blank and of the next label from a transducer's joiner, in blocks.

The joint outputs [b t u+1 v] are by far the largest tensor of a transducer. Given, they are read in
blocks, so that nothing else of their size is made but their gradient; as a sum of an encoder's and
a predictor's outputs, they are never made at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from inout._core.tracing import is_readable, is_transformed
from inout.kernels.limits import JOINER_BLOCK, JOINER_TINY

Planes = tuple[Float[Tensor, "b t w"], Float[Tensor, "b t w"]]


def from_logits(
    logits: Float[Tensor, "b t w v"], labels: Int[Tensor, "b t w"], blank: int
) -> Planes:
    """log softmax of the blank and of the given labels; blocks of frames at a time."""
    if is_transformed(logits):
        return _planes(logits, labels, blank)
    found: Planes = _FromLogits.apply(logits, labels, blank)  # type: ignore[no-untyped-call]
    return found


def _planes(logits: Tensor, labels: Tensor, blank: int) -> Planes:
    """The same at once."""
    log_z = _finite(logits.logsumexp(-1))
    own = logits.gather(-1, labels[..., None])[..., 0]
    return logits[..., blank] - log_z, own - log_z


def _finite(log_z: Tensor) -> Tensor:
    """0 where nothing is possible: what is there is -inf already."""
    return torch.where(log_z == -torch.inf, 0.0, log_z)


def _blocks(logits: Tensor) -> Iterator[slice]:
    """Slices of a flat [rows v] of about JOINER_BLOCK numbers."""
    rows = max(1, JOINER_BLOCK // max(logits.shape[-1], 1))
    for first in range(0, len(logits), rows):
        yield slice(first, first + rows)


class _FromLogits(torch.autograd.Function):
    """(logits, labels, blank) -> the two planes."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, blank: int) -> Planes:
        flat = logits.flatten(0, -2)
        log_z = flat.new_empty(len(flat))
        for rows in _blocks(flat):
            log_z[rows] = _finite(flat[rows].logsumexp(-1))
        log_z = log_z.reshape(labels.shape)
        ctx.blank = blank
        ctx.save_for_backward(logits, labels, log_z)
        own = logits.gather(-1, labels[..., None])[..., 0]
        return logits[..., blank] - log_z, own - log_z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, labels, log_z = ctx.saved_tensors
        if torch.is_grad_enabled():  # there may be second derivatives
            with torch.enable_grad():
                found = torch.autograd.grad(
                    _planes(logits, labels, ctx.blank), logits, gradients, create_graph=True
                )
            return found[0], None, None
        of_blank, of_label = gradients
        result, both = torch.empty_like(logits), (of_blank + of_label).flatten()
        flat, out, sums = logits.flatten(0, -2), result.view(-1, logits.shape[-1]), log_z.flatten()
        for rows in _blocks(flat):
            weight = both[rows, None]
            torch.sub(flat[rows], sums[rows, None], out=out[rows])
            out[rows].exp_().mul_(-weight)
            out[rows].masked_fill_(weight == 0, 0.0)  # padding may be NaN
        result[..., ctx.blank] += of_blank
        result.scatter_add_(-1, labels[..., None], of_label[..., None])
        return result, None, None


def from_sum(
    encoder: Float[Tensor, "b t v"],
    predictor: Float[Tensor, "b w v"],
    labels: Int[Tensor, "b w"],
    blank: int,
) -> Planes:
    """The planes of logits that are encoder + predictor, without these: O(t v + w v + t w) memory.

    The sum over labels is a matrix product of exponentials, each relative to its row's largest.
    Where that is so small that digits may have been lost, the few rows are added up in logs, in
    blocks that the backward pass makes again.
    """
    tops = [_finite(x.detach().amax(-1, keepdim=True)) for x in (encoder, predictor)]
    factors = [(x - top).exp() for x, top in zip((encoder, predictor), tops, strict=True)]
    sums = factors[0] @ factors[1].mT
    lost = sums.detach() < JOINER_TINY.of(sums.dtype)
    log_z = torch.where(lost, 1.0, sums).log() + tops[0] + tops[1].mT
    if is_readable(lost) and bool(lost.any()):
        log_z = _with_rows(log_z, encoder, predictor, lost)
    own = predictor.gather(-1, labels[..., None])[..., 0]
    at_labels = encoder.gather(-1, labels[:, None].expand(-1, encoder.shape[1], -1))
    blanks = encoder[..., blank, None] + predictor[:, None, :, blank]
    return blanks - log_z, at_labels + own[:, None] - log_z


def _with_rows(log_z: Tensor, encoder: Tensor, predictor: Tensor, lost: Tensor) -> Tensor:
    """log Z with exact values where digits were lost."""
    places = lost.nonzero()
    rows = max(1, JOINER_BLOCK // max(encoder.shape[-1], 1))
    exact = [
        checkpoint(_rows, encoder, predictor, own, use_reentrant=False)
        for own in torch.split(places, rows)
    ]
    return log_z.index_put(tuple(places.unbind(-1)), torch.cat(exact))


def _rows(encoder: Tensor, predictor: Tensor, places: Tensor) -> Tensor:
    """log Z of some pairs (element, frame, symbol)."""
    b, t, w = places.unbind(-1)
    logits = encoder[b, t] + predictor[b, w]
    dead = (logits.detach() == -torch.inf).all(-1, keepdim=True)
    return torch.where(dead, 0.0, logits).logsumexp(-1).where(~dead[:, 0], 0.0)
